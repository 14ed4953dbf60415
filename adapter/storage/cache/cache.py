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
import secrets
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from adapter.errors import AdapterError, SourceDenied, SourceNotFound, SourceUnavailable
from adapter.model import Artifact, Listing, SourceFile
from adapter.storage.bucket import StoredObject
from adapter.storage.cache.artifacts import Artifacts, Entry
from adapter.storage.cache.build import Build, Wanted
from adapter.storage.cache.record import FILES, SCHEMA, ArtifactRecord
from adapter.storage.search import Found, check_readable
from adapter.telemetry.metrics import CACHE_REQUESTS, CACHE_SAVED_BYTES
from adapter.volume.space import Space
from adapter.volume.trees import Ends, read_below, read_ends
from adapter.volume.volume import Volume
from adapter.waits import Waits
from adapter.workers import Stop, Workers

_STALE_SECONDS = 5.0
"""Longest silence in a listing where the cache can stand in for a store that is away; never more than a third of the budget."""
_TICK_SECONDS = 0.01

_log = structlog.stdlib.get_logger(__name__)


@dataclass(eq=False)
class _Pull:
    waits: Waits
    callers: int = 0
    task: asyncio.Task[tuple[Entry, Listing]] = field(init=False)
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

    async def take(self, wanted: Wanted) -> tuple[Artifact, Listing]:
        """
        The artifact, found or made by the first caller, with one more user; and what its model had then.

        Raises:
            SourceError, DiskFull, InvalidModel: as `wanted`; the artifact may be there, but not for these credentials.
        """
        async with self.heeding_refusals(wanted.identity.origin):
            key = secrets.token_hex(8)
            if wanted.is_versioned:
                key = await self._files.run_large(lambda: wanted.identity.key, len(wanted.identity.objects))
            while (entry := self._artifacts.find(key)) is not None:
                some = next((stored for stored in wanted.identity.objects.values() if stored.size_bytes), None)
                if some is not None and not entry.confirmed:
                    await wanted.read(some, 1)
                if (record := await self._held(entry, is_listed=True)) is not None:
                    return _hit(entry, wanted), record.listing
            return await self._pulled(key, wanted)

    async def content(self, origin: str, stored: StoredObject) -> bytes | None:
        """A small file, from an artifact of this origin; None: it must be read from the store."""
        has_some = bool(self._artifacts.of_origin(origin))
        return await self._files.run(lambda _: self._artifacts.content(origin, stored)) if has_some else None

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
            for entry in entries:
                entry.confirmed = 0.0
            await self._files.run_to_end(lambda _: self._artifacts.confirm(entries, 0.0))
            raise

    async def stale(self, entry: Entry, cause: str, waits: Waits) -> KeptModel | None:
        """The model of this artifact, and why its store is not asked; None: the artifact cannot be used."""
        record = await self._held(entry)
        if record is None:
            return None
        _log.warning("cache.stale", model=record.listing.origin, cause=cause)
        CACHE_REQUESTS.labels("stale").inc()
        CACHE_SAVED_BYTES.inc(sum(file.size_bytes for file in record.files))
        return KeptModel(_artifact(entry), record.listing, self, waits, cause=cause, paths={file.path for file in record.files})

    async def read(self, artifact: Artifact, path: str, size_bytes: int) -> bytes:
        """A small file of an artifact that is held. Raises OSError."""
        return await self._files.run(lambda _: read_below(artifact.root.parent, path, size_bytes))

    async def reclaim(self, key: str) -> Artifact | None:
        """One more user of an artifact of a model that is placed since an earlier process, or whose store is away."""
        await self.ready()
        entry = self._artifacts.find(key)
        return None if entry is None or await self._held(entry) is None else _artifact(entry)

    async def ends(self, artifact: Artifact, files: tuple[SourceFile, ...], waits: Waits) -> dict[SourceFile, Ends]:
        """Both ends of files of an artifact that is held. Raises as `read_ends`."""

        def look(stop: Stop) -> dict[SourceFile, Ends]:
            return {file: read_ends(artifact.root / file.path, stop.check) for file in files}

        with waits.on("the model's files to be read on the volume"):
            return await self._looks.run(look)

    async def release(self, artifact: Artifact) -> None:
        """One user less. Completes even when cancelled."""
        await self._let_go(artifact.root.parent)

    def abandon(self, artifact: Artifact) -> None:
        """As `release`, some time soon: for a finalizer."""
        self._files.start(lambda _: self._artifacts.let_go(artifact.root.parent))

    async def _held(self, entry: Entry, *, is_listed: bool = False) -> ArtifactRecord | None:
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

    async def _pulled(self, key: str, wanted: Wanted) -> tuple[Artifact, Listing]:
        """What the pull of the first caller makes."""
        pull = self._pulls.get(key)
        is_own = pull is None
        if pull is None:
            pull = self._pulls[key] = _Pull(wanted.waits.to_share())
            pull.task = asyncio.create_task(self._make(key, pull, wanted), name=f"pull {key}")
        pull.callers += 1
        try:
            with wanted.waits.sharing(pull.waits):
                entry, listing = await asyncio.shield(pull.task)
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
        return _artifact(entry) if is_own else _hit(entry, wanted), listing

    async def _make(self, key: str, pull: _Pull, wanted: Wanted) -> tuple[Entry, Listing]:
        try:
            with self._space.reservation() as reserved:
                build = Build(self._artifacts, reserved, wanted, Entry(wanted.identity.origin, users=1))
                try:
                    missing = await self._files.run(build.begin)
                    listing = await wanted.fill(build.entry.folder, missing, reserved, pull.waits)
                    await self._files.run(partial(build.finish, listing))
                except BaseException:
                    await self._let_go(build.entry.folder)
                    raise
                # from here on nothing is awaited: no caller comes or goes
                self._artifacts.use(build.entry, pull.callers - 1)
        finally:
            if self._pulls.get(key) is pull:
                del self._pulls[key]
        CACHE_REQUESTS.labels("miss").inc()
        CACHE_SAVED_BYTES.inc(build.linked_bytes)
        return build.entry, listing

    async def _let_go(self, folder: Path) -> None:
        await self._files.run_to_end(lambda _: self._artifacts.let_go(folder))


