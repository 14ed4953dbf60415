"""
A model in a bucket: listed, and ready to be read or pulled; what the cache has of it is neither read nor pulled again.

A model may be one archive (`unpack: "true"`): pulled, unpacked, and served as the files in it. What an archive holds is known
only once it was here, so opening such a model pulls it, unless the cache has what was unpacked from this version. Knows no store.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from adapter.model import Artifact, Listing, SourceFile
from adapter.ports import StoredModel
from adapter.storage.bucket import Bucket, Read, StoredObject
from adapter.storage.cache.build import Wanted as WantedArtifact
from adapter.storage.cache.cache import KeptModel
from adapter.storage.cache.record import ARCHIVE, FILES, SCHEMA, Identity
from adapter.storage.pull.archives import unpack
from adapter.storage.pull.listing import FoundModel
from adapter.storage.pull.puller import Means, Pull
from adapter.storage.pull.staged import Run, StagedFiles, Whole
from adapter.storage.search import Search, check_readable
from adapter.volume.space import Reservation
from adapter.volume.trees import Ends
from adapter.waits import Waits
from adapter.workers import Stop


class RemoteModel:
    """Implements `Found` and `StoredModel`."""

    def __init__(self, found: FoundModel, *, means: Means, search: Search, bucket_for: Callable[[Waits], Bucket]) -> None:
        """
        Args:
            found: what was listed.
            means: what it is read and pulled with.
            search: that has found it.
            bucket_for: the bucket for work that may go on for others: what it waits for is noted there.
        """
        self.listing = found.listing
        """As `StoredModel`."""
        self.contents: dict[StoredObject, bytes] = {}
        """As `Wanted`."""
        self.is_known = True
        """Whether `listing` is of the model's files."""
        self._found = found
        self._means = means
        self._waits = search.waits
        self._origin = search.origin
        self._bucket_for = bucket_for
        self._read: dict[str, SourceFile] = {}
        self._beside = {SCHEMA: found.schema} if found.schema is not None else {}
        """What the artifact has of the schema."""

    async def open(self) -> StoredModel:
        """As `Found`."""
        return self

    async def read(self, file: SourceFile) -> bytes:
        """As `StoredModel`."""
        check_readable(file, self.listing.origin)
        stored = self._found.stored(file)
        content = await self._means.cache.content(self._origin, stored)
        if content is None:
            async with self._means.cache.heeding_refusals(self._origin):
                content = await self._read_in_turn(stored, stored.size_bytes)
        self.contents[stored] = content
        if file != self.listing.schema:
            self._read[file.path] = file
        return content

    async def peek(self, file: SourceFile) -> bytes | None:
        """As `Found`."""
        check_readable(file, self.listing.origin)
        return await self._read_first(self._found.stored(file), file.size_bytes)

    async def fetch(self, files: tuple[SourceFile, ...]) -> Artifact:
        """As `StoredModel`. What was read before belongs to the artifact too, so that an equal load reads nothing."""
        wanted = {file.path: file for file in files} | self._read

        def objects() -> dict[str, StoredObject]:
            return {f"{FILES}/{path}": self._found.stored(file) for path, file in wanted.items()} | self._beside

        return (await self._take(await self._means.files.run_large(objects, len(wanted))))[0]

    async def ends(self, artifact: Artifact, files: tuple[SourceFile, ...]) -> Mapping[SourceFile, Ends]:
        """As `StoredModel`."""
        return await self._means.cache.ends(artifact, files, self._waits)

    async def fill(self, staged: Path, missing: Mapping[str, StoredObject], reserved: Reservation, waits: Waits) -> Listing:
        """As `Wanted`."""
        if missing:
            files = StagedFiles(self._means.volume, staged, missing, reserved, self._found.bucket.place)
            await Pull(self._means, self._bucket_for(waits), files, waits).run()
        return self.listing

    async def _take(self, objects: Mapping[str, StoredObject]) -> tuple[Artifact, Listing]:
        """The artifact of these objects, with one more user, and what it was made of. Raises as `fetch`; InvalidModel: as `unpack`."""
        wanted = WantedArtifact(
            identity=Identity(self._origin, objects), is_versioned=self._found.listing.is_versioned, waits=self._waits,
            contents=self.contents, read=self._read_in_turn, fill=self.fill,
        )  # fmt: skip
        return await self._means.cache.take(wanted)

    async def _read_in_turn(self, stored: StoredObject, length: int) -> bytes:
        """With credentials of our own."""
        async with self._means.asks.turn(self._found.bucket.endpoint, self._waits):
            return await self._read_first(stored, length)

    async def _read_first(self, stored: StoredObject, length: int) -> bytes:
        is_whole = length == stored.size_bytes
        read = Run(Whole(stored, self._found.bucket.place), 0, length) if is_whole else Read(stored, 0, length)
        if length:
            await self._found.bucket.read((read,))
        return bytes(read.content)


class PackedModel(RemoteModel):
    """A model in an archive. Made in a thread."""

    def __init__(self, found: FoundModel, *, means: Means, search: Search, bucket_for: Callable[[Waits], Bucket]) -> None:
        super().__init__(found, means=means, search=search, bucket_for=bucket_for)
        self._objects = {ARCHIVE: found.stored(found.listing.files[0])} | self._beside
        known = means.cache.listing(Identity(self._origin, self._objects).key) if found.listing.is_versioned else None
        self.is_known = known is not None
        self.listing = known or found.listing

    async def open(self) -> StoredModel:
        """As `Found`: unpacked."""
        return KeptModel(*await self._take(self._objects), self._means.cache, self._waits)

    async def peek(self, file: SourceFile) -> bytes | None:
        """As `Found`: a survey holds no artifact."""

    async def fill(self, staged: Path, missing: Mapping[str, StoredObject], reserved: Reservation, waits: Waits) -> Listing:
        """As `Wanted`."""
        await super().fill(staged, missing, reserved, waits)
        with waits.on(f"the unpacking of {self._found.listing.name!r}"):
            return await self._means.unpacks.run(partial(self._unpack, staged, reserved))

    def _unpack(self, staged: Path, reserved: Reservation, stop: Stop) -> Listing:
        packed, means = self._found.listing, self._means
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
        return dataclasses.replace(packed, files=listed, is_single_file=len(listed) == 1 and "/" not in listed[0].path)
