"""
Checksums that stores tell of whole objects: read from their answers, computed while bytes come, combined over parts.

CRCs are computed by `anycrc`, which is imported when a store first tells one. Where it is missing, they are not verified.
What cannot be read is no checksum: an answer without one is as good, so a refusal would protect nothing. Knows no store.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import structlog

from adapter.units import MIB

MOST_HASHED_BYTES = 64 * MIB
"""Objects with more are not hashed; their CRCs are computed, which costs a tenth of that at most."""
_MOST_TEXT = 200
"""Characters of a checksum: 64 bytes have 88 in base64."""

_log = structlog.stdlib.get_logger(__name__)


class _Crc(NamedTuple):
    length: int
    """Bytes."""
    name: str
    """As anycrc calls it."""


class _Model(Protocol):
    """What `anycrc` has for one algorithm."""

    def calc(self, data: bytes | memoryview, crc: int) -> int:
        """The CRC of what `crc` is of, and the data behind it."""
        ...

    def combine(self, crc1: int, crc2: int, len2: int) -> int:
        """The CRC of two parts, one behind the other."""
        ...


_CRCS: Mapping[str, _Crc] = {
    "crc64nvme": _Crc(8, "CRC64-NVME"),
    "crc32c": _Crc(4, "CRC32-ISCSI"),
    "crc32": _Crc(4, "CRC32"),
}
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
    length = crc.length if crc else _HASH_BYTES.get(algorithm)
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
        model = _model(algorithm)
        return None if model is None else _RunningCrc(model, _CRCS[algorithm].length)
    try:
        return _RunningHash(algorithm)
    except ValueError:  # Python was built without, as for FIPS
        return None


def combined(algorithm: str, first: bytes, second: bytes, second_bytes: int) -> bytes:
    """The CRC of two parts, one behind the other, with the length of the second. Both are values of `running`."""
    model = _model(algorithm)
    if model is None:
        raise ValueError(f"{algorithm} cannot be computed here")
    whole = model.combine(int.from_bytes(first, "big"), int.from_bytes(second, "big"), second_bytes)
    return whole.to_bytes(len(first), "big")


class _RunningCrc:
    def __init__(self, model: _Model, length: int) -> None:
        self._model = model
        self._length = length
        self._crc = 0

    def add(self, chunk: bytes | memoryview) -> None:
        self._crc = self._model.calc(chunk, self._crc)

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
def _model(algorithm: str) -> _Model | None:
    """None: there is no compiled code for it. Slow, once: 15 ms and 2 MiB, which a process without such objects does not spend."""
    try:
        import anycrc  # noqa: PLC0415 - see above
    except ImportError as error:
        _log.info("source.checksums_not_verified", algorithm=algorithm, error=f"no compiled code for it is installed ({error})")
        return None
    model: _Model = anycrc.Model(_CRCS[algorithm].name)
    return model
