"""
Elements of tensors: JSON → raw bytes as gRPC carries them, and raw bytes → numbers, texts and JSON. Pure.

A number that its datatype cannot hold is refused, where others wrap it around. Source of BF16: Triton's binary data extension.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from adapter.fronts.failures import HttpError
from adapter.inference import DATATYPES, joined, split

Array = npt.NDArray[Any]
BASE64 = "base64"
"""Value of the parameter `content_type` of a tensor whose BYTES are written so in JSON."""
_SLICE = 16 * 1024
"""Elements that are packed or written at once: meanwhile no other thread runs, the event loop's neither."""
_FLOATS = frozenset({"FP16", "BF16", "FP32", "FP64"})
_ALLOWED: Mapping[str, tuple[set[type], str]] = {
    **{datatype: ({int, float}, f"{datatype} needs numbers in 'data'") for datatype in _FLOATS},
    "BOOL": ({bool}, "attempt to access JSON non-boolean as boolean"),
    "BYTES": ({str}, "attempt to access JSON non-string as string"),
}
"""
Which elements of JSON a datatype can have, where these are no whole numbers; and words for others. Source of those of BOOL and BYTES:
Triton's own tests, `generate_endpoint_test.py`.
"""


def element_bytes(datatype: str) -> int | None:
    """Bytes of one element; None for BYTES."""
    return None if datatype == "BYTES" else _kind(datatype).itemsize


def _kind(datatype: str) -> np.dtype[Any]:
    return np.dtype(f"<{DATATYPES[datatype][0]}")


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
    slices = (flat[start : start + _SLICE] for start in range(0, count, _SLICE))
    return b"".join(_packed_slice(what, datatype, part, is_base64=is_base64) for part in slices)


def _packed_slice(what: str, datatype: str, flat: Sequence[Any], *, is_base64: bool) -> bytes:
    allowed, words = _ALLOWED.get(datatype, ({int}, f"{datatype} needs whole numbers in 'data'"))
    if not set(map(type, flat)) <= allowed:
        raise HttpError(400, f"{what}: {words}")
    if datatype == "BYTES":
        return _packed_texts(what, flat, is_base64=is_base64)
    if datatype in _FLOATS:
        return _packed_floats(what, datatype, flat)
    kind = _kind(datatype)
    if datatype != "BOOL":
        limits = np.iinfo(kind)
        if not (limits.min <= min(flat) and max(flat) <= limits.max):
            raise HttpError(400, f"{what}: {datatype} holds numbers from {limits.min} to {limits.max}, and 'data' has another one")
    return np.array(flat, kind).tobytes()


def _flat(what: str, data: Any) -> list[Any]:
    if not isinstance(data, list):
        raise HttpError(400, f"{what}: 'data' must be an array")
    flat: list[Any] = data
    while flat and isinstance(flat[0], list):
        if set(map(type, flat)) != {list}:
            raise HttpError(400, f"{what}: 'data' has arrays beside elements")
        flat = list(chain.from_iterable(flat))
    return flat


def _packed_floats(what: str, datatype: str, flat: Sequence[Any]) -> bytes:
    exact = np.array(flat, np.float64)  # never an integer too large for it: the parser gives none beyond 64 bits
    with np.errstate(over="ignore"):
        rounded = _bf16(exact) if datatype == "BF16" else exact.astype(_kind(datatype))
    is_lost = np.isinf(_floats(datatype, rounded)) & np.isfinite(exact)
    if is_lost.any():
        raise HttpError(400, f"{what}: {datatype} cannot hold {exact[int(np.argmax(is_lost))]:g}")
    return rounded.tobytes()


def _bf16(exact: Array) -> Array:
    """The upper half of FP32's bits, rounded to even."""
    bits = exact.astype(np.float32).view(np.uint32)
    rounded = (bits.astype(np.uint64) + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(exact), 0x7FC0, rounded).astype(np.uint16)


def _floats(datatype: str, values: Array) -> Array:
    return (values.astype(np.uint32) << 16).view(np.float32) if datatype == "BF16" else values


def _packed_texts(what: str, flat: Sequence[Any], *, is_base64: bool) -> bytes:
    encode: Callable[[str], bytes] = partial(base64.b64decode, validate=True) if is_base64 else str.encode
    try:
        return joined(map(encode, flat))
    except (ValueError, binascii.Error) as error:
        form = "base64" if is_base64 else "UTF-8"
        raise HttpError(400, f"{what}: 'data' has a string that is not {form}") from error


# ---- bytes → numbers, texts and JSON


def numbers(datatype: str, raw: bytes) -> Array:
    """The elements of any other datatype than BYTES. What is left of one at the end is left out."""
    kind = _kind(datatype)
    return _floats(datatype, np.frombuffer(raw, kind, len(raw) // kind.itemsize))


def as_json(what: str, datatype: str, raw: bytes, *, is_base64: bool = False) -> bytes:
    """
    The elements as a flat JSON array; NaN and infinities as Triton writes them.

    Raises:
        HttpError: 400: BYTES that are no UTF-8, without base64; 500: the model's answer cannot be such elements.
    """
    if datatype == "BYTES":
        return orjson.dumps(_texts(what, raw, is_base64=is_base64))
    if datatype not in DATATYPES:
        raise HttpError(500, f"{what}: the datatype {datatype!r} cannot be written as JSON")
    if len(raw) % _kind(datatype).itemsize:
        raise HttpError(500, f"{what}: the model's answer ends in the middle of an element of {datatype}")
    values = numbers(datatype, raw)
    if datatype not in _FLOATS or np.isfinite(values).all():
        slices = (values[start : start + _SLICE] for start in range(0, len(values), _SLICE))
        return b"[%s]" % b",".join(orjson.dumps(part, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1] for part in slices)
    return json.dumps(values.tolist(), separators=(",", ":")).encode()


def _texts(what: str, raw: bytes, *, is_base64: bool) -> list[str]:
    try:
        parts = split(raw)
    except ValueError as error:
        raise HttpError(500, f"{what}: {error}") from error
    if is_base64:
        return [base64.b64encode(part).decode() for part in parts]
    try:
        return [part.decode() for part in parts]
    except UnicodeDecodeError:
        raise HttpError(
            400, f"{what}: the model's answer is no UTF-8: ask for this output with the parameter content_type=base64, or as binary data"
        ) from None
