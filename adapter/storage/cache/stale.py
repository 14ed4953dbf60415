"""
A model whose store is away, as the artifact has it that this very reader was confirmed for last.

Only who has listed and read it with the same config gets it; what the store would say now is not known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any

import structlog

from adapter.errors import SourceUnavailable
from adapter.model import Artifact, SourceFile
from adapter.storage.cache.cache import Cache
from adapter.storage.cache.identity import FILES, SCHEMA
from adapter.storage.cache.record import ArtifactRecord
from adapter.storage.cache.table import Entry
from adapter.storage.search import Found, check_readable
from adapter.telemetry.metrics import CACHE_REQUESTS, CACHE_SAVED_BYTES
from adapter.volume.trees import Ends
from adapter.waits import Waits

_STALE_SECONDS = 5.0
"""Longest silence in a listing where the cache can stand in for a store that is away; never more than a third of the budget."""
_TICK_SECONDS = 0.01

_log = structlog.stdlib.get_logger(__name__)


class StaleModel:
    """Implements `StoredModel`."""

    def __init__(self, cache: Cache, entry: Entry, record: ArtifactRecord, cause: str, waits: Waits) -> None:
        self.listing = record.listing
        self._cache = cache
        self._entry = entry
        self._files = {file.path: file for file in record.files}
        self._cause = cause
        self._waits = waits

    async def read(self, file: SourceFile) -> bytes:
        """As `StoredModel`."""
        check_readable(file, self.listing.origin)
        kept = self._files.get(SCHEMA if file == self.listing.schema else f"{FILES}/{file.path}")
        content = None if kept is None else await self._cache.read(self._entry, kept)
        if content is None:
            raise SourceUnavailable(self._cause)
        return content

    async def fetch(self, files: tuple[SourceFile, ...]) -> Artifact:
        """As `StoredModel`."""
        has_all = all(f"{FILES}/{file.path}" in self._files for file in files)
        artifact = await self._cache.reclaim(str(self._entry.key)) if has_all else None
        if artifact is None:
            raise SourceUnavailable(self._cause)
        CACHE_REQUESTS.labels("stale").inc()
        CACHE_SAVED_BYTES.inc(self._entry.size_bytes)
        return artifact

    async def ends(self, artifact: Artifact, files: tuple[SourceFile, ...]) -> Mapping[SourceFile, Ends]:
        """As `StoredModel`."""
        return await self._cache.ends(artifact, files, self._waits)


async def stale_model(cache: Cache, entry: Entry, cause: str, waits: Waits) -> StaleModel | None:
    """The model of this artifact, and why its store is not asked; None: the artifact cannot be used."""
    record = await cache.recalled(entry)
    if record is None:
        return None
    _log.warning("cache.stale", model=record.listing.origin, cause=cause)
    return StaleModel(cache, entry, record, cause, waits)


async def found_soon(finding: Coroutine[Any, Any, Found], waits: Waits) -> tuple[str, Found | None]:
    """
    What the store has, if the store is not silent for long: something else can be given.

    Returns:
        Why it did not tell, and nothing; or what was found. Raises as `open`, where the store is not away.
    """
    seconds = max(min(_STALE_SECONDS, waits.left_seconds() / 3), 0.0)
    obstacle: str | None = None
    bound = asyncio.timeout(None)
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle

    def look() -> None:
        nonlocal obstacle, timer
        silent_seconds = waits.silent_seconds()
        if silent_seconds < seconds:  # a long listing has many answers
            timer = loop.call_later(max(seconds - silent_seconds, _TICK_SECONDS), look)
            return
        obstacle = waits.words()
        bound.reschedule(0)

    timer = loop.call_later(seconds, look)
    try:
        async with bound:
            return "", await finding
    except SourceUnavailable as error:
        if not error.can_pass:
            raise
        return error.text, None
    except TimeoutError:
        if not bound.expired():
            raise
        return f"storage has been silent for {seconds:.3g} s: {obstacle}", None
    finally:
        timer.cancel()
