"""
A model in a bucket: listed, and ready to be read or pulled; what the cache has of it is neither read nor pulled again, and is
given while the store is away.

A model may be one archive (`unpack: "true"`): pulled, unpacked, and served as the files in it. What an archive holds is known
only once it was here, so opening such a model pulls it, unless the cache has what was unpacked from this version. Knows no store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from adapter.errors import SourceUnavailable
from adapter.model import Artifact, Listing, SourceFile
from adapter.ports import StoredModel
from adapter.storage.bucket import Bucket, Read, StoredObject
from adapter.storage.cache.artifacts import Entry
from adapter.storage.cache.cache import Cache
from adapter.storage.cache.record import ARCHIVE, FILES, SCHEMA, ArtifactRecord, Identity
from adapter.storage.pull.archives import unpack
from adapter.storage.pull.listing import FoundModel
from adapter.storage.pull.puller import Means, Pull
from adapter.storage.pull.staged import Run, Whole
from adapter.storage.search import Found, Search, check_readable
from adapter.telemetry.metrics import CACHE_REQUESTS, CACHE_SAVED_BYTES
from adapter.volume.space import Reservation
from adapter.volume.trees import Ends
from adapter.waits import Waits
from adapter.workers import Stop

_STALE_SECONDS = 5.0
"""Longest silence in a listing where the cache can stand in for a store that is away; never more than a third of the budget."""
_TICK_SECONDS = 0.01

_log = structlog.stdlib.get_logger(__name__)


@dataclass(eq=False)
class RemoteModel:
    """Implements `Found`, `StoredModel` and `Source`."""

    found: FoundModel
    """What was listed."""
    means: Means
    """What it is read and pulled with."""
    search: Search
    """That has found it."""
    bucket_for: Callable[[Waits], Bucket]
    """The bucket for work that may go on for others: what it waits for is noted there."""

    def __post_init__(self) -> None:
        self.listing = self.found.listing
        self.waits = self.search.waits
        self.contents: dict[StoredObject, bytes] = {}
        self.is_known = True
        """Whether `listing` is of the model's files."""
        self._was_read: dict[str, SourceFile] = {}
        self._beside = {SCHEMA: self.found.schema} if self.found.schema is not None else {}
        """What the artifact has of the schema."""

    async def open(self) -> StoredModel:
        """As `Found`."""
        return self

    async def read(self, file: SourceFile) -> bytes:
        """As `StoredModel`."""
        check_readable(file, self.listing.origin)
        stored = self.found.stored(file)
        content = await self.means.cache.content(self.search.origin, stored)
        if content is None:
            async with self.means.cache.heeding_refusals(self.search.origin):
                content = await self.read_first(stored, stored.size_bytes)
        self.contents[stored] = content
        if file != self.listing.schema:
            self._was_read[file.path] = file
        return content

    async def peek(self, file: SourceFile) -> bytes | None:
        """As `Found`."""
        check_readable(file, self.listing.origin)
        return await self._first(self.found.stored(file), file.size_bytes)

    async def fetch(self, files: tuple[SourceFile, ...]) -> Artifact:
        """As `StoredModel`. What was read before belongs to the artifact too, so that an equal load reads nothing."""
        wanted = {file.path: file for file in files} | self._was_read

        def objects() -> dict[str, StoredObject]:
            return {f"{FILES}/{path}": self.found.stored(file) for path, file in wanted.items()} | self._beside

        identity = Identity(self.search.origin, await self.means.files.run_large(objects, len(wanted)))
        return (await self.means.cache.take(identity, self))[0]

    async def ends(self, artifact: Artifact, files: tuple[SourceFile, ...]) -> Mapping[SourceFile, Ends]:
        """As `StoredModel`."""
        return await self.means.cache.ends(artifact, files, self.waits)

    def close(self) -> None:
        """As `StoredModel`: nothing is held."""

    async def fill(self, staged: Path, missing: Mapping[str, StoredObject], reserved: Reservation, waits: Waits) -> Listing:
        """As `Source`."""
        if missing:
            await Pull(self.means, self.bucket_for(waits), staged, missing, reserved, waits).run()
        return self.listing

    async def read_first(self, stored: StoredObject, length: int) -> bytes:
        """As `Source`."""
        async with self.means.asks.turn(self.found.bucket.endpoint, self.waits):
            return await self._first(stored, length)

    async def _first(self, stored: StoredObject, length: int) -> bytes:
        is_whole = length == stored.size_bytes
        read = Run(Whole(stored, self.found.bucket.place), 0, length) if is_whole else Read(stored, 0, length)
        if length:
            await self.found.bucket.read((read,))
        return bytes(read.content)


