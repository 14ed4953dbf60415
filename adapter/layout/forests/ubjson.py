"""
The end of a UBJSON document, from a value on that stands two objects deep.

UBJSON cannot be read backwards; from a key that is known to be one it can be read forwards, and that both objects and
the file end together proves the place. Iterative, and never makes more than it was given. Pure.

Source: the UBJSON specification, draft 12; XGBoost `src/common/json.cc` (`UBJWriter`: lengths as int64, arrays of one
type in the packed form).
"""

from __future__ import annotations

import struct
from typing import Any, Final

from adapter.layout.forests.forest import Unreliable

_NUMBERS: Final = {kind: struct.Struct(f">{form}") for kind, form in zip(b"iUIlLdD", "bBhiqfd", strict=True)}
_LENGTHS: Final = b"iUIlL"
_WORDS: Final = {ord("Z"): None, ord("T"): True, ord("F"): False}
_MOST_DEPTH = 64


def is_key(data: bytes, at: int, length: int) -> bool:
    """Whether a string of this length begins here, by the length before it."""
    return data[max(0, at - 9) : at] == b"L" + length.to_bytes(8, "big") or data[max(0, at - 2) : at] in (
        b"i" + bytes([length]),
        b"U" + bytes([length]),
    )


def rest(data: bytes, at: int, key: str) -> dict[str, Any]:
    """
    The inner object from the value of `key` on; the document must end with the outer one. Packed arrays are left out.

    Raises:
        Unreliable: it is something else.
    """
    try:
        return _Reader(data, at).rest(key)
    except (struct.error, IndexError, UnicodeDecodeError):
        raise Unreliable("its end is no UBJSON") from None


class _Reader:
    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at

    def rest(self, key: str) -> dict[str, Any]:
        inner: dict[str, Any] = {}
        stack: list[tuple[dict[str, Any] | list[Any], int | None]] = [({"": inner}, None), (inner, None)]
        name: str | None = key
        while stack:
            top, left = stack[-1]
            if left == 0 or (name is None and left is None and self._data[self._at] == ord("}" if isinstance(top, dict) else "]")):
                self._at += left is None
                stack.pop()
                continue
            if isinstance(top, dict) and name is None:
                name = self._text()
                if name in top:
                    raise Unreliable(f"it has the key {name[:40]!r} twice")
            value, opened = self._value()
            if isinstance(top, dict):
                top[str(name)] = value
            else:
                top.append(value)
            if left is not None:
                stack[-1] = (top, left - 1)
            name = None
            if opened is not None and isinstance(value, dict | list):
                stack.append((value, None if opened < 0 else opened))
                if len(stack) > _MOST_DEPTH:
                    raise Unreliable("its end is nested too deeply")
        if self._at != len(self._data):
            raise Unreliable("it goes on after its end")
        return inner

    def _value(self) -> tuple[Any, int | None]:
        """A value; of an object or array only its beginning, with the number of its members (-1: until its bracket)."""
        kind = self._byte()
        if kind in _WORDS:
            return _WORDS[kind], None
        if kind in b"SH":
            return self._text(), None
        if kind == ord("C"):
            return chr(self._byte()), None
        if kind in _NUMBERS:
            return self._number(kind), None
        if kind == ord("{") and self._data[self._at] not in b"$#":
            return {}, -1
        if kind == ord("["):
            return self._array()
        raise Unreliable("its end is no UBJSON of XGBoost")

    def _array(self) -> tuple[Any, int | None]:
        kind = None
        if self._data[self._at] == ord("$"):
            kind = self._data[self._at + 1]
            self._at += 2
        if self._data[self._at] != ord("#"):
            if kind is not None:
                raise Unreliable("its end is no UBJSON")
            return [], -1
        self._at += 1
        count = self._length()
        if kind is None:
            return [], count
        if kind not in _NUMBERS:
            raise Unreliable("its end is no UBJSON of XGBoost")
        self._skip(count * _NUMBERS[kind].size)
        return None, None

    def _text(self) -> str:
        length = self._length()
        start = self._at
        self._skip(length)
        return self._data[start : self._at].decode()

    def _length(self) -> int:
        kind = self._byte()
        if kind not in _LENGTHS:
            raise Unreliable("its end is no UBJSON")
        return int(self._number(kind))

    def _number(self, kind: int) -> int | float:
        form = _NUMBERS[kind]
        (value,) = form.unpack_from(self._data, self._at)
        self._at += form.size
        return value  # type: ignore[no-any-return] # struct's

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _skip(self, length: int) -> None:
        if not 0 <= length <= len(self._data) - self._at:
            raise Unreliable("its end is no UBJSON")
        self._at += length
