"""
Models that are one archive (`unpack: "true"`): pulled, unpacked, and served as the files in it.

What an archive holds is known only once the archive was here, so opening such a model pulls the archive, unless the
cache has what was unpacked from this version of it. What is held and never fetched is let go when the model object
goes. Knows no store.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from adapter.ends import Ends
from adapter.model import Artifact, Listing, SourceFile
from adapter.storage.bucket import StoredObject
from adapter.storage.cache.cache import Cache, Taken, Wanted
from adapter.storage.cache.identity import ARCHIVE, FILES, SCHEMA, Identity
from adapter.storage.pull.archives import unpack
from adapter.storage.pull.listing import FoundModel
from adapter.storage.pull.puller import Puller
from adapter.storage.pull.remote import RemoteModel
from adapter.storage.search import check_readable, readable
from adapter.volume.space import Reservation
from adapter.volume.trees import read_below
from adapter.volume.volume import Volume, make_plain_directory
from adapter.waits import Waits
from adapter.workers import Stop, Workers

_OUTER = "unpacked"


@dataclass(frozen=True, kw_only=True)
class Unpacker:
    """What archives are pulled and unpacked with."""

    volume: Volume
    cache: Cache
    puller: Puller
    pulls: Workers
    """Threads that unpack."""
    files: Workers
    """Threads that work on the volume alone."""
    max_bytes: int
    """Of one unpacked model."""


class PackedModel:
    """A model in an archive that was found and not yet opened. Made in a thread. Implements `Found` and the cache's `Source`."""

    def __init__(self, remote: RemoteModel, unpacker: Unpacker) -> None:
        self.remote = remote
        self.unpacker = unpacker
        found = remote.found
        self._archive = found.stored(found.listing.files[0])
        self._is_versioned = found.listing.is_versioned
        self.listing = unpacker.cache.listing(self._identity().key) if self._is_versioned else None
        """As `Found`."""

    @property
    def has_read(self) -> bool:
        """As `Source`."""
        return self.remote.has_read

    @property
    def contents(self) -> Mapping[StoredObject, bytes]:
        """As `Source`."""
        return self.remote.contents

    async def peek(self, file: SourceFile) -> None:
        """As `Found`: a survey holds no artifact."""

    async def open(self) -> UnpackedModel:
        """As `Found`: unpacked, unless what this version of the archive holds is known."""
        if self.listing is not None:
            return UnpackedModel(self, self.listing)
        taken = await self.take()
        return UnpackedModel(self, taken.listing, taken)

    async def take(self) -> Taken:
        """
        What was unpacked, with one more user.

        Raises:
            InvalidModel: the archive cannot be unpacked safely.
            SourceError, DiskFull: the archive cannot be pulled.
        """
        await self.remote.schema()
        remote = self.remote
        wanted = Wanted(identity=self._identity(), is_versioned=self._is_versioned, listing=None, waits=remote.waits)
        return await self.unpacker.cache.take(wanted, self)

    async def prove(self, stored: StoredObject) -> None:
        """As `Source`."""
        await self.remote.prove(stored)

    async def fill(self, staged: Path, missing: Mapping[str, StoredObject], reserved: Reservation, waits: Waits) -> Listing:
        """As `Source`."""
        found, means = self.remote.found, self.unpacker
        if others := {path: stored for path, stored in missing.items() if path != ARCHIVE}:
            await means.puller.pull(self.remote.bucket_for(waits), others, waits, reserved=reserved, staged=staged)
        packed = await means.puller.pull(self.remote.bucket_for(waits), {ARCHIVE: self._archive}, waits, reserved=reserved)
        try:
            with waits.on(f"the unpacking of {found.listing.name!r}"):
                return await means.pulls.run(partial(self._unpack, packed / ARCHIVE, staged, reserved))
        finally:
            await means.files.run_to_end(lambda _: means.volume.discard(packed))
            reserved.change(-self._archive.size_bytes)

    def _unpack(self, archive: Path, staged: Path, reserved: Reservation, stop: Stop) -> Listing:
        found, means = self.remote.found, self.unpacker
        with means.volume.writing(found.listing.size_bytes):
            outer, target = staged / _OUTER, staged / FILES
            make_plain_directory(outer)
            files = unpack(archive, name=found.listing.name, target=outer, reserved=reserved, max_bytes=means.max_bytes, stop=stop)
            names = list(outer.iterdir())
            target.rmdir()
            if len(names) == 1 and names[0].is_dir() and not names[0].name.isdecimal():
                names[0].rename(target)
                outer.rmdir()
                files = {path.partition("/")[2]: size_bytes for path, size_bytes in files.items()}
            else:
                outer.rename(target)
        return _listed(files, found)

    def _identity(self) -> Identity:
        remote = self.remote
        schema = {} if remote.found.schema is None else {SCHEMA: remote.found.schema}
        return Identity(remote.origin, {ARCHIVE: self._archive} | schema)


class UnpackedModel:
    """A model in an archive. Implements `StoredModel`. Holds the artifact, once there was need of it."""

    def __init__(self, packed: PackedModel, listing: Listing, taken: Taken | None = None) -> None:
        self.listing = listing
        self._packed = packed
        self._artifact: Artifact | None = None
        self._leftover: weakref.finalize[..., UnpackedModel] | None = None
        if taken is not None:
            self._keep(taken)

    async def read(self, file: SourceFile) -> bytes:
        """As `StoredModel`."""
        if file == self.listing.schema:
            return await self._packed.remote.read(file)
        check_readable(file, self.listing.origin)
        root = (await self._taken()).root

        def work(_stop: Stop) -> bytes:
            with readable(root / file.path):
                return read_below(root, file.path, file.size_bytes)

        return await self._packed.unpacker.files.run(work)

    async def fetch(self, files: tuple[SourceFile, ...]) -> Artifact:
        """All of the archive is there already; the caller has it now."""
        artifact = await self._taken()
        if self._leftover is not None:
            self._leftover.detach()
        self._artifact = self._leftover = None
        return artifact

    async def ends(self, artifact: Artifact, files: tuple[SourceFile, ...]) -> Mapping[SourceFile, Ends]:
        """As `StoredModel`."""
        return await self._packed.remote.ends(artifact, files)

    async def _taken(self) -> Artifact:
        return self._artifact or self._keep(await self._packed.take())

    def _keep(self, taken: Taken) -> Artifact:
        cache, artifact = self._packed.unpacker.cache, taken.artifact
        self._artifact = artifact
        self._leftover = weakref.finalize(self, lambda: cache.abandon(artifact))
        self._leftover.atexit = False
        return artifact


def _listed(files: Mapping[str, int], found: FoundModel) -> Listing:
    """The files, lengths by paths; their version is the archive's."""
    version = found.listing.files[0].etag
    listed = tuple(SourceFile(path, files[path], version) for path in sorted(files))
    return dataclasses.replace(found.listing, files=listed, is_single_file=len(listed) == 1 and "/" not in listed[0].path)
