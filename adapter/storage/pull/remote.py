"""
A model in a bucket: listed, and ready to be read or pulled; what the cache has of it is neither read nor pulled again.

A model may be one archive (`unpack: "true"`): pulled, unpacked, and served as the files in it. What an archive holds is known
only once it was here, so opening such a model pulls it, unless the cache has what was unpacked from this version.
What is held and never fetched is let go when the model object goes. Knows no store.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from adapter.model import Artifact, Listing, SourceFile
from adapter.storage.bucket import Bucket, Read, StoredObject
from adapter.storage.cache.cache import Cache, Taken
from adapter.storage.cache.cache import Wanted as WantedArtifact
from adapter.storage.cache.identity import ARCHIVE, FILES, SCHEMA, Identity
from adapter.storage.pull.archives import unpack
from adapter.storage.pull.listing import FoundModel
from adapter.storage.pull.puller import EndpointQueues, Puller
from adapter.storage.pull.staged import Content
from adapter.storage.search import Search, check_readable, readable
from adapter.volume.space import Reservation
from adapter.volume.trees import Ends, read_below
from adapter.volume.volume import Volume, make_plain_directory
from adapter.waits import Waits
from adapter.workers import Stop, Workers


@dataclass(frozen=True, kw_only=True)
class Means:
    """What models in buckets are read, pulled and unpacked with."""

    volume: Volume
    cache: Cache
    puller: Puller
    asks: EndpointQueues
    """Listings and small reads."""
    files: Workers
    """Threads that work on the volume alone."""
    unpacks: Workers
    """Threads that unpack."""
    most_unpacked_bytes: int
    """Of one model."""


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
        self.contents: dict[StoredObject, bytes] = {}
        """As `Source`."""
        self.has_read = False
        """As `Source`."""
        self._found = found
        self._means = means
        self._waits = search.waits
        self._origin = search.origin
        self._bucket_for = bucket_for
        self._read: dict[str, SourceFile] = {}

    @property
    def listing(self) -> Listing:
        """As `StoredModel`."""
        return self._found.listing

    async def open(self) -> RemoteModel:
        """As `Found`."""
        return self

    async def read(self, file: SourceFile) -> bytes:
        """As `StoredModel`."""
        check_readable(file, self.listing.origin)
        stored, content = self._found.stored(file), b""
        if stored.size_bytes:
            known = await self._means.cache.content(self._origin, stored) if stored.is_versioned else None
            async with self._means.cache.heeding_refusals(self._origin):
                content = await self._read_in_turn(stored, stored.size_bytes) if known is None else known
        if stored.is_versioned:
            self.contents[stored] = content
            if file != self.listing.schema:
                self._read[file.path] = file
        return content

    async def peek(self, file: SourceFile) -> bytes | None:
        """As `Found`."""
        check_readable(file, self.listing.origin)
        stored = self._found.stored(file)
        return await self._read_first(stored, stored.size_bytes) if stored.size_bytes else b""

    async def fetch(self, files: tuple[SourceFile, ...]) -> Artifact:
        """As `StoredModel`. What was read before belongs to the artifact too, so that an equal load reads nothing."""
        wanted = {file.path: file for file in files} | self._read

        def objects() -> dict[str, StoredObject]:
            return {f"{FILES}/{path}": self._found.stored(file) for path, file in wanted.items()}

        return (await self._take(await self._means.files.run_large(objects, len(wanted)), self.listing)).artifact

    async def ends(self, artifact: Artifact, files: tuple[SourceFile, ...]) -> Mapping[SourceFile, Ends]:
        """As `StoredModel`."""
        return await self._means.cache.ends(artifact, files, self._waits)

    async def prove(self, stored: StoredObject) -> None:
        """As `Source`."""
        await self._read_in_turn(stored, 1)

    async def fill(self, staged: Path, missing: Mapping[str, StoredObject], reserved: Reservation, waits: Waits) -> Listing:
        """As `Source`."""
        if missing:
            await self._means.puller.pull(self._bucket_for(waits), missing, waits, reserved=reserved, staged=staged)
        return self.listing

    async def _take(self, objects: Mapping[str, StoredObject], listing: Listing | None) -> Taken:
        """The artifact of these objects and the schema, with one more user. Raises as `fetch`; InvalidModel: as `unpack`."""
        found, waits = self._found, self._waits
        schema = found.listing.schema
        if schema is not None and found.listing.is_versioned and found.stored(schema) not in self.contents:
            await self.read(schema)
        wanted = WantedArtifact(identity=self._identity(objects), is_versioned=found.listing.is_versioned, listing=listing, waits=waits)
        return await self._means.cache.take(wanted, self)

    def _identity(self, objects: Mapping[str, StoredObject]) -> Identity:
        schema = self._found.schema
        if schema is None or not self._found.listing.is_versioned:
            return Identity(self._origin, objects)
        return Identity(self._origin, {**objects, SCHEMA: schema})

    async def _read_in_turn(self, stored: StoredObject, length: int) -> bytes:
        """With credentials of our own."""
        async with self._means.asks.turn(self._found.bucket.endpoint, self._waits):
            content = await self._read_first(stored, length)
        self.has_read = True
        return content

    async def _read_first(self, stored: StoredObject, length: int) -> bytes:
        content = Content(stored, self._found.bucket.place)
        sink = content if length == stored.size_bytes else content.keep
        await self._found.bucket.read((Read(stored, 0, length, sink),))
        return bytes(content.content)


class PackedModel(RemoteModel):
    """A model in an archive. Made in a thread. Holds the artifact, once there was need of it."""

    def __init__(self, found: FoundModel, *, means: Means, search: Search, bucket_for: Callable[[Waits], Bucket]) -> None:
        super().__init__(found, means=means, search=search, bucket_for=bucket_for)
        self._objects = {ARCHIVE: found.stored(found.listing.files[0])}
        self._known = means.cache.listing(self._identity(self._objects).key) if found.listing.is_versioned else None
        self._artifact: Artifact | None = None
        self._leftover: weakref.finalize[..., PackedModel] | None = None

    @property
    def is_known(self) -> bool:
        """Whether `listing` is of the files in the archive, and not of the archive."""
        return self._known is not None

    @property
    def listing(self) -> Listing:
        """As `StoredModel`, once it is known."""
        return self._known or super().listing

    async def open(self) -> PackedModel:
        """As `Found`: unpacked, unless what this version of the archive holds is known."""
        if self._known is None:
            await self._taken()
        return self

    async def peek(self, file: SourceFile) -> bytes | None:
        """As `Found`: a survey holds no artifact."""

    async def read(self, file: SourceFile) -> bytes:
        """As `StoredModel`."""
        if file == self.listing.schema:
            return await super().read(file)
        check_readable(file, self.listing.origin)
        root = (await self._taken()).root

        def work(_stop: Stop) -> bytes:
            with readable(root / file.path):
                return read_below(root, file.path, file.size_bytes)

        return await self._means.files.run(work)

    async def fetch(self, files: tuple[SourceFile, ...]) -> Artifact:
        """All of the archive is there already; the caller has it now."""
        artifact = await self._taken()
        if self._leftover is not None:
            self._leftover.detach()
        self._artifact = self._leftover = None
        return artifact

    async def fill(self, staged: Path, missing: Mapping[str, StoredObject], reserved: Reservation, waits: Waits) -> Listing:
        """As `Source`."""
        means = self._means
        packed = await means.puller.pull(self._bucket_for(waits), missing, waits, reserved=reserved)
        try:
            with waits.on(f"the unpacking of {self._found.listing.name!r}"):
                return await means.unpacks.run(partial(self._unpack, packed / ARCHIVE, staged, reserved))
        finally:
            await means.files.run_to_end(lambda _: means.volume.discard(packed))
            reserved.change(-self._found.listing.size_bytes)

    def _unpack(self, archive: Path, staged: Path, reserved: Reservation, stop: Stop) -> Listing:
        packed, means = self._found.listing, self._means
        with means.volume.writing(packed.size_bytes):
            outer, target = staged / "unpacked", staged / FILES
            make_plain_directory(outer)
            files = unpack(archive, name=packed.name, target=outer, reserved=reserved, max_bytes=means.most_unpacked_bytes, stop=stop)
            names = list(outer.iterdir())
            target.rmdir()
            if len(names) == 1 and names[0].is_dir() and not names[0].name.isdecimal():
                names[0].rename(target)
                outer.rmdir()
                files = {path.partition("/")[2]: size_bytes for path, size_bytes in files.items()}
            else:
                outer.rename(target)
        listed = tuple(SourceFile(path, files[path], packed.files[0].etag) for path in sorted(files))
        return dataclasses.replace(packed, files=listed, is_single_file=len(listed) == 1 and "/" not in listed[0].path)

    async def _taken(self) -> Artifact:
        if self._artifact is None:
            taken = await self._take(self._objects, None)
            cache, artifact = self._means.cache, taken.artifact
            self._artifact, self._known = artifact, self._known or taken.listing
            self._leftover = weakref.finalize(self, lambda: cache.abandon(artifact))
            self._leftover.atexit = False
        return self._artifact
