"""
Checksums that stores tell of whole objects: read from their answers, computed while bytes come, combined over parts.

CRCs are computed by `anycrc`, which is imported when a store first tells one. Where it is missing, CRC32 is zlib's, and the others
are not verified. What cannot be read is no checksum: an answer without one is
as good, so a refusal would protect nothing. Knows no store.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import structlog

from adapter.units import MIB

MOST_HASHED_BYTES = 64 * MIB
"""Objects with more are not hashed; their CRCs are computed, which costs a tenth of that at most."""
_MOST_TEXT = 200
"""Characters of a checksum: 64 bytes have 88 in base64."""
_Extend = Callable[[bytes | memoryview, int], int]

_log = structlog.stdlib.get_logger(__name__)


class _Crc(NamedTuple):
    """A cyclic redundancy check whose bits are reflected; it begins with all ones, and ends with all of them flipped."""

    bits: int
    polynomial: int


_CRCS: Mapping[str, _Crc] = {
    "crc64nvme": _Crc(64, 0x9A6C9329AC4BC9B5),
    "crc32c": _Crc(32, 0x82F63B78),
    "crc32": _Crc(32, 0xEDB88320),
}
"""Source: Amazon S3 User Guide, Checking object integrity; the NVM Command Set Specification, 5.2.1.3.4; RFC 3720, 12.1."""
_MODELS = {"crc64nvme": "CRC64-NVME", "crc32c": "CRC32-ISCSI", "crc32": "CRC32"}
"""As anycrc calls them."""
_HASH_BYTES: Mapping[str, int] = {"sha256": 32, "sha512": 64, "sha1": 20, "md5": 16}
ALGORITHMS = (*_CRCS, *_HASH_BYTES)
"""Those that are verified, the cheapest ones first."""


@dataclass(frozen=True)
class Checksum:
    """What a store says of all bytes of an object."""

    algorithm: str
    """One of `ALGORITHMS`."""
    value: bytes | None = None
    """None: there is one, which has to be asked for."""

    @property
    def is_combined(self) -> bool:
        """Whether those of parts make that of the whole."""
        return self.algorithm in _CRCS

    @property
    def name(self) -> str:
        """For people."""
        return self.algorithm.upper()


def read(algorithm: str, text: str | None) -> Checksum | None:
    """A checksum in base64, as all stores write them. None: it is something else, or of parts (`…-3`), or the algorithm is unknown."""
    algorithm, text = algorithm.lower(), (text or "").strip()
    crc = _CRCS.get(algorithm)
    length = crc.bits // 8 if crc else _HASH_BYTES.get(algorithm)
    if length is None or not text or len(text) > _MOST_TEXT:
        return None
    try:
        value = base64.b64decode(text, validate=True)
    except ValueError:
        return None
    return Checksum(algorithm, value) if len(value) == length else None


def readable(found: Iterable[tuple[str, str | None]]) -> tuple[Checksum, ...]:
    """Of algorithms and what is told of each: those that can be read, the cheapest ones first."""
    checksums = (read(algorithm, text) for algorithm, text in found)
    return tuple(sorted((each for each in checksums if each is not None), key=lambda each: ALGORITHMS.index(each.algorithm)))


class Running(Protocol):
    """A checksum that grows."""

    def add(self, chunk: bytes | memoryview) -> None:
        """The next bytes."""
        ...

    @property
    def value(self) -> bytes:
        """Of all that was added."""
        ...


def running(algorithm: str) -> Running | None:
    """A new one of nothing. None: this process cannot compute it."""
    if algorithm in _CRCS:
        extend = _extend(algorithm)
        return None if extend is None else _RunningCrc(extend, _CRCS[algorithm].bits // 8)
    try:
        return _RunningHash(algorithm)
    except ValueError:  # Python was built without, as for FIPS
        return None


def combined(algorithm: str, first: bytes, second: bytes, second_bytes: int) -> bytes:
    """The CRC of two parts, one behind the other, with the length of the second. As zlib's `crc32_combine`."""
    bits, polynomial = _CRCS[algorithm]
    shift, square = 1 << (bits - 1), 1 << (bits - 2)  # x**0 and x**1, in reflected bits
    exponent = 8 * second_bytes
    while exponent:
        if exponent & 1:
            shift = _product(square, shift, bits, polynomial)
        square = _product(square, square, bits, polynomial)
        exponent >>= 1
    moved = _product(shift, int.from_bytes(first, "big"), bits, polynomial)
    return (moved ^ int.from_bytes(second, "big")).to_bytes(bits // 8, "big")


def _product(left: int, right: int, bits: int, polynomial: int) -> int:
    """Of two polynomials, modulo the CRC's."""
    product, bit = 0, 1 << (bits - 1)
    while bit:
        if left & bit:
            product ^= right
        right = right >> 1 ^ polynomial if right & 1 else right >> 1
        bit >>= 1
    return product


class _RunningCrc:
    def __init__(self, extend: _Extend, length: int) -> None:
        self._extend = extend
        self._length = length
        self._crc = 0

    def add(self, chunk: bytes | memoryview) -> None:
        self._crc = self._extend(chunk, self._crc)

    @property
    def value(self) -> bytes:
        return self._crc.to_bytes(self._length, "big")


class _RunningHash:
    def __init__(self, algorithm: str) -> None:
        self._hash = hashlib.new(algorithm, usedforsecurity=False)

    def add(self, chunk: bytes | memoryview) -> None:
        self._hash.update(chunk)

    @property
    def value(self) -> bytes:
        return self._hash.digest()


@functools.cache
def _extend(algorithm: str) -> _Extend | None:
    try:
        return _compiled(algorithm)
    except ImportError as error:
        if algorithm == "crc32":
            return zlib.crc32
        _log.info("source.checksums_not_verified", algorithm=algorithm, error=f"no compiled code for it is installed ({error})")
        return None


def _compiled(algorithm: str) -> _Extend:
    """Slow, once: 15 ms and 2 MiB, which a process without such objects does not spend. Raises ImportError."""
    import anycrc  # noqa: PLC0415 - see above

    extend: _Extend = anycrc.Model(_MODELS[algorithm]).calc
    return extend
