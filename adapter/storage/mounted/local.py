"""
Models that are files already, wherever they lie.

Such files are listed from the file system, placed from there, and never changed or deleted by us. Links
inside are followed as far as `bounds` lets them. What blocks runs in the threads of the volume that it is read from.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from adapter.ends import Count, Ends, read_ends
from adapter.errors import InvalidModel, SourceChanged, SourceNotFound, SourceUnavailable, VolumeFailed
from adapter.model import Artifact, Listing, SourceFile
from adapter.storage.mounted.bounds import Bounds
from adapter.storage.mounted.reads import Reads
from adapter.storage.search import MAX_OBJECTS, Search, check_readable, readable
from adapter.storage.secret.files import opened
from adapter.waits import Waits
from adapter.workers import Stop


@dataclass(frozen=True)
class Listed:
    """What was found, and where."""

    listing: Listing
    path: Path
    """The model itself, a file or a directory."""
    schema: Path | None


class LocalModel:
    """A model whose files belong to others. Implements `Found` and `StoredModel`."""

    def __init__(self, listed: Listed, *, reads: Reads, waits: Waits, schema_reads: Reads | None = None) -> None:
        """
        Args:
            listed: what is there.
            reads: threads of the volume that it is on.
            waits: told what is waited for.
            schema_reads: of the schema's volume, where that is another one.
        """
        self.listing = listed.listing
        self._root = listed.path.parent if listed.listing.is_single_file else listed.path
        self._schema = listed.schema
        self._reads = reads
        self._schema_reads = schema_reads or reads
        self._waits = waits

    async def open(self) -> LocalModel:
        """As `Found`."""
        return self

    async def read(self, file: SourceFile) -> bytes:
        """As `StoredModel`."""
        check_readable(file, self.listing.origin)
        reads = self._schema_reads if file == self.listing.schema else self._reads
        return await reads.run(self._waits, lambda _: self._read(file))

    async def peek(self, file: SourceFile) -> bytes | None:
        """As `Found`: what lies elsewhere than the listed files is left to a load."""
        is_elsewhere = file == self.listing.schema and self._schema_reads is not self._reads
        return None if is_elsewhere else await self.read(file)

    async def fetch(self, files: tuple[SourceFile, ...]) -> Artifact:
        """Nothing is copied: the artifact is where the files are, if they are still as listed."""

        def check(stop: Stop) -> None:
            for file in files:
                stop.check()
                _check_unchanged(self._path(file), file)

        await self._reads.run(self._waits, check)
        return Artifact(root=self._root, is_ours=False)

    async def ends(self, artifact: Artifact, counts: Mapping[SourceFile, Count | None]) -> Mapping[SourceFile, Ends]:
        """As `StoredModel`."""

        def look(stop: Stop) -> dict[SourceFile, Ends]:
            try:
                return {file: read_ends(self._path(file), count, stop.check) for file, count in counts.items()}
            except VolumeFailed as error:
                raise SourceUnavailable(f"{self._reads.holder}: {error.text}") from error

        return await self._reads.run(self._waits, look)

    def _path(self, file: SourceFile) -> Path:
        return self._schema if self._schema is not None and file == self.listing.schema else self._root / file.path

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
    top = Path(os.path.abspath(path))  # noqa: PTH100 - the last link is followed below
    if not top.exists():
        raise SourceNotFound(f"{path} does not exist")
    bounds = Bounds(root=top.resolve().parent)
    with readable(path):
        return Walk(None, Stop()).listing(top, bounds, origin=str(path), name=top.name, schema=None)


class Walk:
    """Files of a tree, links followed. Counts entries, so that links cannot multiply without end."""

    def __init__(self, search: Search | None, stop: Stop) -> None:
        """`search` is told what is seen on the way; `stop` ends the listing between entries."""
        self._search = search
        self._stop = stop
        self._entries = 0

    def listing(self, path: Path, bounds: Bounds, *, origin: str, name: str, schema: Path | None) -> Listing:
        """
        What is at a path that exists, with the schema at another one.

        Raises:
            SourceNotFound: a directory without files.
            InvalidModel: not files and directories, or links that lead out of the bounds.
            SourceUnavailable: something cannot be read.
        """
        is_single = not stat.S_ISDIR(_state(path).st_mode)
        found = [self.file(path, path.name)] if is_single else sorted(self._tree(path, bounds), key=lambda file: file.path)
        if not found:
            raise SourceNotFound(f"the directory {path} holds no files")
        described = self.file(schema, schema.name) if schema else None
        return Listing(origin=origin, name=name, is_single_file=is_single, files=tuple(found), schema=described)

    def _tree(self, top: Path, bounds: Bounds) -> list[SourceFile]:
        files: list[SourceFile] = []
        pending: list[tuple[Path, str, tuple[tuple[int, int], ...]]] = [(top, "", (_identity(top),))]
        while pending:
            directory, prefix, above = pending.pop()
            for entry in self._entries_of(top, directory, prefix):
                path = f"{prefix}{entry.name}"
                if entry.is_symlink():
                    bounds.check(Path(entry.path))
                if not _is_directory(entry):
                    files.append(self.file(Path(entry.path), path))
                    continue
                identity = _identity(Path(entry.path))
                if identity in above:
                    raise InvalidModel(f"the link {entry.path} leads round in a circle")
                pending.append((Path(entry.path), f"{path}/", (*above, identity)))
        return files

    def file(self, path: Path, name: str) -> SourceFile:
        """
        One file, as it is listed under this name.

        Raises:
            InvalidModel: it is no file.
            SourceUnavailable: it cannot be read.
        """
        self._stop.check()
        state = _state(path)
        if not stat.S_ISREG(state.st_mode):
            raise InvalidModel(f"{path} is neither a file nor a directory")
        file = SourceFile(name, state.st_size, _etag(state))
        if self._search is not None:
            self._search.saw(file)
        return file

    def _entries_of(self, top: Path, directory: Path, prefix: str) -> list[os.DirEntry[str]]:
        """Counted while they come: a directory may have millions, and a network volume may take its time for them."""
        entries = []
        with readable(directory), os.scandir(directory) as found:
            for entry in found:
                self._count(top, f"{prefix}{entry.name}")
                entries.append(entry)
        return entries

    def _count(self, top: Path, path: str) -> None:
        self._stop.check()
        self._entries += 1
        if self._entries > MAX_OBJECTS:
            raise InvalidModel(f"{top} holds more than {MAX_OBJECTS} files and directories; is it really one model?")
        try:
            path.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InvalidModel(f"{path!r} in {top} is a name that is not UTF-8") from error


def _is_directory(entry: os.DirEntry[str]) -> bool:
    with readable(Path(entry.path)):
        return entry.is_dir()


def _state(path: Path) -> os.stat_result:
    with readable(path):
        return path.stat()


def _identity(path: Path) -> tuple[int, int]:
    state = _state(path)
    return state.st_dev, state.st_ino


def _etag(state: os.stat_result) -> str:
    return f"{state.st_mtime_ns}-{state.st_size}-{state.st_ino}"


def _check_unchanged(path: Path, file: SourceFile) -> None:
    try:
        state = path.stat()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise SourceChanged(f"{path} has gone after the listing ({error.strerror})") from error
    if _etag(state) != file.etag:
        raise SourceChanged(f"{path} was changed after the listing")
