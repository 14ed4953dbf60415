"""Parameters of a generation: what makes sense is taken, what does not is named, and nothing else ever happens."""

from __future__ import annotations

import re
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.fronts.failures import HttpError
from adapter.fronts.llm.parameters import ALIASES, RULES, BadParameter, Wishes, wishes_of

HUGE = 10**400
LEAVES = st.none() | st.booleans() | st.integers(-(2**65), 2**65) | st.floats() | st.text() | st.just(HUGE)
ANYTHING = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=8)
NAMES = st.sampled_from([*RULES, *ALIASES]) | st.text()
FLAGS = [
    "do_sample", "details", "return_full_text", "early_stopping", "ignore_eos_token", "include_stop_str_in_output", "skip_special_tokens",
    "spaces_between_special_tokens", "watermark", "decoder_input_details",
]  # fmt: skip
COUNTS = ["n", "best_of", "num_beams"]
GOOD: dict[str, list[Any]] = {
    **{name: [True, False] for name in FLAGS},
    **{name: [1, 4] for name in COUNTS},
    "max_new_tokens": [1, 2**31 - 1],
    "seed": [0, 2**63 - 1],
    "stop_sequences": [[], ["a", "é"], "a", ["x"] * 64],
    "temperature": [0.1, 1, 100.0],
    "top_k": [1, 50],
    "top_p": [0.01, 1, 1.0],
    "typical_p": [0.5, 1],
    "min_p": [0, 0.5, 1],
    "repetition_penalty": [0.1, 1, 2.5],
    "presence_penalty": [-2, 0, 2],
    "frequency_penalty": [-2, 0.0, 2],
    "length_penalty": [-1.5, 1],
    "min_length": [0, 7],
    "bad_sequences": [[], ["a"]],
    "stop_token_ids": [[], [0, 2]],
    "truncate": [1],
    "top_n_tokens": [0, 5],
    "logprobs": [0, 1, 5],
    "prompt_logprobs": [0, 1],
    "grammar": [{"type": "json"}, "x"],
    "adapter_id": ["org/lora"],
}
"""Taken by LMI and by TGI."""
BAD: dict[str, list[Any]] = {
    **{name: [0, 1, "true", [], {}] for name in FLAGS},
    **{name: [0, True, 1.5] for name in COUNTS},
    "max_new_tokens": [0, -1, 1.0, "1", True, 2**31],
    "seed": [-1, 2**63, 1.5, "1", True],
    "stop_sequences": [[""], [1], "", {}, ["x"] * 65, [["a"]]],
    "temperature": [-0.1, "hot", True, float("nan"), float("inf"), HUGE],
    "top_k": [-2, 1.5, "1", True],
    "top_p": [-0.1, 1.1, "1", float("nan")],
    "typical_p": [0, 1.1],
    "min_p": [-0.1, 1.1, "x"],
    "repetition_penalty": [0, -1, "x", float("inf")],
    "presence_penalty": [-2.1, 2.1, []],
    "frequency_penalty": [-2.1, 2.1],
    "length_penalty": ["x", float("-inf"), HUGE],
    "min_length": [-1, 0.5],
    "bad_sequences": ["a", [""], [1]],
    "stop_token_ids": [1, ["1"], [-1], [True], [0.5]],
    "truncate": [0, "x"],
    "top_n_tokens": [-1],
    "logprobs": [-1, True],
    "prompt_logprobs": [-1],
    "adapter_id": [1],
}
BAD_OF_TGI: dict[str, list[Any]] = {"temperature": [0], "top_k": [0, -1], "top_p": [0]}
"""LMI takes these."""


def cases(table: dict[str, list[Any]]) -> list[tuple[str, Any]]:
    return [(name, value) for name, values in table.items() for value in values]


def test_each_rule_has_both() -> None:
    assert set(GOOD) == set(RULES)
    assert set(BAD) == set(RULES) - {"grammar"}
    assert set(BAD_OF_TGI) == {name for name, rule in RULES.items() if rule.tgi is not None}


@pytest.mark.parametrize("is_tgi", [False, True])
@pytest.mark.parametrize(("name", "value"), cases(GOOD))
def test_what_makes_sense_is_taken(name: str, value: Any, is_tgi: bool) -> None:
    assert wishes_of({"do_sample": True, name: value}, is_tgi=is_tgi).ignored == []


@pytest.mark.parametrize(("value", "kind"), [("3", "str"), (3.5, "float"), (True, "bool"), (["ü"], "array")])
def test_a_text_of_digits_is_told_from_a_number(value: Any, kind: str) -> None:
    with pytest.raises(BadParameter) as refused:
        wishes_of({"max_new_tokens": value}, is_tgi=False)
    assert str(refused.value).startswith(f"parameters.max_new_tokens: Expected `int`, got `{kind}`")


@pytest.mark.parametrize("is_tgi", [False, True])
@pytest.mark.parametrize(("name", "value"), cases(BAD))
def test_what_makes_none_is_named(name: str, value: Any, is_tgi: bool) -> None:
    with pytest.raises(BadParameter, match=rf"^parameters\.{name}: (Expected|Number out of) .+") as refused:
        wishes_of({name: value}, is_tgi=is_tgi)
    assert refused.value.status == 400


