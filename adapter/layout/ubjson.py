"""
The end of a UBJSON document, from a value on that stands two objects deep.

UBJSON cannot be read backwards; from a key it can be read forwards, until both objects and the file end together. Never
makes more than it was given. Pure.

Source: the UBJSON specification, draft 12; XGBoost `src/common/json.cc` (`UBJWriter`: lengths as int64, arrays of one
type in the packed form).
"""

from __future__ import annotations

import struct
from typing import Any, Final

_NUMBERS: Final = {ord(kind): struct.Struct(f">{form}") for kind, form in zip("iUIlLdDC", "bBhiqfdc", strict=True)}
_WORDS: Final = {ord("Z"): None, ord("T"): True, ord("F"): False}
_MOST_DEPTH = 64


def value_of(data: bytes, key: bytes) -> int:
    """Where the value of the last such key begins, which has its length before it; -1 where it is none."""
    at = data.rfind(key)
    lengths = (b"L" + len(key).to_bytes(8, "big"), b"i" + bytes([len(key)]), b"U" + bytes([len(key)]))
    return at + len(key) if at >= 0 and data[:at].endswith(lengths) else -1


def rest(data: bytes, at: int, key: str) -> dict[str, Any]:
    """
    The inner object from the value of `key` on; the document must end with the outer one. Items of arrays are left out.

    Raises:
        ValueError: it is something else.
    """
    reader = _Reader(data, at)
    try:
        inner = reader.members({key: reader.value(0)}, 0)
        reader.members({}, 0)
    except (struct.error, IndexError) as error:
        raise ValueError from error
    if reader.at != len(data):
        raise ValueError
    return inner


class _Reader:
    """At the place `at`, which each function moves behind what it has read."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data = data
        self.at = at

    def members(self, found: dict[str, Any], depth: int) -> dict[str, Any]:
        """Those of an object until its brace, beside those that are found."""
        while not self._accept("}"):
            name = self._text()
            if name in found:
                raise ValueError
            found[name] = self.value(depth)
        return found

    def value(self, depth: int) -> Any:
        kind = self._byte()
        if kind in _WORDS:
            return _WORDS[kind]
        if kind in _NUMBERS:
            return self._number(kind)
        if kind in b"SH":
            return self._text()
        if depth < _MOST_DEPTH and kind == ord("{"):
            return self.members({}, depth + 1)
        if depth < _MOST_DEPTH and kind == ord("["):
            return self._array(depth + 1)
        raise ValueError

    def _array(self, depth: int) -> None:
        if self._accept("$"):
            size = _NUMBERS[kind].size if (kind := self._byte()) in _NUMBERS else -1
            self._accept("#")
            self._skip(self._number(self._byte()) * size)
        elif self._accept("#"):
            for _ in range(self._number(self._byte())):  # each takes a byte at least, so the end of the file is the latest end
                self.value(depth)
        else:
            while not self._accept("]"):
                self.value(depth)

    def _text(self) -> str:
        return self._skip(self._number(self._byte())).decode()

    def _number(self, kind: int) -> Any:
        if kind not in _NUMBERS:
            raise ValueError
        (value,) = _NUMBERS[kind].unpack(self._skip(_NUMBERS[kind].size))
        return value

    def _accept(self, mark: str) -> bool:
        is_there = self.data[self.at] == ord(mark)
        self.at += is_there
        return is_there

    def _byte(self) -> int:
        return self._skip(1)[0]

    def _skip(self, length: Any) -> bytes:
        if not (isinstance(length, int) and 0 <= length <= len(self.data) - self.at):
            raise ValueError
        self.at += length
        return self.data[self.at - length : self.at]
