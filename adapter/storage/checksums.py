"""
Checksums that stores tell of whole objects: read from their answers, computed while bytes come, combined over parts.

CRCs are computed by `anycrc`, which is imported when a store first tells one. Where it is missing, they are not verified.
What cannot be read is no checksum: an answer without one is as good, so a refusal would protect nothing. Knows no store.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import structlog

from adapter.units import MIB

MOST_HASHED_BYTES = 64 * MIB
"""Objects with more are not hashed; their CRCs are computed, which costs a tenth of that at most."""
_LENGTHS = {"crc64nvme": 8, "crc32c": 4, "crc32": 4, "sha256": 32, "sha512": 64, "sha1": 20, "md5": 16}
"""Bytes of each algorithm."""
ALGORITHMS = tuple(_LENGTHS)
"""Those that are verified, the cheapest ones first."""
_CRCS = {"crc64nvme": "CRC64-NVME", "crc32c": "CRC32-ISCSI", "crc32": "CRC32"}
"""As anycrc calls them."""

_log = structlog.stdlib.get_logger(__name__)


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


def read(algorithm: str, text: str | None) -> Checksum | None:
    """A checksum in base64, as all stores write them. None: it is something else, or of parts (`…-3`), or the algorithm is unknown."""
    algorithm, text = algorithm.lower(), (text or "").strip()
    if algorithm not in _LENGTHS:
        return None
    try:
        value = base64.b64decode(text, validate=True)
    except ValueError:
        return None
    return Checksum(algorithm, value) if len(value) == _LENGTHS[algorithm] else None


def readable(found: Iterable[tuple[str, str | None]]) -> tuple[Checksum, ...]:
    """Of algorithms and what is told of each: those that can be read, the cheapest ones first."""
    checksums = (read(algorithm, text) for algorithm, text in found)
    return tuple(sorted((each for each in checksums if each is not None), key=lambda each: ALGORITHMS.index(each.algorithm)))


class _RunningCrc:
    def __init__(self, algorithm: str) -> None:
        self._model = _model(algorithm)
        self._length = _LENGTHS[algorithm]
        self._crc = 0

    def update(self, chunk: bytes | memoryview, /) -> None:
        self._crc = self._model.calc(chunk, self._crc)

    def digest(self) -> bytes:
        return self._crc.to_bytes(self._length, "big")


Running: TypeAlias = "_RunningCrc | hashlib._Hash"
"""A checksum that grows."""


def running(algorithm: str) -> Running | None:
    """A new one of nothing. None: this process cannot compute it."""
    if algorithm in _CRCS:
        return _RunningCrc(algorithm) if _model(algorithm) else None
    try:
        return hashlib.new(algorithm, usedforsecurity=False)
    except ValueError:  # Python was built without, as for FIPS
        return None


def combined(algorithm: str, first: bytes, second: bytes, second_bytes: int) -> bytes:
    """The CRC of two parts, one behind the other, with the length of the second. Both are digests of `running`."""
    whole = _model(algorithm).combine(int.from_bytes(first, "big"), int.from_bytes(second, "big"), second_bytes)
    return int(whole).to_bytes(len(first), "big")


@functools.cache
def _model(algorithm: str) -> Any:
    """
    What anycrc has for it. None: there is no compiled code for it.

    Slow, once: 15 ms and 2 MiB, which a process without such objects does not spend.
    """
    try:
        import anycrc  # noqa: PLC0415 - see above
    except ImportError as error:
        _log.info("source.checksums_not_verified", algorithm=algorithm, error=f"no compiled code for it is installed ({error})")
        return None
    return anycrc.Model(_CRCS[algorithm])
