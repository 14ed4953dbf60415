"""JSON ↔ raw elements: nothing is wrapped around, rounded to infinity or guessed."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.fronts.failures import HttpError
from adapter.fronts.tensors import as_json, packed

LIMITS = {f"{sign}INT{bits}": bits for sign in ("", "U") for bits in (8, 16, 32, 64)}


def text_of(datatype: str, raw: bytes, **options: Any) -> str:
    return as_json("output 'y'", datatype, raw, **options).decode()


@pytest.mark.parametrize("datatype", LIMITS)
def test_integers_reach_their_limits_and_no_further(datatype: str) -> None:
    low, high = (0, 2 ** LIMITS[datatype] - 1) if datatype[0] == "U" else (-(2 ** (LIMITS[datatype] - 1)), 2 ** (LIMITS[datatype] - 1) - 1)
    assert text_of(datatype, packed("x", datatype, [low, high], 2)) == f"[{low},{high}]"
    for wrong in (low - 1, high + 1, 1.0, True, "1", None, float("nan")):
        with pytest.raises(HttpError) as refused:
            packed("input 'x'", datatype, [wrong], 1)
        assert (refused.value.status, refused.value.text.startswith(f"input 'x': {datatype}")) == (400, True)


@pytest.mark.parametrize(("datatype", "largest"), [("FP16", 65504.0), ("BF16", 3.3895313892515355e38), ("FP32", 3.4028234663852886e38)])
def test_floats_that_would_become_infinite_are_refused(datatype: str, largest: float) -> None:
    raw = packed("x", datatype, [largest, -largest, math.inf, -math.inf], 4)
    assert json.loads(text_of(datatype, raw))[2:] == [math.inf, -math.inf]
    for wrong in (largest * 1.01, -largest * 1.01):
        with pytest.raises(HttpError, match="cannot hold"):
            packed("x", datatype, [wrong], 1)


def test_bf16_rounds_to_even_and_keeps_nan() -> None:
    raw = packed("x", "BF16", [1.0, 1.00390625, 1.01171875, math.nan], 4)
    assert struct.unpack("<4H", raw) == (0x3F80, 0x3F80, 0x3F82, 0x7FC0)


@given(st.floats(allow_nan=False, min_value=-(2.0**127), max_value=2.0**127, width=32))
def test_bf16_is_the_nearest_there_is(number: float) -> None:
    (bits,) = struct.unpack("<H", packed("x", "BF16", [number], 1))
    distances = [abs(struct.unpack("<f", struct.pack("<I", near << 16))[0] - number) for near in (max(bits - 1, 0), bits, bits + 1)]
    assert distances[1] == min(distance for distance in distances if not math.isnan(distance))


@given(st.lists(st.floats(width=32)))
def test_fp32_is_the_shortest_text_that_reads_back_the_same(values: list[float]) -> None:
    raw = np.array(values, np.float32).tobytes()
    read = json.loads(text_of("FP32", raw))
    assert packed("x", "FP32", read, len(values)) == raw or any(math.isnan(value) for value in values)
    assert text_of("FP32", np.array([0.1], np.float32).tobytes()) == "[0.1]"


def test_what_is_not_finite_is_written_as_triton_writes_it() -> None:
    raw = np.array([1, math.nan, math.inf, -math.inf], np.float32).tobytes()
    assert text_of("FP32", raw) == "[1.0,NaN,Infinity,-Infinity]"


def test_bytes_are_utf8_or_base64() -> None:
    assert text_of("BYTES", packed("x", "BYTES", ["é", ""], 2)) == '["é",""]'
    raw = packed("x", "BYTES", ["/w=="], 1, is_base64=True)
    assert raw == b"\x01\0\0\0\xff"
    assert text_of("BYTES", raw, is_base64=True) == '["/w=="]'
    for refuse in (
        lambda: text_of("BYTES", raw),
        lambda: packed("x", "BYTES", ["!"], 1, is_base64=True),
        lambda: packed("x", "BYTES", [1], 1),
    ):
        with pytest.raises(HttpError) as refused:
            refuse()
        assert refused.value.status == 400


@pytest.mark.parametrize(
    ("datatype", "raw"),
    [("BYTES", b"\x01"), ("BYTES", b"\x05\0\0\0ab"), ("FP32", b"abc"), ("BF16", b"abc"), ("INT64", b"abcd"), ("FP8", b"a")],
)
def test_an_answer_of_a_model_that_lies_is_its_fault(datatype: str, raw: bytes) -> None:
    with pytest.raises(HttpError, match="'y'") as refused:
        text_of(datatype, raw)
    assert refused.value.status == 500


def test_nested_and_flat_data_are_the_same() -> None:
    assert packed("x", "INT32", [[1, 2], [3, 4]], 4) == packed("x", "INT32", [1, 2, 3, 4], 4)
    assert packed("x", "FP32", [], 0) == b""
    for wrong in ([1, [2]], [[1], 2], "12", None, {"a": 1}, [1, 2, 3]):
        with pytest.raises(HttpError):
            packed("x", "INT32", wrong, 2)
