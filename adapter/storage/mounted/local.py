"""
Models that are files already, wherever they lie.

Such files are listed from the file system, placed from there, and never changed or deleted by us. Links
inside are followed as far as `bounds` lets them. What blocks runs in the threads of the volume that it is read from.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from adapter.errors import InvalidModel, SourceChanged, SourceNotFound, SourceUnavailable, VolumeFailed
from adapter.model import Artifact, Listing, SourceFile, is_utf8
from adapter.paths import TreeTooLarge, check_size, held_bytes
from adapter.storage.mounted.bounds import CIRCLE, Bounds, is_in
from adapter.storage.mounted.reads import VolumeReads
from adapter.storage.search import MAX_OBJECTS, check_readable, readable
from adapter.volume.trees import Ends, opened, read_ends
from adapter.waits import Waits
from adapter.workers import Stop


class Place(NamedTuple):
    """Where a model lies."""

    bounds: Bounds
    """Of the model, and of the links in it."""
    path: Path
    """A file or a directory."""
    schema: Path | None
    origin: str
    """Where that is, for people."""
    name: str
    """Of the model."""


@dataclass(frozen=True)
class LocalModel:
    """A model whose files belong to others. Implements `Found` and `StoredModel`."""

    listing: Listing
    place: Place
    reads: VolumeReads
    """Threads of the volume that it is on."""
    waits: Waits
    """Told what is waited for."""

    async def open(self) -> LocalModel:
        """As `Found`."""
        return self

    async def read(self, file: SourceFile) -> bytes:
        """As `StoredModel`."""
        check_readable(file, self.listing.origin)
        return await self.reads.run(self.waits, lambda _: self._read(file))

    peek = read
    """As `Found`."""

    async def fetch(self, files: tuple[SourceFile, ...]) -> Artifact:
        """Nothing is copied: the artifact is where the files are, if they are still as listed."""

        def check(stop: Stop) -> None:
            for file in files:
                stop.check()
                _check_unchanged(self._path(file), file)

        await self.reads.run(self.waits, check)
        return Artifact(root=self._root, is_ours=False)

    def close(self) -> None:
        """As `StoredModel`: nothing is held."""

    async def ends(self, artifact: Artifact, files: tuple[SourceFile, ...]) -> Mapping[SourceFile, Ends]:
        """As `StoredModel`."""

        def look(stop: Stop) -> dict[SourceFile, Ends]:
            try:
                return {file: read_ends(self._path(file), stop.check) for file in files}
            except VolumeFailed as error:
                raise SourceUnavailable(f"{self.reads.holder}: {error.text}") from error

        return await self.reads.run(self.waits, look)

    @property
    def _root(self) -> Path:
        return self.place.path.parent if self.listing.is_single_file else self.place.path

    def _path(self, file: SourceFile) -> Path:
        schema = self.place.schema
        return schema if schema and file == self.listing.schema else self._root / file.path

    def _read(self, file: SourceFile) -> bytes:
        path = self._path(file)
        _check_unchanged(path, file)
        with readable(path), open(path, "rb", opener=opened) as held:  # others write to the volume meanwhile
            content = held.read(file.size_bytes + 1)
            _check_unchanged(path, file, held.fileno())
        return content


def list_folder(path: Path) -> Listing:
    """
    The files of any folder, or one file, of this machine; its links may lead to what lies beside it.

    Raises:
        SourceNotFound: nothing is there.
        SourceUnavailable: it cannot be read.
        InvalidModel: a link leads elsewhere, nowhere, or round in a circle.
    """
    with readable(path):
        if not path.exists():
            raise SourceNotFound(f"{path} does not exist")
        real = path.resolve()
        name = Path(os.path.abspath(path)).name  # noqa: PTH100 - a link keeps its name
        return listed(Place(Bounds(real.parent), real, None, str(path), name), Stop())


def listed(place: Place, stop: Stop, saw: Callable[[SourceFile], object] = lambda _: None) -> Listing:
    """
    What is at a place, links followed. `saw` is told what is seen on the way; `stop` ends the listing between entries.

    Raises:
        SourceNotFound: a directory without files.
        InvalidModel: not files and directories, or links that lead out of the bounds.
        SourceUnavailable: something cannot be read.
    """
    bounds, path, schema, origin, name = place

    def file(path: Path, name: str) -> SourceFile:
        stop.check()
        state = path.stat()
        if not stat.S_ISREG(state.st_mode):
            raise InvalidModel(f"{path} is neither a file nor a directory")
        found = SourceFile(name, state.st_size, _etag(state))
        saw(found)
        return found

    try:
        is_single = not stat.S_ISDIR(path.stat().st_mode)
        places = [(path, path.name)] if is_single else _files_below(path, bounds, stop)
        files = sorted((file(*each) for each in places), key=lambda file: file.path)
        described = file(schema, schema.name) if schema else None
    except TreeTooLarge as problem:
        raise InvalidModel(f"{path} {problem}; is it really one model?") from problem
    except OSError as error:
        raise SourceUnavailable(f"{error.filename or path} cannot be read: {error.strerror}") from error
    if not files:
        raise SourceNotFound(f"the directory {path} holds no files")
    return Listing(origin=origin, name=name, is_single_file=is_single, files=tuple(files), schema=described)


def _files_below(top: Path, bounds: Bounds, stop: Stop) -> Iterator[tuple[Path, str]]:
    """
    Each file, and its path in the directory. No place is entered, and no link followed, before the bounds have let it.

    Entries are counted while they come, so that links cannot multiply without end: a directory may have millions, and a network
    volume may take its time for them.
    """
    count = held = 0
    pending: list[tuple[Path, str, tuple[str, ...]]] = [(top, "", ())]
    while pending:
        directory, prefix, above = pending.pop()
        real = str(bounds.check(directory))
        if any(is_in(each, real) for each in above):
            raise InvalidModel(f"the link {directory} leads {CIRCLE}")
        with os.scandir(directory) as entries:
            for entry in entries:
                stop.check()
                count += 1
                path, name = Path(entry.path), f"{prefix}{entry.name}"
                held += held_bytes(name)
                check_size(0, held)
                if count > MAX_OBJECTS:
                    raise TreeTooLarge(f"holds more than {MAX_OBJECTS} files and directories")
                if not is_utf8(name):
                    raise InvalidModel(f"{name!r} in {top} is a name that is not UTF-8")
                if entry.is_symlink():
                    bounds.check(path)
                if entry.is_dir():
                    pending.append((path, f"{name}/", (*above, real)))
                else:
                    yield path, name


def _etag(state: os.stat_result) -> str:
    return f"{state.st_mtime_ns}-{state.st_size}-{state.st_ino}"


def _check_unchanged(path: Path, file: SourceFile, held: int | None = None) -> None:
    """`held`: what was opened at the path. Raises SourceChanged."""
    try:
        state = path.stat() if held is None else os.fstat(held)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise SourceChanged(f"{path} has gone after the listing ({error.strerror})") from error
    if _etag(state) != file.etag:
        raise SourceChanged(f"{path} was changed after the listing")
