"""
The cache: an artifact that is what a caller has listed, found or pulled, for callers that may have it.

An artifact belongs to one owner (`identity.origin_of`), and is given after a listing with the owner's credentials; after a refusal
of the store they read one byte of it first, since leave to list is no leave to read. Its files are looked at before each use. The
table decides; the disk is met in threads.

Of all callers that want the same artifact at one time, the first one has it pulled by a task of its own, and the others wait for
that. The pull may wait as long as any of its callers may. A caller that is cancelled leaves it; the last one to leave cancels it and
waits for its end. Every other wait here may be cancelled too: what was held is let go.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from adapter.errors import AdapterError, SourceDenied, SourceNotFound
from adapter.model import Artifact, Listing, SourceFile
from adapter.storage.bucket import StoredObject
from adapter.storage.cache.artifacts import LOOKED_AT, Artifacts, Build, new_name
from adapter.storage.cache.identity import FILES, Identity
from adapter.storage.cache.record import ArtifactRecord, KeptFile
from adapter.storage.cache.table import Entry, Table
from adapter.telemetry.metrics import CACHE_REQUESTS, CACHE_SAVED_BYTES
from adapter.volume.boot import boot_seconds
from adapter.volume.space import Reservation, Space
from adapter.volume.trees import Ends, read_ends
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


_Made = tuple[Entry, Listing]
"""What a pull has made: an artifact with a user for each caller that waits."""


@dataclass(eq=False)
class _Pull:
    key: str
    waits: Waits
    callers: int = 0
    task: asyncio.Task[_Made] = field(init=False)


class Cache:
    """Artifacts by what they are."""

    def __init__(self, *, volume: Volume, space: Space, files: Workers, looks: Workers) -> None:
        """
        Args:
            volume: a claimed volume; what it has in its folder of artifacts is the cache's.
            space: its budget. One of 0 keeps nothing idle.
            files: threads for the volume alone, whose work is quick.
            looks: threads for the volume, for what goes through whole files.
        """
        self._space = space
        self._files = files
        self._looks = looks
        self._table = Table(keeps_idle=space.max_bytes > 0)
        self._artifacts = Artifacts(volume, self._table)
        self._pulls: dict[str, _Pull] = {}
        """Those under way, by the key of what they make."""
        self._reading: asyncio.Future[None] | None = None
        space.give_way = self._artifacts.give_way
        space.counted_by("placed", self._table.placed_bytes)
        space.counted_by("idle", self._table.idle_bytes)
        space.counted_by("trash", self._table.leaving_bytes)

    async def ready(self) -> None:
        """Return when what an earlier process has left is known. To be awaited before all else."""
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
            key = new_name(None)
            if wanted.is_versioned:
                key = await self._files.run_large(lambda: wanted.identity.key, len(wanted.identity.objects))
            while (entry := self._table.find(key)) is not None:
                if (record := await self._held(entry, is_listed=True)) is not None:
                    return await self._given(entry, record.listing, wanted, source)
            return await self._pulled(key, wanted, source)

    async def content(self, origin: str, stored: StoredObject) -> bytes | None:
        """A small file, from an artifact of this origin; None: it must be read from the store."""
        entries = self._table.of_origin(origin)[:LOOKED_AT]
        return await self._files.run(partial(self._artifacts.content, entries, lambda record: record.find(stored))) if entries else None

    def listing(self, key: str) -> Listing | None:
        """What an unpacked artifact holds, if it is known. Blocks."""
        return self._artifacts.listing(key)

    def candidate(self, origin: str) -> Entry | None:
        """The artifact that was confirmed last: what may be given while its store is away. Asks no disk."""
        return max(self._table.of_origin(origin), key=lambda entry: entry.confirmed, default=None)

    @asynccontextmanager
    async def heeding_refusals(self, origin: str) -> AsyncIterator[None]:
        """
        While inside, a refusal of the store goes through, and the owner may have nothing until it has listed and read again.

        What the store has said last holds while the store is away.
        """
        try:
            yield
        except (SourceDenied, SourceNotFound):
            entries = self._table.of_origin(origin)
            for entry in entries:
                entry.confirmed = 0.0
            if entries:
                await self._files.run_to_end(lambda _: self._artifacts.confirm(entries, 0.0))
            raise

    async def recalled(self, entry: Entry) -> ArtifactRecord | None:
        """The record of this artifact; None: it is not there any more, or damaged."""
        record = await self._held(entry)
        if record is not None:
            await self._let_go(entry)
        return record

    async def read(self, entry: Entry, file: KeptFile) -> bytes | None:
        """A small file of this artifact."""
        return await self._files.run(partial(self._artifacts.content, [entry], lambda _: file))

    async def reclaim(self, key: str) -> Artifact | None:
        """One more user of an artifact of a model that is placed since an earlier process, or whose store is away."""
        await self.ready()
        entry = self._table.find(key)
        return None if entry is None or await self._held(entry) is None else self._artifact(entry)

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

    async def _held(self, entry: Entry, *, is_listed: bool = False) -> ArtifactRecord | None:
        """
        The record of an artifact that has one more user now. None: it is not there any more, or damaged; it is let go then.

        One that its owner has listed just now is confirmed, unless it was refused before.
        """
        if not self._table.hold(entry):
            return None
        record = None
        try:
            record = await self._files.run(partial(self._artifacts.opened, entry, is_listed and entry.confirmed > 0))
        finally:
            if record is None:
                await self._let_go(entry)
        return record

    async def _given(self, entry: Entry, listing: Listing, wanted: Wanted, source: Source) -> Taken:
        """Give an artifact that is held; it is let go on failure. Raises SourceError: the credentials may not read it."""
        try:
            if not entry.confirmed:
                some = next((stored for stored in wanted.identity.objects.values() if stored.size_bytes), None)
                if some is not None and not source.has_read:  # one byte tells whether the credentials may read what they have listed
                    await source.prove(some)
                await self._files.run(lambda _: self._artifacts.confirm([entry], boot_seconds()))
        except BaseException:
            await self._let_go(entry)
            raise
        CACHE_REQUESTS.labels("hit").inc()
        CACHE_SAVED_BYTES.inc(entry.size_bytes)
        return Taken(self._artifact(entry), wanted.listing or listing)

    async def _pulled(self, key: str, wanted: Wanted, source: Source) -> Taken:
        """What the pull of the first caller makes."""
        pull = self._pulls.get(key)
        is_own = pull is None
        if pull is None:
            pull = self._pulls[key] = _Pull(key, wanted.waits.to_share())
            pull.task = asyncio.create_task(self._make(pull, wanted, source), name=f"pull {key}")
        try:
            entry, listing = await self._outcome(pull, wanted.waits)
        except AdapterError as error:
            raise copy.copy(error) from error  # each caller has a traceback of its own
        return Taken(self._artifact(entry), listing) if is_own else await self._given(entry, listing, wanted, source)

    def _end(self, pull: _Pull) -> None:
        """No caller joins it any more."""
        if self._pulls.get(pull.key) is pull:
            del self._pulls[pull.key]

    async def _make(self, pull: _Pull, wanted: Wanted, source: Source) -> _Made:
        try:
            with self._space.reservation() as reserved:
                build = Build(self._artifacts, reserved, wanted.identity, is_kept=wanted.is_versioned)
                try:
                    missing = await self._files.run(partial(build.begin, dict(source.contents)))
                    listing = await source.fill(build.staged, missing, reserved, pull.waits)
                    entry = await self._files.run(partial(build.finish, listing, boot_seconds()))
                except BaseException:
                    await self._files.run_to_end(build.undo)
                    raise
                self._table.use(entry, pull.callers - 1)  # from here on nothing is awaited: no caller comes or goes
        finally:
            self._end(pull)
        CACHE_REQUESTS.labels("miss").inc()
        CACHE_SAVED_BYTES.inc(build.linked_bytes)
        return entry, listing

    async def _outcome(self, pull: _Pull, waits: Waits) -> _Made:
        """Wait for a pull, with the other callers."""
        pull.callers += 1
        try:
            with waits.sharing(pull.waits):
                return await asyncio.shield(pull.task)
        except asyncio.CancelledError:
            if pull.callers == 1 and not pull.task.done():
                self._end(pull)
                pull.task.cancel()
                while not pull.task.done():
                    with suppress(asyncio.CancelledError):  # a second cancel must not leave the pull behind
                        await asyncio.wait({pull.task})
            if pull.task.done() and not pull.task.cancelled() and pull.task.exception() is None:
                await self._let_go(pull.task.result()[0])  # it was made just then
            raise
        finally:
            pull.callers -= 1

    async def _let_go(self, entry: Entry) -> None:
        await self._files.run_to_end(lambda _: self._artifacts.let_go(entry))

    def _artifact(self, entry: Entry) -> Artifact:
        return Artifact(root=self._artifacts.folder(entry) / FILES, is_ours=True, key=entry.key)
