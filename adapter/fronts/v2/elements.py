"""
Elements of tensors: JSON → raw bytes as gRPC carries them, and raw bytes → JSON. Pure.

Raw is little endian and row-major; BYTES: each element after its length in 4 bytes. A number that its datatype cannot hold is refused,
where others wrap it around. Source of the types: the V2 predict protocol; of raw BYTES and BF16: Triton's binary data extension.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from adapter.fronts.answers import HttpError
from adapter.fronts.strings import joined, split

Array = npt.NDArray[Any]
BASE64 = "base64"
"""Value of the parameter `content_type` of a tensor whose BYTES are written so in JSON."""
_NUMBERS: Mapping[str, Any] = {
    "BOOL": np.bool_, "INT8": np.int8, "INT16": np.int16, "INT32": np.int32, "INT64": np.int64, "UINT8": np.uint8, "UINT16": np.uint16,
    "UINT32": np.uint32, "UINT64": np.uint64, "FP16": np.float16, "FP32": np.float32, "FP64": np.float64,
}  # fmt: skip
DATATYPES = frozenset({*_NUMBERS, "BF16", "BYTES"})
_FLOATS = frozenset({"FP16", "BF16", "FP32", "FP64"})


def element_bytes(datatype: str) -> int | None:
    """Bytes of one element; None for BYTES."""
    return None if datatype == "BYTES" else 2 if datatype == "BF16" else np.dtype(_NUMBERS[datatype]).itemsize


# ---- JSON → bytes


def packed(what: str, datatype: str, data: Any, count: int, *, is_base64: bool = False) -> bytes:
    """
    The elements of a JSON array, flat or nested, in raw form; `what` names the tensor in errors.

    Raises:
        HttpError: 400: not `count` elements, one of another type, or one that the datatype cannot hold.
    """
    flat = _flat(what, data)
    if len(flat) != count:
        raise HttpError(400, f"{what}: unable to parse 'data': Shape does not match true shape of 'data' field")
    kinds = set(map(type, flat))
    if datatype == "BYTES":
        return _packed_texts(what, flat, kinds, is_base64=is_base64)
    if datatype == "BOOL":
        _check(what, datatype, kinds, {bool}, "true or false")
        return np.array(flat, np.bool_).tobytes()
    if datatype in _FLOATS:
        _check(what, datatype, kinds, {int, float}, "numbers")
        return _packed_floats(what, datatype, flat)
    _check(what, datatype, kinds, {int}, "whole numbers")
    kind = np.dtype(_NUMBERS[datatype])
    limits = np.iinfo(kind)
    if flat and not (limits.min <= min(flat) and max(flat) <= limits.max):
        raise HttpError(400, f"{what}: {datatype} holds numbers from {limits.min} to {limits.max}, and 'data' has another one")
    return np.array(flat, kind).tobytes()


def _flat(what: str, data: Any) -> Sequence[Any]:
    if not isinstance(data, list):
        raise HttpError(400, f"{what}: 'data' must be an array")
    while data and isinstance(data[0], list):
        if set(map(type, data)) != {list}:
            raise HttpError(400, f"{what}: 'data' has arrays beside elements")
        data = list(chain.from_iterable(data))
    found: Sequence[Any] = data
    return found


def _check(what: str, datatype: str, kinds: set[type], allowed: set[type], words: str) -> None:
    if not kinds <= allowed:
        raise HttpError(400, f"{what}: {datatype} needs {words} in 'data'")


def _packed_floats(what: str, datatype: str, flat: Sequence[Any]) -> bytes:
    exact = np.array(flat, np.float64)  # never an integer too large for it: the parser gives none beyond 64 bits
    if datatype == "FP64":
        return exact.tobytes()
    with np.errstate(over="ignore"):
        rounded = _bf16(exact) if datatype == "BF16" else exact.astype(_NUMBERS[datatype])
    is_lost = np.isinf(_floats(datatype, rounded)) & np.isfinite(exact)
    if is_lost.any():
        raise HttpError(400, f"{what}: {datatype} cannot hold {exact[int(np.argmax(is_lost))]:g}")
    return rounded.tobytes()


def _bf16(exact: Array) -> Array:
    """The upper half of FP32's bits, rounded to even, once: what FP32 has lost stays in its last bit."""
    nearest = exact.astype(np.float32)
    bits = nearest.view(np.uint32) - (np.abs(nearest) > np.abs(exact))
    bits |= nearest != exact
    rounded = (bits.astype(np.uint64) + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(exact), 0x7FC0, rounded).astype(np.uint16)


def _floats(datatype: str, values: Array) -> Array:
    return (values.astype(np.uint32) << 16).view(np.float32) if datatype == "BF16" else values


def _packed_texts(what: str, flat: Sequence[Any], kinds: set[type], *, is_base64: bool) -> bytes:
    _check(what, "BYTES", kinds, {str}, "strings")
    encode: Callable[[str], bytes] = _decoded if is_base64 else str.encode
    try:
        return joined(map(encode, flat))
    except (ValueError, binascii.Error) as error:
        form = "base64" if is_base64 else "UTF-8"
        raise HttpError(400, f"{what}: 'data' has a string that is no {form}") from error


def _decoded(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


# ---- bytes → JSON


def as_json(what: str, datatype: str, raw: bytes, *, non_finite: str = "literal", is_base64: bool = False) -> bytes:
    """
    The elements as a flat JSON array; `non_finite` as V2_NON_FINITE.

    Raises:
        HttpError: 400: BYTES that are no UTF-8, without base64; 500: NaN or an infinity where that is an error, an unknown datatype.
    """
    if datatype == "BYTES":
        return orjson.dumps(_texts(what, raw, is_base64=is_base64))
    if datatype not in DATATYPES:
        raise HttpError(500, f"{what}: the datatype {datatype!r} cannot be written as JSON")
    kind = np.dtype(_NUMBERS.get(datatype, np.uint16))
    if len(raw) % kind.itemsize:
        raise HttpError(500, f"{what}: the model's answer ends in the middle of an element of {datatype}")
    values = _floats(datatype, np.frombuffer(raw, kind))
    text = orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY)
    if datatype in _FLOATS and not np.isfinite(values).all():
        text = _with_constants(what, text, values, non_finite)
    return text


def _with_constants(what: str, text: bytes, values: Array, non_finite: str) -> bytes:
    """Null is what orjson has written."""
    if non_finite == "error":
        raise HttpError(500, f"{what}: the model's answer has NaN or an infinity, which JSON cannot carry (V2_NON_FINITE)")
    if non_finite == "null":
        return text
    parts = text[1:-1].split(b",")
    for place in np.flatnonzero(~np.isfinite(values)):
        value = values[place]
        parts[place] = b"NaN" if np.isnan(value) else b"Infinity" if value > 0 else b"-Infinity"
    return b"[" + b",".join(parts) + b"]"


def _texts(what: str, raw: bytes, *, is_base64: bool) -> list[str]:
    parts = elements_of(what, raw)
    if is_base64:
        return [base64.b64encode(part).decode() for part in parts]
    try:
        return [part.decode() for part in parts]
    except UnicodeDecodeError:
        raise HttpError(
            400, f"{what}: the model's answer is no UTF-8: ask for this output with the parameter content_type=base64, or as binary data"
        ) from None


def elements_of(what: str, raw: bytes) -> list[bytes]:
    """The elements of BYTES. Raises HttpError 500: their lengths do not fit."""
    try:
        return split(raw)
    except ValueError as error:
        raise HttpError(500, f"{what}: {error}") from error
