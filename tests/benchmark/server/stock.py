"""
Objects that nobody has written: names and sizes from a command line, content from one block of bytes.

Byte `i` of an object is byte `(offset + i) % BLOCK_BYTES` of the block, where `offset` follows from the key. The block is
random with a fixed seed, and its length has no small divisor, so a range that lands in the wrong place is seen.
"""

from __future__ import annotations

import functools
import hashlib
import random
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

BLOCK_BYTES = 64 * 1024 * 1024 + 4099
UNITS = {"KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "": 1}
PAGE_OBJECTS = 1000


@functools.cache
def block() -> bytes:
    """The bytes that all objects are made of."""
    return random.Random(11).randbytes(BLOCK_BYTES)


@dataclass(frozen=True)
class Item:
    """One object."""

    key: str
    size_bytes: int

    @functools.cached_property
    def offset(self) -> int:
        """Where its first byte is in the block."""
        return zlib.crc32(self.key.encode()) % BLOCK_BYTES

    @functools.cached_property
    def etag(self) -> str:
        """Of the form that an object in parts has, so that no client takes it for an MD5."""
        return f"{hashlib.sha256(f'{self.key} {self.size_bytes}'.encode()).hexdigest()[:32]}-1"

    @functools.cached_property
    def generation(self) -> str:
        """As Google numbers versions."""
        return str(1_700_000_000_000_000 + zlib.crc32(self.etag.encode()))

    def spans(self, start: int, length: int) -> Iterator[tuple[int, int]]:
        """Pieces of the block, as (offset, length), that are this range of the object."""
        while length > 0:
            at = (self.offset + start) % BLOCK_BYTES
            count = min(length, BLOCK_BYTES - at)
            yield at, count
            start, length = start + count, length - count

    def content(self, start: int = 0, length: int | None = None) -> bytes:
        """What a client must have got."""
        length = self.size_bytes - start if length is None else length
        return b"".join(block()[at : at + count] for at, count in self.spans(start, length))


@functools.cache
def checksum(item: Item, algorithm: str) -> bytes:
    """Of the whole object. Slow for a large one, once. Raises ImportError: nothing here computes it."""
    chunks = (memoryview(block())[at : at + count] for at, count in item.spans(0, item.size_bytes))
    if algorithm not in ("crc32", "crc32c", "crc64nvme"):
        found = hashlib.new(algorithm, usedforsecurity=False)
        for chunk in chunks:
            found.update(chunk)
        return found.digest()
    crc = 0
    for chunk in chunks:
        if algorithm == "crc32":
            crc = zlib.crc32(chunk, crc)
        else:
            import anycrc  # noqa: PLC0415 - asked for by those alone who want it

            crc = anycrc.Model("CRC32-ISCSI" if algorithm == "crc32c" else "CRC64-NVME").calc(chunk, crc)
    return crc.to_bytes(8 if algorithm == "crc64nvme" else 4, "big")


@dataclass(frozen=True)
class Page:
    """A part of a listing."""

    items: tuple[Item, ...]
    folders: tuple[str, ...]
    next_after: str | None
    """The next page begins behind it; None after the last one."""


class Stock:
    """All objects, in the order of their keys."""

    def __init__(self, items: Iterable[Item]) -> None:
        self.items = {item.key: item for item in sorted(items, key=lambda item: item.key)}
        self._keys = list(self.items)

    def page(self, prefix: str, delimiter: str = "", after: str = "") -> Page:
        """Keys that begin with the prefix and lie behind `after`; with a delimiter those that have it go into folders."""
        at = max(bisect_left(self._keys, prefix), bisect_right(self._keys, after) if after else 0)
        items: list[Item] = []
        folders: list[str] = []
        last = ""
        while at < len(self._keys) and self._keys[at].startswith(prefix):
            if len(items) + len(folders) == PAGE_OBJECTS:
                return Page(tuple(items), tuple(folders), last)
            key = self._keys[at]
            end = key.find(delimiter, len(prefix)) if delimiter else -1
            if end < 0:
                items.append(self.items[key])
                last, at = key, at + 1
            else:
                folders.append(key[: end + len(delimiter)])
                last = folders[-1] + "\U0010ffff"
                at = bisect_left(self._keys, last)
        return Page(tuple(items), tuple(folders), None)


def size_of(text: str) -> int:
    """Bytes of `64KiB`, `2GiB`, `10`. Raises ValueError."""
    number = text.rstrip("KMGiB")
    return int(float(number) * UNITS[text[len(number) :]])


def items_of(spec: str) -> list[Item]:
    """
    Objects of `PATH=SIZE`, or of `PATH=COUNTxSIZE` where `{}` in the path becomes a number.

    Raises ValueError, KeyError: the text is something else.
    """
    path, _, amount = spec.partition("=")
    count, is_many, size = amount.rpartition("x")
    if not is_many:
        return [Item(path, size_of(amount))]
    return [Item(path.replace("{}", f"{number:05}"), size_of(size)) for number in range(int(count))]
