"""
Models that are files already, wherever they lie.

Such files are listed from the file system, placed from there, and never changed or deleted by us. Links
inside are followed as far as `bounds` lets them. What blocks runs in the threads of the volume that it is read from.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from adapter.errors import InvalidModel, SourceChanged, SourceNotFound, SourceUnavailable, VolumeFailed
from adapter.model import Artifact, Listing, SourceFile, is_utf8
from adapter.storage.mounted.bounds import CIRCLE, Bounds, is_in
from adapter.storage.mounted.reads import VolumeReads
from adapter.storage.search import MAX_OBJECTS, check_readable, readable
from adapter.volume.trees import Ends, opened, read_ends
from adapter.waits import Waits
from adapter.workers import Stop


@dataclass(frozen=True)
class LocalModel:
    """A model whose files belong to others. Implements `Found` and `StoredModel`."""

    listing: Listing
    path: Path
    """The model itself, a file or a directory."""
    schema: Path | None
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

    async def peek(self, file: SourceFile) -> bytes | None:
        """As `Found`."""
        return await self.read(file)

    async def fetch(self, files: tuple[SourceFile, ...]) -> Artifact:
        """Nothing is copied: the artifact is where the files are, if they are still as listed."""

        def check(stop: Stop) -> None:
            for file in files:
                stop.check()
                _check_unchanged(self._path(file), file)

        await self.reads.run(self.waits, check)
        return Artifact(root=self._root, is_ours=False)

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
        return self.path.parent if self.listing.is_single_file else self.path

    def _path(self, file: SourceFile) -> Path:
        return self.schema if self.schema is not None and file == self.listing.schema else self._root / file.path

    def _read(self, file: SourceFile) -> bytes:
        path = self._path(file)
        _check_unchanged(path, file)
        with readable(path), open(path, "rb", opener=opened) as open_file:  # others write to the volume meanwhile
            content = open_file.read(file.size_bytes + 1)
        _check_unchanged(path, file)
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
        return Tree(Bounds(real.parent), Stop()).listing(real, None, str(path), name)


class Tree:
    """Files below a place, links followed. Counts entries, so that links cannot multiply without end."""

    def __init__(self, bounds: Bounds, stop: Stop, saw: Callable[[SourceFile], object] = lambda _: None) -> None:
        """`saw` is told what is seen on the way; `stop` ends the listing between entries."""
        self._bounds = bounds
        self._stop = stop
        self._saw = saw
        self._entries = 0

    def listing(self, path: Path, schema: Path | None, origin: str, name: str) -> Listing:
        """
        What is at a path within the bounds, with the schema at another one.

        Raises:
            SourceNotFound: a directory without files.
            InvalidModel: not files and directories, or links that lead out of the bounds.
            SourceUnavailable: something cannot be read.
        """
        try:
            is_single = not stat.S_ISDIR(path.stat().st_mode)
            files = [self._file(path, path.name)] if is_single else sorted(self._below(path), key=lambda file: file.path)
            described = self._file(schema, schema.name) if schema else None
        except OSError as error:
            raise SourceUnavailable(f"{error.filename or path} cannot be read: {error.strerror}") from error
        if not files:
            raise SourceNotFound(f"the directory {path} holds no files")
        return Listing(origin=origin, name=name, is_single_file=is_single, files=tuple(files), schema=described)

    def _below(self, top: Path) -> list[SourceFile]:
        files: list[SourceFile] = []
        pending: list[tuple[Path, str, tuple[str, ...]]] = [(top, "", (str(self._bounds.check(top)),))]
        while pending:
            directory, prefix, reals = pending.pop()
            with os.scandir(directory) as entries:
                for entry in entries:
                    path, name = Path(entry.path), f"{prefix}{entry.name}"
                    self._count(top, name)
                    real = self._real(entry, reals)
                    if entry.is_dir():
                        pending.append((path, f"{name}/", (*reals, real) if entry.is_symlink() else (*reals[:-1], real)))
                    else:
                        files.append(self._file(path, name))
        return files

    def _real(self, entry: os.DirEntry[str], reals: tuple[str, ...]) -> str:
        """
        The real path of an entry, within the bounds.

        Args:
            entry: not looked at yet.
            reals: real paths of its directory, last, and of each directory above from which a link was followed.
        """
        if not entry.is_symlink():
            real = f"{reals[-1]}/{entry.name}"
            if refusal := self._bounds.refusal(real):
                raise InvalidModel(f"{entry.path} leads {refusal}")
            return real
        real = str(self._bounds.check(Path(entry.path)))
        if any(is_in(each, real) for each in reals):
            raise InvalidModel(f"the link {entry.path} leads {CIRCLE}")
        return real

    def _file(self, path: Path, name: str) -> SourceFile:
        self._stop.check()
        state = path.stat()
        if not stat.S_ISREG(state.st_mode):
            raise InvalidModel(f"{path} is neither a file nor a directory")
        file = SourceFile(name, state.st_size, _etag(state))
        self._saw(file)
        return file

    def _count(self, top: Path, path: str) -> None:
        """Counted while they come: a directory may have millions, and a network volume may take its time for them."""
        self._stop.check()
        self._entries += 1
        if self._entries > MAX_OBJECTS:
            raise InvalidModel(f"{top} holds more than {MAX_OBJECTS} files and directories; is it really one model?")
        if not is_utf8(path):
            raise InvalidModel(f"{path!r} in {top} is a name that is not UTF-8")


def _etag(state: os.stat_result) -> str:
    return f"{state.st_mtime_ns}-{state.st_size}-{state.st_ino}"


def _check_unchanged(path: Path, file: SourceFile) -> None:
    try:
        state = path.stat()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise SourceChanged(f"{path} has gone after the listing ({error.strerror})") from error
    if _etag(state) != file.etag:
        raise SourceChanged(f"{path} was changed after the listing")