@pytest.mark.parametrize(("name", "value"), cases(BAD_OF_TGI))
def test_tgi_takes_less(name: str, value: Any) -> None:
    assert name not in wishes_of({name: value}, is_tgi=False).given
    with pytest.raises(BadParameter, match=rf"^parameters\.{name}: Expected "):
        wishes_of({name: value}, is_tgi=True)


@pytest.mark.parametrize("value", [[], "x", 1, True])
def test_parameters_are_an_object(value: Any) -> None:
    with pytest.raises(HttpError, match=r"^parameters must be an object$"):
        wishes_of(value, is_tgi=False)


@given(st.dictionaries(NAMES, ANYTHING, max_size=6) | ANYTHING, st.booleans())
def test_nothing_but_a_wish_or_words_comes_of_anything(value: Any, is_tgi: bool) -> None:
    try:
        wishes = wishes_of(value, is_tgi=is_tgi)
    except HttpError as refused:
        assert refused.status == 400
        assert len(refused.text) < 400
        orjson.dumps(refused.text)
    else:
        assert wishes.max_new_tokens >= 1
        orjson.dumps([{**wishes.given, "grammar": None}, wishes.ignored])


def of(is_tgi: bool = False, **parameters: Any) -> Wishes:
    return wishes_of(parameters, is_tgi=is_tgi)


@pytest.mark.parametrize("value", [None, {}, dict.fromkeys(RULES)])
def test_null_is_absent(value: Any) -> None:
    assert wishes_of(value, is_tgi=False) == Wishes(max_new_tokens=30, is_greedy=True, ignored=[])
    assert wishes_of(value, is_tgi=True) == Wishes(max_new_tokens=20, is_greedy=True, ignored=[], is_tgi=True)


@pytest.mark.parametrize("is_tgi", [False, True])
def test_any_parameter_of_sampling_counts_where_it_is_asked_for(is_tgi: bool) -> None:
    """By `do_sample`, as in LMI 0.31; with TGI by any of them."""
    for name, value in (("temperature", 0.5), ("top_k", 5), ("top_p", 0.5), ("typical_p", 0.5), ("min_p", 0.5)):
        dropped = of(seed=7, **{name: value})
        assert (dropped.is_greedy, dropped.given, dropped.ignored) == (True, {}, sorted(["seed", name]))
        found = of(is_tgi, seed=7, **{name: value}, **({} if is_tgi else {"do_sample": True}))
        assert (found.is_greedy, found.given) == (False, {name: value, "seed": 7})
    assert of(is_tgi, do_sample=True, seed=7) == Wishes(
        max_new_tokens=found.max_new_tokens, is_greedy=False, given={"seed": 7}, ignored=[], is_tgi=is_tgi
    )
    assert of(is_tgi, top_p=1, repetition_penalty=1).is_greedy
    assert of(is_tgi, seed=7).given == {}


def test_do_sample_false_is_heard_by_lmi_alone() -> None:
    """TGI's clients send it always."""
    greedy = of(do_sample=False, temperature=0.5, presence_penalty=1)
    assert (greedy.is_greedy, greedy.given) == (True, {"presence_penalty": 1})
    assert not of(is_tgi=True, do_sample=False, temperature=0.5).is_greedy


@pytest.mark.parametrize("name", ["temperature", "top_p"])
@pytest.mark.parametrize("others", [{}, {"do_sample": True}, {"top_k": 5}])
def test_where_only_the_best_token_is_left_nothing_is_drawn(name: str, others: dict[str, Any]) -> None:
    found = of(**{name: 0.0}, **others)
    assert (found.is_greedy, found.given) == (True, {})


def test_other_names_of_the_same() -> None:
    found = of(stop=["a"], ignore_eos=True, min_new_tokens=3)
    assert found.given == {"stop_sequences": ["a"], "ignore_eos_token": True, "min_length": 3}
    assert of(stop_sequences="a").given == {"stop_sequences": ["a"]}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"stop": [""]}, "stop: "),
        ({"ignore_eos": 1}, "ignore_eos: Expected `bool`"),
        ({"min_new_tokens": -1}, "min_new_tokens: Expected "),
        ({"min_new_tokens": 31}, "min_new_tokens: 31 is more than "),
        ({"min_length": 1, "min_new_tokens": 31}, "min_new_tokens: is another name of min_length, which has another value"),
        ({"min_new_tokens": 31, "min_length": 31}, "min_new_tokens: 31 is more than "),
        ({"min_new_tokens": None, "min_length": 31}, "min_length: 31 is more than "),
    ],
)
def test_a_bad_parameter_has_its_callers_name(given: dict[str, Any], words: str) -> None:
    with pytest.raises(BadParameter, match=rf"^parameters\.{words}"):
        of(**given)


def test_more_tokens_at_least_than_at_most() -> None:
    with pytest.raises(BadParameter, match=r"^parameters\.min_length: 31 is more than max_new_tokens \(30\)$"):
        of(min_length=31)
    assert of(min_length=31, max_new_tokens=31).given == {"min_length": 31}


def test_unknown_parameters_are_noted_in_short() -> None:
    found = of(**{f"unknown{number}" + "x" * 100: 1 for number in range(100)})
    assert len(found.ignored) == 64
    assert all(re.fullmatch("unknown[0-9]+x+", name) and len(name) == 64 for name in found.ignored)
