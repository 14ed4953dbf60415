"""From answers of a backend to tokens, texts, counts and the reason of the end."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.fronts.llm.backends import PROMPT, TEXT, Piece, Question, Token, profile_of
from adapter.fronts.llm.collecting import Collector
from adapter.fronts.llm.parameters import wishes_of
from adapter.inference import InferenceFailed, ModelInfo, Tensor, TensorInfo

VLLM_INPUTS = (PROMPT, "sampling_parameters", "stream", "exclude_input_in_output", "return_logprobs", "return_finish_reason")


def collector(prompt: str = "p", *, is_cumulative: bool = False, repeats_prompt: bool = False, **parameters: Any) -> Collector:
    wishes = wishes_of({"max_new_tokens": 3, **parameters}, is_tgi=False)
    return Collector(prompt, wishes, is_cumulative=is_cumulative, repeats_prompt=repeats_prompt, keeps_tokens=True)


def texts(found: Collector, pieces: Sequence[Piece]) -> list[str | None]:
    return [token.text for number, piece in enumerate(pieces) for token in found.take(piece, is_final=number == len(pieces) - 1)]


@given(st.text(max_size=12), st.data())
def test_a_text_in_pieces_is_the_text(text: str, data: st.DataObject) -> None:
    """Wherever its bytes are cut, delta or cumulative, with the prompt before it or without."""
    raw = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace").encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=4)))
    parts = [raw[start:end] for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    delta = collector()
    assert "".join(filter(None, texts(delta, [Piece(text=part) for part in parts]))) == delta.end().text == raw.decode()
    whole = collector("the prompt ", is_cumulative=True, repeats_prompt=True)
    so_far = [b"".join(parts[: number + 1]) for number in range(len(parts))]
    found = texts(whole, [Piece(text=b"the prompt " + part) for part in so_far])
    assert "".join(filter(None, found)) == whole.end().text == raw.decode()


def test_tokens_whose_texts_do_not_join_leave_all_to_the_last() -> None:
    split = [Token(1, "\ufffd", -1.0), Token(2, "\ufffd", -2.0)]
    found = collector().take(Piece(text="é".encode(), tokens=split), is_final=True)
    assert found == [Token(1, "", -1.0), Token(2, "é", -2.0)]


ONE = Token(7, "x", None)


@pytest.mark.parametrize(
    ("piece", "parameters", "reason", "count"),
    [
        (Piece(text=b"x", reason="length"), {}, "length", None),
        (Piece(text=b"x", reason="stop"), {}, "eos_token", None),
        (Piece(text=b"x", reason="stop"), {"stop": ["y"]}, None, None),
        (Piece(text=b"x", reason="stop", stop="y"), {"stop": ["y"]}, "stop_sequence", None),
        (Piece(text=b"x", reason="stop", stop=""), {"stop": ["y"]}, "eos_token", None),
        (Piece(text=b"", tokens=[ONE], reason="stop"), {"stop": ["x"]}, "stop_sequence", 1),
        (Piece(text=b"x", tokens=[ONE], reason="stop"), {"stop": ["y"]}, "eos_token", 1),
        (Piece(text=b"x", tokens=[ONE], reason="stop"), {"stop_token_ids": [7]}, "stop_sequence", 1),
        (Piece(text=b"x", output_tokens=3), {}, "length", 3),
        (Piece(text=b"x", output_tokens=2), {}, "eos_token", 2),
        (Piece(text=b"x", output_tokens=2), {"stop": ["y"]}, None, 2),
        (Piece(text=b"x"), {}, None, None),
        (Piece(text=b"x", reason="abort"), {}, None, None),
    ],
)
def test_why_it_ended_and_how_many_there_were(piece: Piece, parameters: dict[str, Any], reason: str | None, count: int | None) -> None:
    found = collector(**parameters)
    found.take(piece, is_final=True)
    assert (found.end().finish_reason, found.end().generated_tokens) == (reason, count)


def info(*inputs: str, batch: int = 0) -> ModelInfo:
    rows = [-1] if batch else []
    entries = [
        TensorInfo(name=name, datatype="BYTES" if "text" in name or "param" in name else "BOOL", shape=[*rows, 1]) for name in inputs
    ]
    outputs = [TensorInfo(name=TEXT, datatype="BYTES", shape=[-1])]
    return ModelInfo(name="m", versions=["1"], platform="", inputs=entries, outputs=outputs, is_decoupled=not batch, max_batch_size=batch)


def bytes_tensor(name: str, *values: bytes) -> Tensor:
    data = b"".join(struct.pack("<I", len(value)) + value for value in values)
    return Tensor(name=name, datatype="BYTES", shape=[len(values)], data=data)


def test_vllm_is_asked_for_what_the_caller_will_see() -> None:
    wishes = wishes_of({"max_new_tokens": 5, "temperature": 0.5, "stop": ["."], "seed": 3}, is_tgi=False)
    question = Question(is_stream=True, has_tokens=True, has_reason=True)
    inputs, parameters = profile_of(info(*VLLM_INPUTS)).request(info(*VLLM_INPUTS), ["hello"], wishes, question)
    found = {tensor.name: tensor.data for tensor in inputs}
    assert json.loads(found["sampling_parameters"][4:]) == {"temperature": 0.5, "max_tokens": 5, "seed": 3, "stop": ["."], "logprobs": 0}
    assert {name: found[name] for name in VLLM_INPUTS[2:]} == dict.fromkeys(VLLM_INPUTS[2:], b"\x01")
    assert (found[PROMPT], parameters) == (b"\x05\0\0\0hello", {})


@given(st.binary(max_size=60) | st.sampled_from([b"null", b"[[]]", b'[{"7": {}}]', b'[{"x": {"logprob": 1}}]', b"[" * 5000]))
def test_no_words_of_a_backend_break_the_front(text: bytes) -> None:
    outputs = {"logprobs": bytes_tensor("logprobs", text), TEXT: Tensor(name=TEXT, datatype="BYTES", shape=[1], data=text)}
    try:
        piece = profile_of(info(*VLLM_INPUTS)).piece(outputs, 0, 1)
    except InferenceFailed as failed:
        assert "cut off" in failed.text
        return
    assert piece.tokens is None or all(isinstance(token.id, int) for token in piece.tokens)


def test_an_answer_with_too_few_rows_is_an_error() -> None:
    """Not the first row's text for all."""
    profile = profile_of(info(PROMPT, "max_tokens", batch=4))
    rows = {TEXT: bytes_tensor(TEXT, b"a", b"b")}
    assert [profile.piece(rows, row, 2).text for row in range(2)] == [b"a", b"b"]
    with pytest.raises(InferenceFailed, match="3 prompts with 2 texts"):
        profile.piece(rows, 1, 3)
