"""
The cache: an artifact that is what a caller has listed, made or found, for callers that may have it.

An artifact belongs to one owner (`identity.origin_of`), and is given after a listing with the owner's credentials; after a refusal
of the store they read one byte of it first, since leave to list is no leave to read. Its files are looked at before each use. The
table decides; the disk is met in threads.

Every wait here may be cancelled: what was held is let go, and what was begun is undone or goes on for others.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from adapter.ends import Ends, read_ends
from adapter.errors import SourceDenied, SourceNotFound
from adapter.model import Artifact, Listing, SourceFile
from adapter.storage.bucket import StoredObject
from adapter.storage.cache.artifacts import Artifacts
from adapter.storage.cache.build import Build
from adapter.storage.cache.flights import Flights
from adapter.storage.cache.identity import FILES, Identity
from adapter.storage.cache.record import ArtifactRecord
from adapter.storage.cache.table import Entry, Table
from adapter.telemetry.metrics import CACHE_REQUESTS, CACHE_SAVED_BYTES
from adapter.volume.boot import boot_seconds
from adapter.volume.space import Reservation, Space
from adapter.volume.volume import Volume
from adapter.waits import Waits
from adapter.workers import Stop, Workers


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What one load wants."""

    identity: Identity
    is_versioned: bool
    """False: two of them cannot be told apart, so it is made for this load alone."""
    listing: Listing | None
    """What the store has now; None: an archive, which tells when it is unpacked."""
    waits: Waits


class Source(Protocol):
    """How a load gets at the model's bytes, with credentials of its own."""

    @property
    def has_read(self) -> bool:
        """Whether these credentials have read of the model already."""
        ...

    @property
    def contents(self) -> Mapping[StoredObject, bytes]:
        """What is in memory, and need not be read again."""
        ...

    async def prove(self, stored: StoredObject) -> None:
        """Read one byte of this object. Raises SourceError."""
        ...

    async def fill(self, staged: Path, missing: Mapping[str, StoredObject], reserved: Reservation, waits: Waits) -> Listing:
        """
        Bring what is missing (path below the staged directory → object; `archive`: unpacked into `files`).

        Returns:
            What the model has. Raises SourceError, DiskFull, InvalidModel.
        """
        ...


@dataclass(frozen=True)
class Taken:
    """An artifact with one more user, and what its model has."""

    artifact: Artifact
    listing: Listing


@dataclass(frozen=True)
class _Made:
    entry: Entry
    listing: Listing


