"""
Models that are one archive (`unpack: "true"`): pulled, unpacked beside, and served as the files in it.

What is in an archive is known only when it is here, so opening such a model pulls it; the listing is
remembered by the archive's version, so that an equal load asks the store for no more than that. What
was unpacked and is never fetched goes when the model object does.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections import OrderedDict
from pathlib import Path

from adapter.errors import SourceUnavailable
from adapter.model import Artifact, Listing, SourceFile
from adapter.storage.bucket import Bucket, StoredObject
from adapter.storage.pull.archives import Unpacking
from adapter.storage.pull.listing import FoundModel
from adapter.storage.pull.puller import Puller
from adapter.storage.pull.remote import RemoteModel
from adapter.storage.search import check_readable
from adapter.volume import Volume
from adapter.waits import Waits
from adapter.workers import Stop, Workers

_REMEMBERED = 1000
_ARCHIVE = "archive"


class Unpacker:
    """Unpacks archives, any number at once, and remembers what is in them."""

    def __init__(self, *, volume: Volume, puller: Puller, pulls: Workers, files: Workers, max_bytes: int) -> None:
        """
        Args:
            volume: where files go.
            puller: gets the archive.
            pulls: threads that unpack.
            files: threads that delete.
            max_bytes: of one unpacked model.
        """
        self.volume = volume
        self.pulls = pulls
        self.files = files
        self._puller = puller
        self._max_bytes = max_bytes
        self._listings: OrderedDict[tuple[str, StoredObject, SourceFile | None], Listing] = OrderedDict()

    def known(self, bucket: Bucket, found: FoundModel) -> Listing | None:
        """What is in this version of an archive, if it was unpacked before."""
        return self._listings.get(_version(bucket, found))

    async def unpack(self, bucket: Bucket, found: FoundModel, waits: Waits) -> tuple[Path, Listing]:
        """
        Pull and unpack into an artifact that the caller owns.

        Raises:
            InvalidModel: it cannot be unpacked safely.
            SourceError, DiskFull: it cannot be pulled.
        """
        assert found.single is not None  # noqa: S101 - the table has looked
        packed = await self._puller.pull(bucket, {_ARCHIVE: found.single})
        job = _Job(self.volume, found, self._max_bytes)
        try:
            try:
                with waits.on(f"the unpacking of {found.listing.name!r}"):
                    root, listing = await self.pulls.run(lambda stop: job.run(packed.root / _ARCHIVE, stop))
            finally:
                await self.files.run_to_end(lambda _: self.volume.discard(packed.root))
        except BaseException:  # also a cancel while the archive is deleted
            await self.files.run_to_end(job.undo)
            raise
        if found.single.etag:
            self._listings[_version(bucket, found)] = listing
            while len(self._listings) > _REMEMBERED:
                self._listings.popitem(last=False)
        return root, listing


class PackedModel:
    """A model in an archive that was found and not yet opened. Implements `Found`."""

    def __init__(self, *, unpacker: Unpacker, bucket: Bucket, found: FoundModel, remote: RemoteModel, waits: Waits) -> None:
        self.remote = remote
        self.unpacker = unpacker
        self._bucket = bucket
        self._found = found
        self._waits = waits

    @property
    def listing(self) -> Listing | None:
        """As `Found`."""
        return self.unpacker.known(self._bucket, self._found)

    async def open(self) -> UnpackedModel:
        """As `Found`: unpacked, unless what is in this version of the archive is known."""
        listing = self.listing
        if listing is not None:
            return UnpackedModel(self, listing, None)
        root, listing = await self.unpack()
        return UnpackedModel(self, listing, root)

    async def unpack(self) -> tuple[Path, Listing]:
        """As `Unpacker`."""
        return await self.unpacker.unpack(self._bucket, self._found, self._waits)


class UnpackedModel:
    """A model in an archive. Implements `StoredModel`."""

    def __init__(self, packed: PackedModel, listing: Listing, root: Path | None) -> None:
        """
        Args:
            packed: where it comes from.
            listing: what is in it.
            root: where it lies on the volume, if it does; this object owns it.
        """
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
        return await self._packed.unpacker.pulls.run(lambda _: _content(path))

    async def fetch(self, files: tuple[SourceFile, ...]) -> Artifact:
        """All of the archive is there already; the caller owns it now."""
        root = await self._unpacked()
        if self._leftover is not None:
            self._leftover.detach()
        self._root = self._leftover = None
        return Artifact(root=root, is_ours=True)

    async def _unpacked(self) -> Path:
        if self._root is None:
            self._keep((await self._packed.unpack())[0])
        assert self._root is not None  # noqa: S101 - just kept
        return self._root

    def _keep(self, root: Path) -> None:
        volume, files = self._packed.unpacker.volume, self._packed.unpacker.files
        self._root = root
        self._leftover = weakref.finalize(self, lambda: files.start(lambda _: volume.discard(root)))
        self._leftover.atexit = False


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
            Unpacking(name=self._found.listing.name, target=staged, volume=self._volume, max_bytes=self._max_bytes, stop=stop).run(archive)
            names = list(staged.iterdir())
            if len(names) == 1 and names[0].is_dir() and not names[0].name.isdecimal():
                outer, staged = staged, self._new()
                names[0].rename(staged)
                self._volume.discard(outer)
            root = self._volume.publish(staged)
            self._made.append(root)
            return root, _listed(root, self._found, stop)

    def undo(self, _stop: Stop) -> None:
        for path in self._made:
            self._volume.discard(path)

    def _new(self) -> Path:
        path = self._volume.new_staging()
        self._made.append(path)
        return path


def _version(bucket: Bucket, found: FoundModel) -> tuple[str, StoredObject, SourceFile | None]:
    assert found.single is not None  # noqa: S101 - the table has looked
    return bucket.place, found.single, found.listing.schema


def _listed(root: Path, found: FoundModel, stop: Stop) -> Listing:
    """The files below the root; their version is the archive's."""
    files = []
    version = found.listing.files[0].etag
    for path in root.rglob("*"):
        stop.check()
        if path.is_file():
            files.append(SourceFile(path.relative_to(root).as_posix(), path.stat().st_size, version))
    ordered = tuple(sorted(files, key=lambda file: file.path))
    return dataclasses.replace(found.listing, files=ordered, is_single_file=len(ordered) == 1 and "/" not in ordered[0].path)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SourceUnavailable(f"{path} cannot be read: {error.strerror}") from error
