"""
Models that are files already, wherever they lie.

Such files are listed from the file system, placed from there, and never changed or deleted by us. What blocks runs in the threads
of the volume that it is read from.

A link is followed to its end, one component at a time, as the kernel does for Triton: what counts is where that end lies,
not how it is written. What lies elsewhere is not even looked at, since it may be a claim whose server does not answer.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from adapter.errors import InvalidModel, SourceChanged, SourceNotFound, SourceUnavailable, VolumeFailed
from adapter.model import Artifact, Listing, SourceFile, is_utf8
from adapter.paths import TreeTooLarge, check_size, held_bytes
from adapter.storage.mounted.reads import VolumeReads
from adapter.storage.search import MAX_OBJECTS, check_readable, readable
from adapter.volume.trees import Ends, opened, read_ends
from adapter.waits import Waits
from adapter.workers import Stop

NOWHERE = "nowhere"
CIRCLE = "round in a circle"
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
"""What a file system says of a path that leads to nothing; any other error is trouble of its own."""
_MOST_LINKS = 40
"""The kernel follows no more. Source: path_resolution(7)."""


class LeadsAstray(Exception):
    """A path does not lead to anything that it may lead to: `out of …`, `into …`, `nowhere` or `round in a circle`."""

    def __init__(self, text: str, rest: Path = Path()) -> None:
        """`rest`: the absolute path as it goes on outside, where nothing was looked at; else empty."""
        super().__init__(text)
        self.rest = rest


def steps(path: Path) -> Iterator[tuple[str, list[str]]]:
    """
    Each place on the way to the end of an absolute path, links followed, and the names after it, the next one last.

    A place is looked at when the step after it is asked for. The last step is the end.

    Raises:
        LeadsAstray: it leads nowhere, or round in a circle.
        OSError: the file system cannot tell.
    """
    here, links, ahead = "/", 0, list(reversed(path.parts[1:]))
    while ahead:
        name = ahead.pop()
        if name in ("", "."):
            continue
        here = os.path.dirname(here) if name == ".." else os.path.join(here, name)  # noqa: PTH118, PTH120 - the hot path of many links
        yield here, ahead
        try:
            target = os.readlink(here)  # noqa: PTH115 - likewise
        except OSError as error:
            if error.errno in _NOT_THERE:
                raise LeadsAstray(NOWHERE) from error
            if error.errno != errno.EINVAL:
                raise
            continue  # no link
        links += 1
        if links > _MOST_LINKS:
            raise LeadsAstray(CIRCLE)
        here = "/" if target.startswith("/") else os.path.dirname(here)  # noqa: PTH120 - likewise
        ahead += reversed(target.split("/"))
    yield here, ahead


class Bounds:
    """Where a model, and the links in it, may lead: the one rule. Of folders inside each other, the innermost decides."""

    def __init__(self, *folders: Path, closed: tuple[Path, ...] = ()) -> None:
        """
        Look at the folders. Blocks.

        Args:
            folders: everything in these, and themselves. Texts name the first.
            closed: nothing in these.
        """
        self._top = folders[0]
        self._is_open = {os.path.realpath(folder): folder in folders for folder in (*closed, *folders)}
        self._way = {"/"}
        """Places on the way to the folders, by the names with which they are configured: these folders may be links."""
        for folder in (*folders, *closed):
            with suppress(LeadsAstray):
                self._way.update(here for here, _ in steps(folder))

    def end(self, path: Path) -> Path:
        """
        Where an absolute path ends. Something is there.

        Raises:
            LeadsAstray: it leads elsewhere, nowhere, or round in a circle.
            OSError: the file system cannot tell.
        """
        here = "/"
        for here, ahead in steps(path):
            if here not in self._way:
                self._enter(here, ahead)
        self._enter(here, [])
        return Path(here)

    def check(self, path: Path, absent: str = "") -> Path:
        """
        As `end`, for a path of a request, or a link in a model.

        Raises:
            InvalidModel: it leads astray.
            SourceNotFound: it leads nowhere; with the text `absent`, if there is one.
        """
        try:
            return self.end(path)
        except LeadsAstray as astray:
            if absent and str(astray) == NOWHERE:
                raise SourceNotFound(absent) from astray
            raise InvalidModel(f"{path} leads {astray}; a model's links must stay below {self._top}") from astray

    def _enter(self, place: str, ahead: list[str]) -> None:
        """Raise LeadsAstray for a real path that may not be entered."""
        around = max((folder for folder in self._is_open if is_in(place, folder)), key=len, default=None)
        if around is not None and self._is_open[around]:
            return
        is_inside = around is not None and is_in(around, os.path.realpath(self._top))
        words = f"into {around}, where no model may lie" if is_inside else f"out of {self._top}"
        raise LeadsAstray(words, Path(place, *reversed(ahead)))


def is_in(path: str, folder: str) -> bool:
    """Whether a real path is the folder, or lies in it."""
    return folder in (path, "/") or path.startswith(f"{folder}/")


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
                return {file: read_ends(self._path(file), stop.check, partial(_opened, file)) for file in files}
            except VolumeFailed as error:  # it is not our volume
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
        with readable(path), open(path, "rb", opener=partial(_opened, file)) as held:  # others write to the volume meanwhile
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


def _opened(file: SourceFile, path: str, flags: int) -> int:
    """An `opener`: what is opened is what was listed, wherever a link leads by now. Raises SourceChanged, OSError."""
    held = opened(path, flags)
    try:
        _check_unchanged(Path(path), file, held)
    except BaseException:
        os.close(held)
        raise
    return held


def _check_unchanged(path: Path, file: SourceFile, held: int | None = None) -> None:
    """`held`: what was opened at the path. Raises SourceChanged."""
    try:
        state = path.stat() if held is None else os.fstat(held)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise SourceChanged(f"{path} has gone after the listing ({error.strerror})") from error
    if _etag(state) != file.etag:
        raise SourceChanged(f"{path} was changed after the listing")
