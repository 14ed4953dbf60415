"""`load` of compose: values of the command line as the bytes that Triton reads, in a shape that the model takes."""

from __future__ import annotations

import numpy as np
import pytest

from deploy.compose import load

DTYPES = {
    "BOOL": "?", "INT8": "<i1", "INT16": "<i2", "INT32": "<i4", "INT64": "<i8", "UINT8": "<u1", "UINT16": "<u2", "UINT32": "<u4",
    "UINT64": "<u8", "FP16": "<f2", "FP32": "<f4", "FP64": "<f8",
}  # fmt: skip
"""Triton's types as numpy's."""


@pytest.mark.parametrize("datatype", load.FORMATS)
def test_numbers_are_those_of_numpy(datatype: str) -> None:
    expected = np.array([1, 0, 1], dtype=DTYPES[datatype])

    packed = load._packed(["1", "0", "1"], datatype, "x")

    assert packed == expected.tobytes()
    assert load._unpacked(packed, datatype) == expected.tolist()


def test_texts_have_their_length_before_them() -> None:
    packed = load._packed(["ä", "", "bc"], "BYTES", "x")

    assert packed == b"\x02\0\0\0\xc3\xa4\0\0\0\0\x02\0\0\0bc"
    assert load._unpacked(packed, "BYTES") == ["ä", "", "bc"]


@pytest.mark.parametrize(("value", "datatype"), [("z", "FP32"), ("1.5", "INT32"), ("300", "UINT8"), ("-1", "UINT64"), ("1e9", "FP16")])
def test_what_is_no_such_number_is_named(value: str, datatype: str) -> None:
    with pytest.raises(ValueError, match=f"^x: '{value}' is no {datatype}$"):
        load._packed([value], datatype, "x")
