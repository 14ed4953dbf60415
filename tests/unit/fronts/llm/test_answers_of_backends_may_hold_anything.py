"""What each kind of backend answers is read as it is meant; whatever else it holds is null, and never a crash."""

from __future__ import annotations

import json
import struct
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.fronts.llm.backends import Piece, Profile, Token, profile_of
from adapter.fronts.llm.generating import Collector
from adapter.fronts.llm.schemas import Lmi, Tgi
from adapter.inference import InferenceFailed
from tests.messages import Tensor, texts
from tests.unit.fronts.llm.rigs import LLM_API, PLAIN, TRTLLM, VLLM, named, numbers, wishes

PROFILES = [profile_of(info) for info in (VLLM, TRTLLM, LLM_API, PLAIN)]
VLLMS, TRTLLMS, LLM_APIS, _ = PROFILES


def logprobs(*rows: Any) -> Tensor:
    return texts("logprobs", json.dumps(rows))


def test_vllm() -> None:
    row = {"101": {"logprob": -0.5, "rank": 1, "decoded_token": " a"}, "5": {"logprob": -3, "decoded_token": "b"}}
    outputs = named(
        texts("text_output", " a"),
        texts("finish_reason", "length"),
        logprobs(row),
        numbers("num_input_tokens", "UINT32", 7),
        numbers("num_output_tokens", "UINT32", 1),
    )
    piece = Piece(text=b" a", tokens=[Token(101, " a", -0.5)], reason="length", prompt_tokens=7, output_tokens=1)
    assert VLLMS.piece(outputs, 0, 1) == piece
    assert VLLMS.piece(named(texts("text_output", " a"), texts("finish_reason", "None")), 0, 1) == Piece(text=b" a")


@pytest.mark.parametrize(
    "text",
    [
        "", "null", "1", "{", "[1]", "[{}]", "[[]]", '[{"x": {}}]', '[{"1": {}}]', '[{"1": 1}]', '[{"1": null}]', "[" * 100_000,
        '[{"' + "9" * 5000 + '": {"logprob": 1}}]', "\xff",
    ],
)  # fmt: skip
def test_log_probabilities_of_vllm_that_are_none(text: str) -> None:
    assert VLLMS.piece(named(texts("logprobs", text.encode("latin-1"))), 0, 1) == Piece(text=b"")


@pytest.mark.parametrize(
    ("key", "entry", "token"),
    [
        ("1", '{"logprob": -Infinity}', Token(1, None, None)),
        ("1", '{"logprob": NaN, "decoded_token": 1}', Token(1, None, None)),
        ("1", '{"logprob": null}', Token(1, None, None)),
        ("1", '{"logprob": ' + "9" * 400 + "}", Token(1, None, None)),
        ("1", '{"logprob": true}', Token(1, None, None)),
        ("-1", '{"logprob": -1}', Token(None, None, -1.0)),
        ("9" * 30, '{"logprob": -1}', Token(None, None, -1.0)),
    ],
)
def test_parts_of_a_token_that_make_no_sense_are_null(key: str, entry: str, token: Token) -> None:
    assert VLLMS.piece(named(texts("logprobs", f'[{{"{key}": {entry}}}]')), 0, 1).tokens == [token]


def test_tensorrt_llm() -> None:
    outputs = named(texts("text_output", "ab"), numbers("output_log_probs", "FP32", -0.5, -0.25))
    assert TRTLLMS.piece(outputs, 0, 1) == Piece(text=b"ab", tokens=[Token(None, None, -0.5), Token(None, None, -0.25)])
    empty = named(texts("text_output", "ab"), numbers("output_log_probs", "FP32", 0, 0))
    assert TRTLLMS.piece(empty, 0, 1) == Piece(text=b"ab")


