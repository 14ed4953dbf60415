"""ModelMesh puts the id of a model into a request without knowing the message: a splice of its bytes. Source: `ProtoSplicer.java`."""

from __future__ import annotations

from collections.abc import Sequence

VARINT, FIXED64, LENGTH_DELIMITED, FIXED32 = 0, 1, 2, 5
LONGEST_VARINT = 10


def inject(message: bytes, model_id: str, path: Sequence[int] = (1,)) -> bytes:
    """
    The message with this id at the path of field numbers.

    The first occurrence is replaced, and only that one; a field that is absent is appended.

    Raises:
        ValueError: these bytes are no message, or the field is no text and no message.
    """
    return _put(message, model_id.encode(), path)


def _put(message: bytes, value: bytes, path: Sequence[int]) -> bytes:
    field, *rest = path
    tag = _varint(field << 3 | LENGTH_DELIMITED)
    position = 0
    while position < len(message):
        key, begin = _read(message, position)
        end = _end(message, key & 7, begin)
        if key >> 3 == field:
            if key & 7 != LENGTH_DELIMITED:
                raise ValueError(f"field {field} is no text and no message")
            length, content = _read(message, begin)
            new = _put(message[content : content + length], value, rest) if rest else value
            return message[:position] + tag + _varint(len(new)) + new + message[end:]
        position = end
    new = _put(b"", value, rest) if rest else value
    return message + tag + _varint(len(new)) + new


def _end(message: bytes, kind: int, position: int) -> int:
    """Where the value that begins here ends."""
    if kind == VARINT:
        end = _read(message, position)[1]
    elif kind == LENGTH_DELIMITED:
        length, begin = _read(message, position)
        end = begin + length
    elif kind in (FIXED64, FIXED32):
        end = position + (8 if kind == FIXED64 else 4)
    else:
        raise ValueError(f"wire type {kind} is not known")
    if end > len(message):
        raise ValueError("the message is cut off")
    return end


def _read(message: bytes, position: int) -> tuple[int, int]:
    """A varint, and where it ends."""
    value = 0
    for number, byte in enumerate(message[position : position + LONGEST_VARINT]):
        value |= (byte & 127) << 7 * number
        if byte < 128:
            return value, position + number + 1
    raise ValueError("the message is cut off")


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])