class PackedModel(RemoteModel):
    """A model in an archive. Made in a thread."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._identity = Identity(self.search.origin, {ARCHIVE: self.found.stored(self.listing.files[0])} | self._beside)
        known = self.means.cache.listing(self._identity.key)
        self.is_known = known is not None
        self.listing = known or self.listing

    async def open(self) -> StoredModel:
        """As `Found`: unpacked."""
        cache = self.means.cache
        return KeptModel(*await cache.take(self._identity, self), cache, self.waits)

    async def peek(self, file: SourceFile) -> bytes | None:
        """As `Found`: a survey holds no artifact."""

    async def fill(self, staged: Path, missing: Mapping[str, StoredObject], reserved: Reservation, waits: Waits) -> Listing:
        """As `Source`."""
        await super().fill(staged, missing, reserved, waits)
        with waits.on(f"the unpacking of {self.found.listing.name!r}"):
            return await self.means.unpacks.run(partial(self._unpack, staged, reserved))

    def _unpack(self, staged: Path, reserved: Reservation, stop: Stop) -> Listing:
        packed, means = self.found.listing, self.means
        with means.volume.writing(packed.size_bytes):
            archive, target = staged / ARCHIVE, staged / FILES
            files = unpack(archive, name=packed.name, target=target, reserved=reserved, max_bytes=means.most_unpacked_bytes, stop=stop)
            archive.unlink()
            names = list(target.iterdir())
            if len(names) == 1 and names[0].is_dir() and not names[0].name.isdecimal():
                top = names[0].rename(archive)  # the name is free
                target.rmdir()
                top.rename(target)
                files = {path.partition("/")[2]: size_bytes for path, size_bytes in files.items()}
        reserved.change(-packed.size_bytes)
        listed = tuple(SourceFile(path, files[path], packed.files[0].etag) for path in sorted(files))
        return replace(packed, files=listed, is_single_file=len(listed) == 1 and "/" not in listed[0].path)


@dataclass(eq=False)
class KeptModel:
    """
    A model that lies in an artifact, which is held until it is fetched, or closed: it was unpacked, or its store is
    away. Then it is the one that this very reader was confirmed for last, and what the store would say now is not known.

    Implements `StoredModel`.
    """

    artifact: Artifact
    """With a user more."""
    record: ArtifactRecord
    cache: Cache
    waits: Waits
    """Of the load."""
    cause: str = ""
    """Why the store is not asked for what the artifact has not; empty: it has all."""
    is_held: bool = True

    @property
    def listing(self) -> Listing:
        """What the store had."""
        return self.record.listing

    async def read(self, file: SourceFile) -> bytes:
        """As `StoredModel`."""
        check_readable(file, self.listing.origin)
        path = SCHEMA if file == self.listing.schema else f"{FILES}/{file.path}"
        try:
            return await self.cache.read(self.artifact, path, file.size_bytes)
        except OSError as error:
            raise SourceUnavailable(self.cause or f"{file.path!r} cannot be read: {error.strerror}") from error

    async def fetch(self, files: tuple[SourceFile, ...]) -> Artifact:
        """As `StoredModel`."""
        if self.cause and not {file.path for file in self.record.files}.issuperset(f"{FILES}/{file.path}" for file in files):
            raise SourceUnavailable(self.cause)
        self.is_held = False
        return self.artifact

    async def ends(self, artifact: Artifact, files: tuple[SourceFile, ...]) -> Mapping[SourceFile, Ends]:
        """As `StoredModel`."""
        return await self.cache.ends(artifact, files, self.waits)

    def close(self) -> None:
        """As `StoredModel`."""
        if self.is_held:
            self.cache.abandon(self.artifact)


async def stale(cache: Cache, entry: Entry, cause: str, waits: Waits) -> KeptModel | None:
    """The model of this artifact, and why its store is not asked; None: the artifact cannot be used."""
    if (record := await cache.held(entry)) is None:
        return None
    _log.warning("cache.stale", model=record.listing.origin, cause=cause)
    CACHE_REQUESTS.labels("stale").inc()
    CACHE_SAVED_BYTES.inc(sum(file.size_bytes for file in record.files))
    return KeptModel(entry.artifact, record, cache, waits, cause)


async def found_soon(finding: Coroutine[Any, Any, Found], waits: Waits) -> tuple[str, Found | None]:
    """
    What the store has, if the store is not silent for long: something else can be given.

    Returns:
        Why it did not tell, and nothing; or what was found. Raises as `open`, where the store is not away.
    """
    seconds = max(min(_STALE_SECONDS, waits.left_seconds() / 3), 0.0)
    task = asyncio.create_task(finding)
    try:
        while not task.done():
            silent_seconds = waits.silent_seconds()  # a long listing has many answers
            if silent_seconds >= seconds:
                return f"storage has been silent for {seconds:.3g} s: {waits.words()}", None
            await asyncio.wait({task}, timeout=max(seconds - silent_seconds, _TICK_SECONDS))
        return "", task.result()
    except SourceUnavailable as error:
        if not error.can_pass:
            raise
        return error.text, None
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
