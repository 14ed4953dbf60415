"""
The end of a UBJSON document, from a value on that stands two objects deep.

UBJSON cannot be read backwards; from a key it can be read forwards, until both objects and the file end together. Never
makes more than it was given. Pure.

Source: the UBJSON specification, draft 12; XGBoost `src/common/json.cc` (`UBJWriter`: lengths as int64, arrays of one
type in the packed form).
"""

from __future__ import annotations

import struct
from io import BytesIO
from typing import Any, Final

_NUMBERS: Final = {kind.encode(): struct.Struct(f">{form}") for kind, form in zip("iUIlLdD", "bBhiqfd", strict=True)}
_WORDS: Final = {b"Z": None, b"T": True, b"F": False}
_MOST_DEPTH = 64


def key_at(data: bytes, key: bytes) -> int:
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
    reader = _Reader(data[at:])
    try:
        inner = reader.members({key: reader.value(0)}, 0)
        reader.members({}, 0)
    except (struct.error, UnicodeDecodeError) as error:
        raise ValueError from error
    if reader.take(1):
        raise ValueError
    return inner


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._file = BytesIO(data)
        self._size = len(data)

    def take(self, count: int) -> bytes:
        """So many bytes, or as many as there are."""
        if count < 0:
            raise ValueError
        return self._file.read(min(count, self._size))

    def members(self, found: dict[str, Any], depth: int) -> dict[str, Any]:
        """Those of an object until its brace, beside those that are found."""
        if depth > _MOST_DEPTH:
            raise ValueError
        while (kind := self.take(1)) != b"}":
            name = self._text(kind)
            if name in found:
                raise ValueError
            found[name] = self.value(depth)
        return found

    def value(self, depth: int) -> Any:
        kind = self.take(1)
        if kind in _WORDS:
            return _WORDS[kind]
        if kind in _NUMBERS:
            return self._number(kind)
        if kind in (b"S", b"H"):
            return self._text(self.take(1))
        if kind == b"C":
            return self.take(1).decode()
        if kind == b"{":
            return self.members({}, depth + 1)
        if kind == b"[" and depth < _MOST_DEPTH:
            return self._array(depth + 1)
        raise ValueError

    def _array(self, depth: int) -> None:
        """Step over an array."""
        kind = self.take(1)
        packed = self.take(1) if kind == b"$" else b""
        if packed:
            kind = self.take(1)
        if kind == b"#":
            count = self._number(self.take(1))
            if packed:
                self._file.seek(self._left(count * _NUMBERS[packed].size if packed in _NUMBERS else -1), 1)
            else:
                for _ in range(self._left(count)):
                    self.value(depth)
            return
        self._file.seek(-1, 1)
        while self.take(1) != b"]":
            self._file.seek(-1, 1)
            self.value(depth)

    def _text(self, kind: bytes) -> str:
        return self.take(self._left(self._number(kind))).decode()

    def _left(self, count: Any) -> int:
        """So many bytes, which are there."""
        if not isinstance(count, int) or not 0 <= count <= self._size - self._file.tell():
            raise ValueError
        return count

    def _number(self, kind: bytes) -> Any:
        if kind not in _NUMBERS:
            raise ValueError
        (value,) = _NUMBERS[kind].unpack(self.take(_NUMBERS[kind].size))
        return value
