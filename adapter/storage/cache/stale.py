"""
A model whose store is away, as the artifact has it that this very reader was confirmed for last.

Only who has listed and read it with the same config gets it; what the store would say now, nobody knows.
"""

from __future__ import annotations

import structlog

from adapter.errors import SourceUnavailable
from adapter.model import Artifact, Listing, SourceFile
from adapter.storage.cache.cache import Cache
from adapter.storage.cache.identity import FILES, SCHEMA
from adapter.storage.cache.shelf import Entry
from adapter.storage.search import check_readable

_log = structlog.stdlib.get_logger(__name__)


class StaleModel:
    """Implements `StoredModel`."""

    def __init__(self, cache: Cache, entry: Entry, listing: Listing, cause: str) -> None:
        self.listing = listing
        self._cache = cache
        self._entry = entry
        self._cause = cause

    async def read(self, file: SourceFile) -> bytes:
        """As `StoredModel`."""
        check_readable(file, self.listing.origin)
        path = SCHEMA if file == self.listing.schema else f"{FILES}/{file.path}"
        content = await self._cache.read(self._entry, path)
        if content is None:
            raise SourceUnavailable(self._cause)
        return content

    async def fetch(self, files: tuple[SourceFile, ...]) -> Artifact:
        """As `StoredModel`."""
        artifact = await self._cache.take_stale(self._entry, files)
        if artifact is None:
            raise SourceUnavailable(self._cause)
        return artifact


async def stale_model(cache: Cache, entry: Entry, cause: str) -> StaleModel | None:
    """The model of this artifact, and why nobody asks its store; None: the artifact cannot be used."""
    listing = await cache.recalled(entry)
    if listing is None:
        return None
    _log.warning("cache.stale", model=listing.origin, cause=cause)
    return StaleModel(cache, entry, listing, cause)
