"""
The door of the cache: an artifact that is what somebody has listed, made or found, for those who may have it.

An artifact is given only to who has listed the model with credentials of his own, and has read of it once: leave to list
is no leave to read. Its files are looked at before each use. All decisions are the shelf's; the disk is met in threads.

Whatever is awaited here may be cancelled: what was held is let go, and what was begun is undone or goes on for others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from adapter.boot import boot_seconds
from adapter.ends import Count, Ends, read_ends
from adapter.model import Artifact, Listing, SourceFile
from adapter.space import Reservation, Space
from adapter.storage.bucket import StoredObject
from adapter.storage.cache.build import Build
from adapter.storage.cache.flights import Flights
from adapter.storage.cache.identity import FILES, Identity
from adapter.storage.cache.keeping import Keeping
from adapter.storage.cache.meta import MAX_READERS, Meta
from adapter.storage.cache.shelf import Entry, Shelf
from adapter.telemetry.metrics import CACHE_REQUESTS, CACHE_SAVED_BYTES
from adapter.volume import Volume
from adapter.waits import Waits
from adapter.workers import Stop, Workers

QUICK_FILES = 200
"""The loop itself makes the key of so few: that takes less than a thread."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What one load wants."""

    identity: Identity
    is_versioned: bool
    """False: nobody can tell whether two of them are equal, so it is made for this load alone."""
    listing: Listing | None
    """What the store has now; None: an archive, which tells when it is unpacked."""
    reader: str
    """As `reader_of`."""
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

    async def fill(self, staged: Path, missing: Mapping[str, StoredObject], room: Reservation, waits: Waits) -> Listing:
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
        self._shelf = Shelf(keeps_idle=space.max_bytes > 0)
        self._keeping = Keeping(volume, self._shelf)
        keeping, run_to_end = self._keeping, files.run_to_end  # not bound to this object: it must end when nobody has it any more
        self._flights: Flights[_Made] = Flights(lambda made: run_to_end(lambda _: keeping.let_go(made.entry.name)))
        self._reading: asyncio.Future[None] | None = None
        space.give_way = self._keeping.give_way
        space.counted_by("placed", self._shelf.placed_bytes)
        space.counted_by("idle", self._shelf.idle_bytes)

    async def ready(self) -> None:
        """Return when what an earlier process has left is known. All else waits for that, whoever asks first."""
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._files.run(self._keeping.read_all))
        await asyncio.shield(self._reading)

    async def take(self, wanted: Wanted, source: Source) -> Taken:
        """
        The artifact: found, or made by whoever is first.

        Raises:
            SourceError, DiskFull, InvalidModel: as the source; the artifact is there, but not for these credentials.
        """
        await self.ready()
        if not wanted.is_versioned:
            made = await self._build(wanted, source, wanted.waits, lambda: 1)
            return Taken(self._artifact(made.entry), made.listing)
        key = await self._key(wanted.identity)
        while True:
            entry = self._shelf.hold(key)
            if entry is None:
                if (taken := await self._joined(key, wanted, source)) is not None:
                    return taken
                continue
            try:
                meta = await self._files.run(partial(self._keeping.opened, entry))
                if meta is not None:
                    return await self._given(entry, meta.listing, wanted, source)
            except BaseException:
                await self._let_go(entry)
                raise
            await self._let_go(entry)

    async def content(self, origin: str, stored: StoredObject, reader: str) -> bytes | None:
        """A small file, from an artifact that this reader may have; None: it must be read from the store."""
        await self.ready()
        if not self.has_some(origin, reader):
            return None
        return await self._files.run(partial(self._keeping.content, origin, stored, reader))

    def has_some(self, origin: str, reader: str) -> bool:
        """Whether there is any version of this model that this reader may have. From any thread; asks no disk."""
        return bool(self._shelf.of_origin(origin, reader))

    def listing(self, key: str, reader: str) -> Listing | None:
        """What an unpacked artifact holds, if it is known and this reader may have it. Blocks."""
        return self._keeping.listing(key, reader)

    def candidate(self, reader: str) -> Entry | None:
        """The artifact that this reader was confirmed for last: what may be given while its store is away. Asks no disk."""
        return self._shelf.last_of(reader)

    async def forget(self, reader: str) -> None:
        """This reader may have nothing any more, until he has listed and read again. Completes even when cancelled."""
        if entries := self._shelf.forget(reader):
            await self._files.run_to_end(lambda _: self._keeping.record_all(entries))

    async def recalled(self, entry: Entry) -> Listing | None:
        """What the store had when this artifact was confirmed last; None: the artifact is not there any more, or damaged."""
        if not self._shelf.hold_entry(entry):
            return None
        try:
            meta = await self._files.run(partial(self._keeping.opened, entry))
        finally:
            await self._let_go(entry)
        return None if meta is None else meta.listing

    async def take_stale(self, entry: Entry, files: tuple[SourceFile, ...]) -> Artifact | None:
        """The artifact, if it still is one and has these files."""
        if not self._shelf.hold_entry(entry):
            return None
        wanted = {f"{FILES}/{file.path}" for file in files}
        artifact = await self._kept(entry, lambda meta: wanted <= {file.path for file in meta.files})
        if artifact is not None:
            CACHE_REQUESTS.labels("stale").inc()
            CACHE_SAVED_BYTES.inc(entry.size_bytes)
        return artifact

    async def read(self, entry: Entry, path: str) -> bytes | None:
        """A small file of this artifact, by its path in there."""
        return await self._files.run(partial(self._keeping.read, entry, path))

    async def reclaim(self, key: str) -> Artifact | None:
        """One more user of an artifact that an earlier process had for a model that is still placed."""
        await self.ready()
        entry = self._shelf.hold(key)
        return None if entry is None else await self._kept(entry, lambda _: True)

    async def ends(self, artifact: Artifact, counts: Mapping[SourceFile, Count | None], waits: Waits) -> dict[SourceFile, Ends]:
        """Both ends of files of an artifact that is held, and what is to be counted in each. Raises as `read_ends`."""

        def look(stop: Stop) -> dict[SourceFile, Ends]:
            return {file: read_ends(artifact.root / file.path, count, stop.check) for file, count in counts.items()}

        with waits.on("the model's files to be read on the volume"):
            return await self._looks.run(look)

    async def release(self, artifact: Artifact) -> None:
        """One user less. Completes even when cancelled."""
        await self._files.run_to_end(lambda _: self._keeping.let_go(artifact.root.parent.name))

    def abandon(self, artifact: Artifact) -> None:
        """As `release`, some time soon: for a finalizer."""
        self._files.start(lambda _: self._keeping.let_go(artifact.root.parent.name))

    async def _key(self, identity: Identity) -> str:
        if len(identity.objects) <= QUICK_FILES:
            return identity.key
        return await self._files.run(lambda _: identity.key)

    async def _kept(self, entry: Entry, is_wanted: Callable[[Meta], bool]) -> Artifact | None:
        """An artifact that is held already, if it is whole and wanted; else it is let go."""
        try:
            meta = await self._files.run(partial(self._keeping.opened, entry))
            if meta is not None and is_wanted(meta):
                return self._artifact(entry)
        except BaseException:
            await self._let_go(entry)
            raise
        await self._let_go(entry)
        return None

    async def _joined(self, key: str, wanted: Wanted, source: Source) -> Taken | None:
        """What a flight has made; None: one has ended meanwhile, so look again."""
        landed = await self._flights.join(key, wanted.reader, wanted.waits, partial(self._build, wanted, source))
        if landed is None:
            return None
        made = landed.result
        if landed.is_own:
            return Taken(self._artifact(made.entry), made.listing)
        try:
            return await self._given(made.entry, made.listing, wanted, source)
        except BaseException:
            await self._let_go(made.entry)
            raise

    async def _given(self, entry: Entry, listing: Listing, wanted: Wanted, source: Source) -> Taken:
        """Let the reader have what he holds. Raises SourceError: his own credentials may not read it."""
        if wanted.reader not in self._shelf.readers(entry) and not source.has_read:
            await _proven(wanted, source)
        is_new_listing = wanted.listing is not None and wanted.listing != listing
        if self._shelf.confirm(entry, wanted.reader, self._now(), MAX_READERS) or is_new_listing:
            await self._files.run(lambda _: self._keeping.record(entry, wanted.listing))
        CACHE_REQUESTS.labels("hit").inc()
        CACHE_SAVED_BYTES.inc(entry.size_bytes)
        return Taken(self._artifact(entry), wanted.listing or listing)

    async def _build(self, wanted: Wanted, source: Source, waits: Waits, users: Callable[[], int]) -> _Made:
        """Make it, with so many users as there are at the end."""
        with self._space.reservation() as room:
            build = Build(self._keeping, room, wanted.identity, is_kept=wanted.is_versioned)
            try:
                missing = await self._files.run(partial(build.begin, dict(source.contents)))
                if build.linked and not source.has_read and wanted.reader not in build.linked_from:
                    await _proven(wanted, source)
                assert build.staged is not None  # noqa: S101 - begin has run
                listing = await source.fill(build.staged, missing, room, waits)
                entry = await self._files.run(partial(build.finish, listing, {wanted.reader: self._now()}))
            except BaseException:
                await self._files.run_to_end(build.undo)
                raise
            if self._shelf.settle(entry, users()):
                self._files.start(lambda _: self._keeping.remove(entry.name))
        CACHE_REQUESTS.labels("miss").inc()
        CACHE_SAVED_BYTES.inc(build.linked_bytes)
        return _Made(entry, listing)

    async def _let_go(self, entry: Entry) -> None:
        await self._files.run_to_end(lambda _: self._keeping.let_go(entry.name))

    def _artifact(self, entry: Entry) -> Artifact:
        return Artifact(root=self._keeping.root(entry), is_ours=True, key=entry.key)


async def _proven(wanted: Wanted, source: Source) -> None:
    """Return if the credentials may read what they have listed. Raises SourceError."""
    stored = next((stored for stored in wanted.identity.objects.values() if stored.size_bytes), None)
    if stored is not None:
        await source.prove(stored)
