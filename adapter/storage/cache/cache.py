"""
The cache: an artifact that is what a caller has listed, found or pulled, for callers that may have it.

An artifact belongs to one owner (`record.origin_of`), and is given after a listing with the owner's credentials; after
a refusal of the store they read one byte of it first, since leave to list is no leave to read. Its files are looked at
before each use. The disk is met in threads.

Of all callers that want the same artifact at one time, the first one has it pulled by a task of its own, and the others
wait for that. The pull may wait as long as any of its callers may. A caller that is cancelled leaves it; the last one
to leave cancels it and waits for its end. Every other wait here may be cancelled too: what was held is let go.
"""

from __future__ import annotations

import asyncio
import copy
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

import msgspec
import structlog

from adapter.errors import AdapterError, SourceDenied, SourceNotFound
from adapter.model import Artifact, Listing, SourceFile
from adapter.paths import directories_of
from adapter.storage.bucket import StoredObject
from adapter.storage.cache import record as records
from adapter.storage.cache.artifacts import Artifacts, Entry
from adapter.storage.cache.record import ARCHIVE, FILES, ArtifactRecord, Identity
from adapter.telemetry.metrics import CACHE_REQUESTS, CACHE_SAVED_BYTES
from adapter.volume.boot import boot_seconds
from adapter.volume.space import Reservation, Space
from adapter.volume.trees import Ends, open_below, read_below, read_ends
from adapter.volume.volume import FILE_MODE, Volume, open_file
from adapter.waits import Waits
from adapter.workers import Stop, Workers

_log = structlog.stdlib.get_logger(__name__)


class Source(Protocol):
    """How one load gets at its model's bytes, with credentials of its own."""

    waits: Waits
    """What the load waits for."""
    contents: dict[StoredObject, bytes]
    """What is in memory, and need not be read again."""

    async def read_first(self, stored: StoredObject, length: int) -> bytes:
        """The first bytes of this object. Raises SourceError."""

    async def fill(self, staged: Path, missing: Mapping[str, StoredObject], reserved: Reservation, waits: Waits) -> Listing:
        """
        Bring what is missing (path below the staged directory → object; `archive`: unpacked into `files`), and return what
        the model has. Raises SourceError, DiskFull, InvalidModel.
        """