def test_the_llm_api_of_tensorrt_llm() -> None:
    def piece(reason: str, stop: str) -> Piece:
        return LLM_APIS.piece(named(texts("text_output", "ab"), texts("finish_reason", reason), texts("stop_reason", stop)), 0, 1)

    assert piece("None", "None") == Piece(text=b"ab", stop="")
    assert piece("stop", "x") == Piece(text=b"ab", reason="stop", stop="x")
    assert piece("stop", "None") == Piece(text=b"ab", reason="stop", stop="")
    assert LLM_APIS.piece(named(texts("text_output", "ab")), 0, 1) == Piece(text=b"ab")


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_each_row_has_its_own_text_or_the_answer_fails(profile: Profile) -> None:
    outputs = named(texts("text_output", "a", "b"))
    assert [profile.piece(outputs, row, 2).text for row in range(2)] == [b"a", b"b"]
    for row in range(3):
        with pytest.raises(InferenceFailed, match="the model has answered 3 prompts with 2 texts"):
            profile.piece(outputs, row, 3)


@pytest.mark.parametrize("data", [b"\x01", b"\x05\0\0\0a", struct.pack("<I", 2**32 - 1)])
def test_a_text_that_is_cut_off(data: bytes) -> None:
    with pytest.raises(InferenceFailed, match="the model's output text_output is cut off"):
        VLLMS.piece(named(Tensor("text_output", "BYTES", [1], data)), 0, 1)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1, 3e38])
def test_counts_that_are_none(value: float) -> None:
    outputs = named(numbers("num_input_tokens", "FP32", value), numbers("num_output_tokens", "FP32", value))
    for profile in (VLLMS, TRTLLMS):
        piece = profile.piece(outputs, 0, 1)
        assert (piece.prompt_tokens, piece.output_tokens) == (None, None)


NAMES = ["text_output", "finish_reason", "stop_reason", "logprobs", "output_log_probs", "num_input_tokens", "num_output_tokens"]
TOKEN = st.dictionaries(
    st.integers().map(str) | st.text(max_size=3),
    st.fixed_dictionaries(
        {}, optional={"logprob": st.floats() | st.integers() | st.none(), "decoded_token": st.text(st.characters()) | st.just("\ud800")}
    ),
    max_size=2,
)
LOGPROBS = st.lists(TOKEN, max_size=3).map(lambda rows: json.dumps(rows).encode())
TEXT = st.binary(max_size=8) | st.text(max_size=4).map(str.encode) | LOGPROBS | st.sampled_from([b"None", b"length", b"stop"])


@st.composite
def outputs(draw: st.DrawFn) -> list[Tensor]:
    found = []
    for name in draw(st.lists(st.sampled_from(NAMES), unique=True)):
        kind = draw(st.sampled_from(["BYTES", "FP32", "UINT32", "UINT64", "BOOL", "FP16", "BF16", "INT8"]))
        if kind == "BYTES" and draw(st.booleans()):
            found.append(texts(name, *draw(st.lists(TEXT, max_size=3))))
        else:
            found.append(Tensor(name, kind, [1], draw(st.binary(max_size=24))))
    return found


@given(st.sampled_from(PROFILES), st.lists(outputs(), max_size=4), st.integers(1, 3), st.booleans(), st.booleans())
def test_any_answers_are_lines_of_json_or_a_failure(
    profile: Profile, answers: list[list[Tensor]], rows: int, is_tgi: bool, is_cumulative: bool
) -> None:
    wish = wishes(is_tgi, details=True, stop_sequences=["a"])
    collector = Collector("a", wish, is_cumulative=is_cumulative, repeats_prompt=True, keeps_tokens=True)
    schema = Tgi() if is_tgi else Lmi()
    try:
        for answer in answers:
            for index, token in enumerate(collector.take(profile.piece(named(*answer), rows - 1, rows), is_final=answer is answers[-1])):
                orjson.dumps(schema.line(token, index, None))
    except InferenceFailed:
        return
    end = collector
    orjson.dumps(schema.whole(end))
    assert end.finish_reason in (None, "length", "eos_token", "stop_sequence")
    assert "".join(token.text or "" for token in end.tokens or ()) == end.text