def _hit(entry: Entry, wanted: Wanted) -> Artifact:
    CACHE_REQUESTS.labels("hit").inc()
    CACHE_SAVED_BYTES.inc(sum(stored.size_bytes for stored in wanted.identity.objects.values()))
    return _artifact(entry)


def _artifact(entry: Entry) -> Artifact:
    return Artifact(root=entry.folder / FILES, is_ours=True, key=entry.key)


class KeptModel:
    """
    A model that lies in an artifact, which is held until it is fetched, or the model object goes: it was unpacked, or its store is
    away. Then it is the one that this very reader was confirmed for last, and what the store would say now is not known.

    Implements `StoredModel`.
    """

    def __init__(
        self, artifact: Artifact, listing: Listing, cache: Cache, waits: Waits, *, cause: str = "", paths: set[str] | None = None
    ) -> None:
        """
        Args:
            artifact: with a user more.
            listing: what the store had.
            cache: whose artifact it is.
            waits: of the load.
            cause: why the store is not asked for what the artifact has not.
            paths: in the artifact; None: it has all.
        """
        self.listing = listing
        self._artifact, self._cache, self._waits, self._cause, self._paths = artifact, cache, waits, cause, paths
        self._is_held = True

    async def read(self, file: SourceFile) -> bytes:
        """As `StoredModel`."""
        check_readable(file, self.listing.origin)
        path = SCHEMA if file == self.listing.schema else f"{FILES}/{file.path}"
        try:
            return await self._cache.read(self._artifact, path, file.size_bytes)
        except OSError as error:
            raise SourceUnavailable(self._cause or f"{file.path!r} cannot be read: {error.strerror}") from error

    async def fetch(self, files: tuple[SourceFile, ...]) -> Artifact:
        """As `StoredModel`."""
        if self._paths is not None and not self._paths.issuperset(f"{FILES}/{file.path}" for file in files):
            raise SourceUnavailable(self._cause)
        self._is_held = False
        return self._artifact

    async def ends(self, artifact: Artifact, files: tuple[SourceFile, ...]) -> Mapping[SourceFile, Ends]:
        """As `StoredModel`."""
        return await self._cache.ends(artifact, files, self._waits)

    def __del__(self) -> None:
        """What was never fetched is let go."""
        if self._is_held:
            self._cache.abandon(self._artifact)


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