@dataclass(eq=False)
class _Pull:
    waits: Waits
    callers: int = 0
    task: asyncio.Task[tuple[Entry, ArtifactRecord]] = field(init=False)
    """Makes an artifact with a user for each caller that waits."""


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
        self._artifacts = Artifacts(volume, keeps_idle=space.max_bytes > 0)
        self.listing = self._artifacts.listing
        """What an unpacked artifact holds, by its key, if it is known. Blocks."""
        self._pulls: dict[str, _Pull] = {}
        """Those under way, by the key of what they make."""
        self._reading: asyncio.Future[None] | None = None
        space.give_way = self._artifacts.give_way
        for kind in ("placed", "idle", "trash"):
            space.counted_by(kind, partial(self._artifacts.held_bytes, kind))

    async def ready(self) -> None:
        """Return when what an earlier process has left is known. To be awaited before all else."""
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._files.run(self._artifacts.read_all))
        await asyncio.shield(self._reading)

    async def take(self, identity: Identity, source: Source) -> tuple[Artifact, ArtifactRecord]:
        """
        The artifact, found or made by the first caller, with one more user; and its record.

        Raises:
            SourceError, DiskFull, InvalidModel: as `source`; the artifact may be there, but not for these credentials.
        """
        async with self.heeding_refusals(identity.origin):
            key = await self._files.run_large(lambda: identity.key, len(identity.objects))
            while (entry := self._artifacts.find(key)) is not None:
                some = next((stored for stored in identity.objects.values() if stored.size_bytes), None)
                if some is not None and not entry.confirmed and not any(source.contents.values()):
                    await source.read_first(some, 1)
                if (record := await self.held(entry, is_listed=True)) is not None:
                    return _hit(entry, identity), record
            return await self._pulled(identity, source)

    async def content(self, origin: str, stored: StoredObject) -> bytes | None:
        """A small file, from an artifact of this origin; None: it must be read from the store."""
        return await self._files.run(lambda _: self._artifacts.content(origin, stored))

    def candidate(self, origin: str) -> Entry | None:
        """The artifact that was confirmed last: what may be given while its store is away. Asks no disk."""
        return max(self._artifacts.of_origin(origin), key=lambda entry: entry.confirmed, default=None)

    @asynccontextmanager
    async def heeding_refusals(self, origin: str) -> AsyncIterator[None]:
        """
        While inside, a refusal of the store goes through, and the owner may have nothing until it has listed and read
        again.

        What the store has said last holds while the store is away.
        """
        try:
            yield
        except (SourceDenied, SourceNotFound):
            entries = self._artifacts.of_origin(origin)
            await self._files.run(lambda _: self._artifacts.confirm(entries, 0.0), is_stopped=False)
            raise

    async def read(self, artifact: Artifact, path: str, size_bytes: int) -> bytes:
        """A small file of an artifact that is held. Raises OSError."""
        return await self._files.run(lambda _: read_below(artifact.root.parent, path, size_bytes))

    async def reclaim(self, key: str) -> Artifact | None:
        """One more user of an artifact of a model that is placed since an earlier process, or whose store is away."""
        await self.ready()
        entry = self._artifacts.find(key)
        return None if entry is None or await self.held(entry) is None else entry.artifact

    async def ends(self, artifact: Artifact, files: tuple[SourceFile, ...], waits: Waits) -> dict[SourceFile, Ends]:
        """Both ends of files of an artifact that is held. Raises as `read_ends`."""
        with waits.on("the model's files to be read on the volume"):
            return await self._looks.run(lambda stop: {file: _ends_below(artifact.root, file.path, stop) for file in files})

    async def release(self, artifact: Artifact) -> None:
        """One user less. Completes even when cancelled."""
        await self._let_go(artifact.root.parent)

    def abandon(self, artifact: Artifact) -> None:
        """As `release`, some time soon: for a finalizer."""
        with suppress(RuntimeError):  # the store is closed
            self._files.submit(self._artifacts.let_go, artifact.root.parent)

    async def held(self, entry: Entry, *, is_listed: bool = False) -> ArtifactRecord | None:
        """
        The record of an artifact that has one more user now. None: it is gone, or damaged; it is let go then.

        `is_listed`: its owner has done so just now.
        """
        if not self._artifacts.hold(entry):
            return None
        record = None
        try:
            record = await self._files.run(lambda _: self._artifacts.opened(entry, confirms=is_listed))
        finally:
            if record is None:
                await self._let_go(entry.folder)
        return record

    async def _pulled(self, identity: Identity, source: Source) -> tuple[Artifact, ArtifactRecord]:
        """What the pull of the first caller makes."""
        key = identity.key
        pull = self._pulls.get(key)
        is_own = pull is None
        if pull is None:
            pull = self._pulls[key] = _Pull(source.waits.to_share())
            pull.task = asyncio.create_task(self._make(pull, identity, source), name=f"pull {key}")
        pull.callers += 1
        try:
            with source.waits.sharing(pull.waits):
                entry, record = await asyncio.shield(pull.task)
        except AdapterError as error:
            raise copy.copy(error) from error  # each caller has a traceback of its own
        except asyncio.CancelledError:
            if pull.callers == 1 and not pull.task.done():
                del self._pulls[key]  # no caller joins it any more
                pull.task.cancel()
                while not pull.task.done():
                    with suppress(asyncio.CancelledError):  # a second cancel must not leave the pull behind
                        await asyncio.wait({pull.task})
            if pull.task.done() and not pull.task.cancelled() and pull.task.exception() is None:
                await self._let_go(pull.task.result()[0].folder)  # it was made just then
            raise
        finally:
            pull.callers -= 1
        return entry.artifact if is_own else _hit(entry, identity), record

    async def _make(self, pull: _Pull, identity: Identity, source: Source) -> tuple[Entry, ArtifactRecord]:
        entry = Entry(identity.origin, users=1)
        try:
            with self._space.reservation() as reserved:
                try:
                    missing = await self._files.run(partial(self._begin, identity, source.contents, entry, reserved))
                    listing = await source.fill(entry.folder, missing, reserved, pull.waits)
                    record = await self._files.run(partial(self._finish, identity, entry, reserved, listing))
                except BaseException:
                    await self._let_go(entry.folder)
                    raise
                # from here on nothing is awaited: no caller comes or goes
                self._artifacts.use(entry, pull.callers - 1)
        finally:
            if self._pulls.get(identity.key) is pull:
                del self._pulls[identity.key]
        CACHE_REQUESTS.labels("miss").inc()
        return entry, record

    def _begin(
        self, identity: Identity, contents: Mapping[StoredObject, bytes], entry: Entry, reserved: Reservation, stop: Stop
    ) -> dict[str, StoredObject]:
        """
        Everything of an artifact that needs no store.

        Returns:
            What is still missing: path in the artifact → object.
        """
        artifacts, missing = self._artifacts, dict(identity.objects)
        with artifacts.volume.writing(sum(map(len, contents.values()))):
            staged = reserved.insist(artifacts.volume.new_staging)
            artifacts.put(entry, staged, {})
            for directory in sorted(directories_of((*missing, f"{FILES}/"))):  # parents first
                reserved.insist((staged / directory).mkdir)
            if identity.is_versioned and ARCHIVE not in missing:
                linked = artifacts.link(staged, entry.origin, missing, stop)
                artifacts.put(entry, staged, linked)
                CACHE_SAVED_BYTES.inc(sum(linked.values()))
            for path in [path for path, stored in missing.items() if stored in contents]:
                content = contents[missing.pop(path)]
                reserved.grow(len(content))
                _write(reserved, staged / path, content)
        return missing

    def _finish(self, identity: Identity, entry: Entry, reserved: Reservation, listing: Listing, stop: Stop) -> ArtifactRecord:
        """Publish it; `listing` is what the store has."""
        staged, confirmed, key, volume = entry.folder, boot_seconds(), None, self._artifacts.volume
        with volume.writing(0):
            record, inodes = records.recorded(staged, identity, listing)
            content = msgspec.json.encode(record)
            if len(content) > records.MAX_BYTES:
                cause = "it has too many files: each load after an unload pulls all of it again"
                _log.warning("cache.not_kept", model=listing.origin, files=len(record.files), cause=cause)
            elif identity.is_versioned:
                key = record.key
                reserved.change(len(content))
                _write(reserved, staged / records.NAME, content, records.MODE)
                records.confirm(staged, confirmed)
                inodes[os.lstat(staged / records.NAME).st_ino] = len(content)
            stop.check()
            folder = reserved.insist(partial(volume.publish, staged, identity.key))
            self._artifacts.put(entry, folder, inodes, key, confirmed)
        return record

    async def _let_go(self, folder: Path) -> None:
        await self._files.run(lambda _: self._artifacts.let_go(folder), is_stopped=False)


def _hit(entry: Entry, identity: Identity) -> Artifact:
    CACHE_REQUESTS.labels("hit").inc()
    CACHE_SAVED_BYTES.inc(sum(stored.size_bytes for stored in identity.objects.values()))
    return entry.artifact


def _ends_below(root: Path, path: str, stop: Stop) -> Ends:
    return read_ends(root / path, stop.check, lambda *_: open_below(root, path))


def _write(reserved: Reservation, path: Path, content: bytes, mode: int = FILE_MODE) -> None:
    with os.fdopen(reserved.insist(partial(open_file, path, is_new=True, mode=mode)), "wb") as file:
        reserved.write(file.fileno(), content, 0)