class Cache:
    """Artifacts by what they are."""

    def __init__(self, *, volume: Volume, space: Space, files: Workers, looks: Workers, now: Callable[[], float] = boot_seconds) -> None:
        """
        Args:
            volume: a claimed volume; what it has in its folder of artifacts is the cache's.
            space: its budget. One of 0 keeps nothing idle.
            files: threads for the volume alone, whose work is quick.
            looks: threads for the volume, for what goes through whole files.
            now: seconds since the boot of the kernel.
        """
        self._space = space
        self._files = files
        self._looks = looks
        self._now = now
        self._table = Table(keeps_idle=space.max_bytes > 0)
        self._artifacts = Artifacts(volume, self._table)
        artifacts, run_to_end = self._artifacts, files.run_to_end  # not bound to this object: it must end with its last user
        self._flights: Flights[_Made] = Flights(lambda made: run_to_end(lambda _: artifacts.let_go(made.entry)))
        self._reading: asyncio.Future[None] | None = None
        space.give_way = self._artifacts.give_way
        space.counted_by("placed", self._table.placed_bytes)
        space.counted_by("idle", self._table.idle_bytes)
        space.counted_by("trash", self._table.leaving_bytes)

    async def ready(self) -> None:
        """Return when what an earlier process has left is known. All else waits for that."""
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._files.run(self._artifacts.read_all))
        await asyncio.shield(self._reading)

    async def take(self, wanted: Wanted, source: Source) -> Taken:
        """
        The artifact: found, or made by the first caller.

        Raises:
            SourceError, DiskFull, InvalidModel: as the source; the artifact is there, but not for these credentials.
        """
        async with self.heeding_refusals(wanted.identity.origin):
            return await self._taken(wanted, source)

    async def content(self, origin: str, stored: StoredObject) -> bytes | None:
        """A small file, from an artifact of this origin; None: it must be read from the store."""
        await self.ready()
        if not self.has_some(origin):
            return None
        return await self._files.run(partial(self._artifacts.content, origin, stored))

    def has_some(self, origin: str) -> bool:
        """Whether there is any version of this model that its owner may have. From any thread; asks no disk."""
        return bool(self._table.of_origin(origin))

    def listing(self, key: str) -> Listing | None:
        """What an unpacked artifact holds, if it is known. Blocks."""
        return self._artifacts.listing(key)

    def candidate(self, origin: str) -> Entry | None:
        """The artifact that was confirmed last: what may be given while its store is away. Asks no disk."""
        return self._table.last_of(origin)

    @asynccontextmanager
    async def heeding_refusals(self, origin: str) -> AsyncIterator[None]:
        """
        While inside, a refusal of the store goes through, and the owner may have nothing until it has listed and read again.

        What the store has said last holds while the store is away.
        """
        try:
            yield
        except (SourceDenied, SourceNotFound):
            if entries := self._table.forget(origin):
                await self._files.run_to_end(lambda _: self._artifacts.refuse(entries))
            raise

    async def recalled(self, entry: Entry) -> Listing | None:
        """What the store had when this artifact was made; None: the artifact is not there any more, or damaged."""
        if not self._table.hold_entry(entry) or (record := await self._opened(entry)) is None:
            return None
        await self._let_go(entry)
        return record.listing

    async def take_stale(self, entry: Entry, files: tuple[SourceFile, ...]) -> Artifact | None:
        """The artifact, if it still is one and has these files."""
        if not self._table.hold_entry(entry) or (record := await self._opened(entry)) is None:
            return None
        if not {f"{FILES}/{file.path}" for file in files} <= {file.path for file in record.files}:
            await self._let_go(entry)
            return None
        CACHE_REQUESTS.labels("stale").inc()
        CACHE_SAVED_BYTES.inc(entry.size_bytes)
        return self._artifact(entry)

    async def read(self, entry: Entry, path: str) -> bytes | None:
        """A small file of this artifact, by its path in there."""
        return await self._files.run(partial(self._artifacts.read, entry, path))

    async def reclaim(self, key: str) -> Artifact | None:
        """One more user of an artifact that an earlier process had for a model that is still placed."""
        await self.ready()
        entry = self._table.hold(key)
        return None if entry is None or await self._opened(entry) is None else self._artifact(entry)

    async def ends(self, artifact: Artifact, files: tuple[SourceFile, ...], waits: Waits) -> dict[SourceFile, Ends]:
        """Both ends of files of an artifact that is held. Raises as `read_ends`."""

        def look(stop: Stop) -> dict[SourceFile, Ends]:
            return {file: read_ends(artifact.root / file.path, stop.check) for file in files}

        with waits.on("the model's files to be read on the volume"):
            return await self._looks.run(look)

    async def release(self, artifact: Artifact) -> None:
        """One user less. Completes even when cancelled."""
        if (entry := self._table.named(artifact.root.parent.name)) is not None:
            await self._let_go(entry)

    def abandon(self, artifact: Artifact) -> None:
        """As `release`, some time soon: for a finalizer."""
        if (entry := self._table.named(artifact.root.parent.name)) is not None:
            self._files.start(lambda _: self._artifacts.let_go(entry))

    async def _taken(self, wanted: Wanted, source: Source) -> Taken:
        await self.ready()
        if not wanted.is_versioned:
            made = await self._build(wanted, source, wanted.waits, lambda: 1)
            return Taken(self._artifact(made.entry), made.listing)
        key = await self._files.run_large(lambda: wanted.identity.key, len(wanted.identity.objects))
        while True:
            entry = self._table.hold(key)
            if entry is None:
                taken = await self._joined(key, wanted, source)
            else:
                record = await self._opened(entry)
                taken = None if record is None else await self._given(entry, record.listing, wanted, source)
            if taken is not None:
                return taken

    async def _opened(self, entry: Entry) -> ArtifactRecord | None:
        """The record of an artifact that is held. None: it is damaged. It is let go then, as when this is cancelled."""
        record = None
        try:
            record = await self._files.run(partial(self._artifacts.opened, entry))
        finally:
            if record is None:
                await self._let_go(entry)
        return record

    async def _joined(self, key: str, wanted: Wanted, source: Source) -> Taken | None:
        """What the pull of the first caller has made; None: one has ended meanwhile, so look again."""
        landed = await self._flights.join(key, wanted.waits, partial(self._build, wanted, source))
        if landed is None:
            return None
        made = landed.result
        if landed.is_own:
            return Taken(self._artifact(made.entry), made.listing)
        return await self._given(made.entry, made.listing, wanted, source)

    async def _given(self, entry: Entry, listing: Listing, wanted: Wanted, source: Source) -> Taken:
        """Give an artifact that is held; it is let go on failure. Raises SourceError: the credentials may not read it."""
        try:
            if not entry.confirmed and not source.has_read:
                await _proven(wanted, source)
            await self._files.run(lambda _: self._artifacts.confirm(entry, self._now()))
        except BaseException:
            await self._let_go(entry)
            raise
        CACHE_REQUESTS.labels("hit").inc()
        CACHE_SAVED_BYTES.inc(entry.size_bytes)
        return Taken(self._artifact(entry), wanted.listing or listing)

    async def _build(self, wanted: Wanted, source: Source, waits: Waits, users: Callable[[], int]) -> _Made:
        """Make it, with as many users as there are at the end."""
        with self._space.reservation() as reserved:
            build = Build(self._artifacts, reserved, wanted.identity, is_kept=wanted.is_versioned)
            try:
                missing = await self._files.run(partial(build.begin, dict(source.contents)))
                listing = await source.fill(build.staged, missing, reserved, waits)
                entry = await self._files.run(partial(build.finish, listing, self._now()))
            except BaseException:
                await self._files.run_to_end(build.undo)
                raise
            if self._table.use(entry, users() - 1):
                self._files.start(lambda _: self._artifacts.remove(entry))
        CACHE_REQUESTS.labels("miss").inc()
        CACHE_SAVED_BYTES.inc(build.linked_bytes)
        return _Made(entry, listing)

    async def _let_go(self, entry: Entry) -> None:
        await self._files.run_to_end(lambda _: self._artifacts.let_go(entry))

    def _artifact(self, entry: Entry) -> Artifact:
        return Artifact(root=self._artifacts.root(entry), is_ours=True, key=entry.key)


async def _proven(wanted: Wanted, source: Source) -> None:
    """Return if the credentials may read what they have listed. Raises SourceError."""
    stored = next((stored for stored in wanted.identity.objects.values() if stored.size_bytes), None)
    if stored is not None:
        await source.prove(stored)
