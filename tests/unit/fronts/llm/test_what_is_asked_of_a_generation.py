"""Parameters and options of language models: what they can be, and that nothing else gets through."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter.errors import InvalidModel
from adapter.fronts.answers import HttpError
from adapter.fronts.llm.options import Options, options_of, read
from adapter.fronts.llm.parameters import ALIASES, MOST_ENTRIES, RULES, BadParameter, wishes_of
from adapter.settings import LlmSettings, read_group

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**64), 2**65) | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=400, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted({*RULES, *ALIASES, "unknown"})), JSON, max_size=4), st.booleans())
def test_any_parameters_are_understood_or_refused_by_name(value: dict[str, Any], is_tgi: bool) -> None:
    try:
        wishes = wishes_of(value, is_tgi=is_tgi)
    except BadParameter as refused:
        named = refused.text.partition(":")[0].removeprefix("parameters.")
        assert named in {ALIASES.get(name, name) for name in value}
        return
    except HttpError as refused:
        pytest.fail(f"no parameter is named: {refused.text}")
    assert wishes.max_new_tokens >= 1
    assert set(wishes.ignored) <= {"unknown"}
    assert len(wishes.stops) <= MOST_ENTRIES


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("max_new_tokens", 0),
        ("max_new_tokens", True),
        ("max_new_tokens", 1.0),
        ("do_sample", 1),
        ("seed", -1),
        ("stop_sequences", [""]),
        ("stop_sequences", ["a"] * (MOST_ENTRIES + 1)),
        ("stop_sequences", ["\ud800"]),
        ("temperature", float("nan")),
        ("temperature", -0.1),
        ("top_k", -2),
        ("top_p", 1.1),
        ("repetition_penalty", 0),
        ("presence_penalty", 3),
        ("details", "true"),
    ],
)
def test_what_makes_no_sense_is_refused(name: str, bad: Any) -> None:
    with pytest.raises(BadParameter, match=rf"^parameters\.{name}: "):
        wishes_of({name: bad}, is_tgi=False)


@pytest.mark.parametrize(("name", "value"), [("temperature", 0), ("top_k", 0), ("top_p", 0)])
def test_tgi_takes_less(name: str, value: Any) -> None:
    assert wishes_of({name: value}, is_tgi=False).ignored == []
    with pytest.raises(BadParameter, match=name):
        wishes_of({name: value}, is_tgi=True)


@pytest.mark.parametrize(
    ("value", "is_tgi", "is_greedy"),
    [
        ({}, False, True),
        ({"temperature": 0.7}, False, False),
        ({"temperature": 0.7, "do_sample": False}, False, True),
        ({"temperature": 0.7, "do_sample": False}, True, False),
        ({"do_sample": True}, True, False),
        ({"top_k": -1}, False, True),
    ],
)
def test_whether_tokens_are_drawn(value: Any, is_tgi: bool, is_greedy: bool) -> None:
    wishes = wishes_of({**value, "seed": 7}, is_tgi=is_tgi)
    assert (wishes.is_greedy, wishes.seed) == (is_greedy, None if is_greedy else 7)
    assert not (is_greedy and "temperature" in wishes.given)


def test_defaults_and_other_names() -> None:
    assert (wishes_of(None, is_tgi=False).max_new_tokens, wishes_of({}, is_tgi=True).max_new_tokens) == (30, 20)
    wishes = wishes_of({"stop": "a", "ignore_eos": True, "min_new_tokens": 3, "top_p": 1}, is_tgi=False)
    assert (wishes.stops, wishes.given) == (("a",), {"ignore_eos_token": True, "min_length": 3})


PROPERTIES = r"""
# a comment with option.tgi_compat=true
! another one
engine = Python
option.tgi_compat : true
option.output_formatter   sse
option.long=a\
    b\
    c
option.escaped\ key=\u0041\n\=
option.text_output=cumulative
option.empty=
"""


def test_properties_are_read_as_java_writes_them() -> None:
    assert dict(read(PROPERTIES)) == {
        "engine": "Python",
        "option.tgi_compat": "true",
        "option.output_formatter": "sse",
        "option.long": "abc",
        "option.escaped key": "A\n=",
        "option.text_output": "cumulative",
        "option.empty": "",
    }


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from("ab=: \\\n\r\t#!u0041.") | st.characters(), max_size=40))
def test_any_file_is_read(text: str) -> None:
    list(read(text))


def options(properties: bytes, **environ: str) -> Options:
    return options_of(read_group(LlmSettings, environ), properties)


def test_a_models_file_beats_the_settings() -> None:
    found = options(b"option.tgi_compat=FALSE\noption.rolling_batch=disable", OPTION_TGI_COMPAT="true", LMI_DETAILS="strict")
    assert (found.is_tgi_compatible, found.is_dynamic, found.is_strict, found.text) == (False, True, True, "auto")
    assert options(b"\xff\xfe option.rolling_batch").is_dynamic is False
    with pytest.raises(InvalidModel, match=r"serving\.properties: option\.details is 'maybe'; it can be honest, strict"):
        options(b"option.details=maybe")
