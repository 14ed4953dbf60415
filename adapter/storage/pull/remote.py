"""A model in a bucket: listed, and ready to be read or pulled; what the cache has of it is neither read nor pulled again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from adapter.ends import Ends
from adapter.model import Artifact, Listing, SourceFile
from adapter.ports import Wanted
from adapter.storage.bucket import Bucket, Read, StoredObject
from adapter.storage.cache.cache import Cache
from adapter.storage.cache.cache import Wanted as WantedArtifact
from adapter.storage.cache.identity import FILES, SCHEMA, Identity
from adapter.storage.pull.listing import FoundModel
from adapter.storage.pull.puller import Puller
from adapter.storage.pull.verified import Content
from adapter.storage.queues import EndpointQueues
from adapter.storage.search import Search, check_readable
from adapter.volume.space import Reservation
from adapter.waits import Waits
from adapter.workers import Workers


@dataclass(frozen=True, kw_only=True)
class Means:
    """What models in buckets are read and pulled with."""

    cache: Cache
    puller: Puller
    asks: EndpointQueues
    """Listings and small reads."""
    files: Workers
    """Threads that work on the volume alone."""


class RemoteModel:
    """Implements `Found`, `StoredModel` and the cache's `Source`."""

    def __init__(self, found: FoundModel, *, means: Means, search: Search, bucket_for: Callable[[Waits], Bucket]) -> None:
        """
        Args:
            found: what was listed.
            means: what it is read and pulled with.
            search: that has found it.
            bucket_for: the bucket for work that may go on for others: what it waits for is noted there.
        """
        self.found = found
        self.waits = search.waits
        self.endpoint = search.endpoint
        self.bucket_for = bucket_for
        self.origin = search.origin
        self.has_read = False
        self._means = means
        self._contents: dict[StoredObject, bytes] = {}
        self._read: dict[str, SourceFile] = {}
        self._ahead: dict[SourceFile, bytes] = {}
        """What was read in the thread that has listed, and was not asked for yet."""

    @property
    def listing(self) -> Listing:
        """As `StoredModel`."""
        return self.found.listing

    @property
    def contents(self) -> Mapping[StoredObject, bytes]:
        """As `Source`."""
        return self._contents

    async def open(self) -> RemoteModel:
        """As `Found`."""
        return self

    async def read(self, file: SourceFile) -> bytes:
        """As `StoredModel`."""
        check_readable(file, self.listing.origin)
        stored = self.found.stored(file)
        content = self._ahead.pop(file, b"")
        if stored.size_bytes and not content:
            known = await self._means.cache.content(self.origin, stored) if stored.is_versioned else None
            async with self._means.cache.heeding_refusals(self.origin):
                content = await self._got(stored, stored.size_bytes) if known is None else known
        if stored.is_versioned:
            self._contents[stored] = content
            if file != self.listing.schema:
                self._read[file.path] = file
        return content

    async def read_ahead(self, wanted: Wanted) -> None:
        """
        Read what is wanted, in the same turn as the listing.

        Where the cache may have it, `read` finds it there.

        Raises:
            InvalidModel: from `wanted`. Else as `read`.
        """
        if self._means.cache.has_some(self.origin):
            return
        for file in await self._means.files.run_large(lambda: wanted(self.listing), len(self.listing.files)):
            self._ahead[file] = await self.peek(file)
            self.has_read |= bool(self._ahead[file])

    async def peek(self, file: SourceFile) -> bytes:
        """As `Found`."""
        check_readable(file, self.listing.origin)
        stored = self.found.stored(file)
        return await self._first(stored, stored.size_bytes) if stored.size_bytes else b""

    async def fetch(self, files: tuple[SourceFile, ...]) -> Artifact:
        """As `StoredModel`. What was read before belongs to the artifact too, so that an equal load reads nothing."""
        schema = await self.schema()
        identity = await self._means.files.run_large(lambda: self._identity(files, schema), len(files))
        is_versioned = self.listing.is_versioned
        request = WantedArtifact(identity=identity, is_versioned=is_versioned, listing=self.listing, waits=self.waits)
        return (await self._means.cache.take(request, self)).artifact

    async def ends(self, artifact: Artifact, files: tuple[SourceFile, ...]) -> Mapping[SourceFile, Ends]:
        """As `StoredModel`."""
        return await self._means.cache.ends(artifact, files, self.waits)

    async def prove(self, stored: StoredObject) -> None:
        """As `Source`."""
        await self._got(stored, 1)

    async def fill(self, staged: Path, missing: Mapping[str, StoredObject], reserved: Reservation, waits: Waits) -> Listing:
        """As `Source`."""
        if missing:
            await self._means.puller.pull(self.bucket_for(waits), missing, waits, reserved=reserved, staged=staged)
        return self.listing

    async def schema(self) -> dict[str, StoredObject]:
        """The schema where an artifact has it. It is read here unless it was before."""
        file = self.listing.schema
        if file is None or not self.listing.is_versioned:
            return {}
        stored = self.found.stored(file)
        if stored not in self._contents:
            await self.read(file)
        return {SCHEMA: stored}

    async def _got(self, stored: StoredObject, length: int) -> bytes:
        """The first bytes of an object, with credentials of our own."""
        async with self._means.asks.turn(self.endpoint, self.waits):
            content = await self._first(stored, length)
        self.has_read = True
        return content

    async def _first(self, stored: StoredObject, length: int) -> bytes:
        content = Content(stored, length, self.found.bucket.place)
        await self.found.bucket.read((Read(stored, 0, length, content),))
        return bytes(content.content)

    def _identity(self, files: tuple[SourceFile, ...], schema: Mapping[str, StoredObject]) -> Identity:
        wanted = {file.path: file for file in files} | self._read
        return Identity(self.origin, {f"{FILES}/{path}": self.found.stored(file) for path, file in wanted.items()} | dict(schema))
