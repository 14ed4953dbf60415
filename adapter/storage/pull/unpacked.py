"""
Models that are one archive (`unpack: "true"`): pulled, unpacked beside, and served as the files in it.

What an archive holds is known only once the archive is here, so opening such a model pulls the archive;
the listing is remembered by the archive's version, so that an equal load asks the store for no more
than that. What was unpacked and is never fetched goes when the model object does. Knows no store.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from adapter.model import Artifact, Listing, SourceFile
from adapter.paths import held_bytes
from adapter.storage.bucket import StoredObject
from adapter.storage.pull.archives import Unpacking
from adapter.storage.pull.listing import FoundModel
from adapter.storage.pull.puller import Puller
from adapter.storage.pull.remote import RemoteModel
from adapter.storage.search import check_readable, readable
from adapter.volume import Volume
from adapter.workers import Stop, Workers

_REMEMBERED_BYTES = 64 * 1024 * 1024
"""Of all listings that are remembered, by an estimate: honest models have a hundred files, and a stranger's may have 100,000."""
_FILE_BYTES = 192
"""Of one file in a listing, without its path. Measured with CPython 3.11: 140."""
_ARCHIVE = "archive"
_Version = tuple[str, StoredObject | None, SourceFile | None]
"""Bucket with its server, archive and schema."""


class Remembered:
    """What archives hold, of those that were unpacked last. Used by one thread."""

    def __init__(self) -> None:
        self._listings: dict[_Version, Listing] = {}
        self._bytes = 0

    def get(self, version: _Version) -> Listing | None:
        """What this version of an archive holds, or None."""
        return self._listings.get(version)

    def add(self, version: _Version, listing: Listing) -> None:
        """Remember it, and forget the oldest ones. What is too large by itself is never remembered."""
        self._bytes += _size_of(listing)
        if version in self._listings:
            self._bytes -= _size_of(self._listings.pop(version))
        self._listings[version] = listing
        while self._bytes > _REMEMBERED_BYTES:
            self._bytes -= _size_of(self._listings.pop(next(iter(self._listings))))


@dataclass(frozen=True, kw_only=True)
class Unpacker:
    """What archives are pulled and unpacked with, and what the archives hold that were unpacked before."""

    volume: Volume
    puller: Puller
    pulls: Workers
    """Threads that unpack."""
    files: Workers
    """Threads that work on the volume alone."""
    max_bytes: int
    """Of one unpacked model."""
    known: Remembered = field(default_factory=Remembered)


class PackedModel:
    """A model in an archive that was found and not yet opened. Implements `Found`."""

    def __init__(self, remote: RemoteModel, unpacker: Unpacker) -> None:
        self.remote = remote
        self.unpacker = unpacker
        found = remote.found
        self._version = (found.bucket.words, found.single, found.listing.schema)

    @property
    def listing(self) -> Listing | None:
        """As `Found`."""
        return self.unpacker.known.get(self._version)

    async def open(self) -> UnpackedModel:
        """As `Found`: unpacked, unless what this version of the archive holds is known."""
        if self.listing is not None:
            return UnpackedModel(self, self.listing)
        root, listing = await self.unpack()
        return UnpackedModel(self, listing, root)

    async def unpack(self) -> tuple[Path, Listing]:
        """
        Pull and unpack into an artifact that the caller owns.

        Raises:
            InvalidModel: the archive cannot be unpacked safely.
            SourceError, DiskFull: the archive cannot be pulled.
        """
        found, means = self.remote.found, self.unpacker
        packed = await means.puller.pull(found.bucket, {_ARCHIVE: found.stored(found.listing.files[0])}, self.remote.waits)
        job = _Job(means.volume, found, means.max_bytes)
        try:
            try:
                with self.remote.waits.on(f"the unpacking of {found.listing.name!r}"):
                    root, listing = await means.pulls.run(lambda stop: job.run(packed.root / _ARCHIVE, stop))
            finally:
                await means.files.run_to_end(lambda _: means.volume.discard(packed.root))
        except BaseException:  # also a cancel while the archive is deleted
            await means.files.run_to_end(job.undo)
            raise
        if found.listing.files[0].etag:
            means.known.add(self._version, listing)
        return root, listing


class UnpackedModel:
    """A model in an archive. Implements `StoredModel`. Owns the files on the volume, where there are any yet."""

    def __init__(self, packed: PackedModel, listing: Listing, root: Path | None = None) -> None:
        self.listing = listing
        self._packed = packed
        self._root: Path | None = None
        self._leftover: weakref.finalize[..., UnpackedModel] | None = None
        if root is not None:
            self._keep(root)

    async def read(self, file: SourceFile) -> bytes:
        """As `StoredModel`."""
        if file == self.listing.schema:
            return await self._packed.remote.read(file)
        check_readable(file, self.listing.origin)
        path = await self._unpacked() / file.path

        def work(_stop: Stop) -> bytes:
            with readable(path):
                return path.read_bytes()

        return await self._packed.unpacker.files.run(work)

    async def fetch(self, files: tuple[SourceFile, ...]) -> Artifact:
        """All of the archive is there already; the caller owns it now."""
        root = await self._unpacked()
        if self._leftover is not None:
            self._leftover.detach()
        self._root = self._leftover = None
        return Artifact(root=root, is_ours=True)

    async def _unpacked(self) -> Path:
        return self._root or self._keep((await self._packed.unpack())[0])

    def _keep(self, root: Path) -> Path:
        volume, files = self._packed.unpacker.volume, self._packed.unpacker.files
        self._root = root
        self._leftover = weakref.finalize(self, lambda: files.start(lambda _: volume.discard(root)))
        self._leftover.atexit = False
        return root


class _Job:
    """One unpacking: its methods run in threads, and what it has made is known whenever they end."""

    def __init__(self, volume: Volume, found: FoundModel, max_bytes: int) -> None:
        self._volume = volume
        self._found = found
        self._max_bytes = max_bytes
        self._made: list[Path] = []

    def run(self, archive: Path, stop: Stop) -> tuple[Path, Listing]:
        with self._volume.writing(self._found.listing.size_bytes):
            staged = self._new()
            name = self._found.listing.name
            files = Unpacking(name=name, target=staged, volume=self._volume, max_bytes=self._max_bytes, stop=stop).run(archive)
            names = list(staged.iterdir())
            if len(names) == 1 and names[0].is_dir() and not names[0].name.isdecimal():
                outer, staged = staged, self._new()
                names[0].rename(staged)
                self._volume.discard(outer)
                files = {path.partition("/")[2]: size_bytes for path, size_bytes in files.items()}
            root = self._volume.publish(staged)
            self._made.append(root)
            return root, _listed(files, self._found)

    def undo(self, _stop: Stop) -> None:
        for path in self._made:
            self._volume.discard(path)

    def _new(self) -> Path:
        path = self._volume.new_staging()
        self._made.append(path)
        return path


def _listed(files: Mapping[str, int], found: FoundModel) -> Listing:
    """The files, lengths by paths; their version is the archive's."""
    version = found.listing.files[0].etag
    listed = tuple(SourceFile(path, files[path], version) for path in sorted(files))
    return dataclasses.replace(found.listing, files=listed, is_single_file=len(listed) == 1 and "/" not in listed[0].path)


def _size_of(listing: Listing) -> int:
    return sum(_FILE_BYTES + held_bytes(file.path) for file in listing.files)
