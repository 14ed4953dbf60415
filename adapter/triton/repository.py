"""
Triton's model repository folder, of which the adapter is the only writer.

A model is built in a staging folder of its own on the same file system, with directories of its own
(Triton's python stub writes into them) and hard links to the artifact's files, and becomes visible
in one rename. It leaves by a rename too, into the trash, and is deleted from there as far as
permitted. One bad entry in the folder breaks Triton's index for every model: `sweep` takes such out.

Knows nothing of Triton's calls; how a model must look is `layout`'s business.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import structlog

from adapter.errors import AdapterError, InvalidRequest
from adapter.model import Artifact, Layout, SourceFile, owner_of
from adapter.volume import FILE_MODE, Volume, make_plain_directory
from adapter.workers import Stop, Workers

THREADS = 4

log = structlog.stdlib.get_logger(__name__)


class Repository:
    """Places models, and takes them out. A bundle's models go together: the top model is placed last and taken out first."""

    def __init__(self, volume: Volume) -> None:
        self._volume = volume
        self._workers = Workers("repository", THREADS)
        self._inner: dict[str, set[str]] | None = None
        """Model id → names of its bundle's inner models. Read once: nobody else writes here."""
        self._loaded_first: dict[str, tuple[str, ...]] = {}

    @property
    def folder(self) -> Path:
        """What Triton's `--model-repository` must be."""
        return self._volume.repository_dir

    def inner_names(self, model_id: str) -> tuple[str, ...]:
        """The inner models that are placed for this id, also of an earlier run; empty unless the model is a bundle."""
        return tuple(sorted(self._placed_inner().get(model_id, ())))

    def loaded_first(self, model_id: str) -> tuple[str, ...]:
        """The inner models to load before the model itself, in this order."""
        return self._loaded_first.get(model_id, ())

    async def place(self, model_id: str, layout: Layout, artifact: Artifact) -> None:
        """
        Build the model's tree and rename it into the folder; whatever had the name is discarded first.

        Raises:
            DiskFull: no room for the directory entries or for what we write.
            AdapterError: the volume does not let us.
        """
        stale = [self._at(name) for name in self.inner_names(model_id)]
        parts = {self._at(name): part for name, part in (*layout.inner.items(), (model_id, replace(layout, inner={}, loaded_first=())))}
        if layout.inner:
            self._placed_inner().setdefault(model_id, set()).update(layout.inner)
            self._loaded_first[model_id] = layout.loaded_first
        try:
            await self._workers.run(lambda stop: self._place(parts, stale, artifact, stop))
        except asyncio.CancelledError:  # it may come when the thread has just renamed
            await self.remove(model_id)
            raise
        if stale:
            self._placed_inner()[model_id] = set(layout.inner)

    async def remove(self, model_id: str) -> None:
        """Take the model out of the folder. Absent is fine."""
        paths = [self._at(name) for name in (model_id, *self.inner_names(model_id))]
        await self._workers.run(lambda _: self._discard(paths))
        self._placed_inner().pop(model_id, None)
        self._loaded_first.pop(model_id, None)

    async def clear(self) -> None:
        """Take everything out of the folder."""
        await self._workers.run(self._clear)
        self._inner = None
        self._loaded_first.clear()

    async def size_bytes(self, model_id: str) -> int:
        """Bytes of the model's files, links followed, each file once; 0 when it is absent."""
        paths = [self._at(name) for name in (model_id, *self.inner_names(model_id))]
        return await self._workers.run(lambda stop: _size(paths, stop))

    async def ensure_directory(self, model_id: str) -> None:
        """
        Make an empty directory if there is none (a file makes way): Triton's index leaves out what has no directory.

        Raises:
            AdapterError: the volume does not let us.
        """
        path = self._at(model_id)
        try:
            await self._workers.run(lambda _: self._ensure_directory(path))
        except OSError as failure:
            raise AdapterError(f"no directory for the model can be made in {self.folder}: {failure.strerror}") from failure

    @asynccontextmanager
    async def probe(self) -> AsyncIterator[str]:
        """Inside, there is an empty directory with a name that nobody has. Raises AdapterError."""
        name = f"adapter-probe-{secrets.token_hex(8)}"
        try:
            await self.ensure_directory(name)
            yield name
        finally:
            await self.remove(name)

    async def sweep(self) -> None:
        """Take out what nobody placed: plain files, and what breaks Triton's index (dangling links, names that are not UTF-8)."""
        await self._workers.run(self._sweep)

    def close(self) -> None:
        """Take no more work."""
        self._workers.close()

    def can_hold(self, name: str) -> bool:
        """Whether a directory of the folder can have this name."""
        return bool(name) and name not in (".", "..") and "/" not in name and "\0" not in name

    def _at(self, model_id: str) -> Path:
        if not self.can_hold(model_id):
            raise InvalidRequest(f"the model id {model_id!r} cannot be the name of a directory")
        return self.folder / model_id

    def _placed_inner(self) -> dict[str, set[str]]:
        if self._inner is None:
            self._inner = {}
            for path in self._entries() if self.folder.is_dir() else []:
                if (owner := owner_of(path.name)) != path.name:
                    self._inner.setdefault(owner, set()).add(path.name)
        return self._inner

    def _discard(self, paths: Iterable[Path]) -> None:
        for path in paths:
            self._volume.discard(path)

    def _place(self, parts: Mapping[Path, Layout], stale: Iterable[Path], artifact: Artifact, stop: Stop) -> None:
        """In this order; all or none."""
        self._discard(stale)
        placed: list[Path] = []
        try:
            for destination, part in parts.items():
                self._place_one(destination, part, artifact, stop)
                placed.append(destination)
        except BaseException:
            self._discard(reversed(placed))
            raise

    def _place_one(self, destination: Path, layout: Layout, artifact: Artifact, stop: Stop) -> None:
        with self._volume.writing(sum(len(content) for content in layout.written.values())):
            staging = self._volume.new_staging()
            try:
                _build(staging, layout, artifact, stop)
                if os.path.lexists(destination):
                    self._volume.discard(destination)
                staging.rename(destination)
            except BaseException:  # also Stopped: the work is no longer wanted
                self._volume.discard(staging)
                raise

    def _ensure_directory(self, path: Path) -> None:
        if path.is_dir():
            return
        self._ensure_folder()
        if os.path.lexists(path):
            self._volume.discard(path)
        with suppress(FileExistsError):  # another thread was first
            make_plain_directory(path)

    def _clear(self, stop: Stop) -> None:
        for path in self._entries():
            stop.check()
            self._volume.discard(path)

    def _sweep(self, stop: Stop) -> None:
        for path in self._entries():
            stop.check()
            if not path.is_dir() or not _is_utf8(path.name):
                log.warning("entry.swept", name=repr(path.name), folder=str(self.folder), cause="not a directory that the adapter placed")
                self._volume.discard(path)

    def _ensure_folder(self) -> None:
        """Only where the folder itself is gone: an unload must go on, whatever else of the volume is lost."""
        if not self.folder.is_dir():
            self._volume.restore()

    def _entries(self) -> list[Path]:
        self._ensure_folder()
        return [self.folder / name for name in os.listdir(self.folder)]  # noqa: PTH208 - plain names, undecodable ones too


def _build(staging: Path, layout: Layout, artifact: Artifact, stop: Stop) -> None:
    """Paths are plain text here: a `Path` for each of 100,000 files takes longer than all links."""
    made = {""}
    for directory in layout.directories:
        _make_directories(staging, directory, made)
    for placed, file in layout.links.items():
        stop.check()
        _make_directories(staging, placed.rpartition("/")[0], made)
        _link(artifact, file, f"{staging}/{placed}")
    for placed, content in layout.written.items():
        stop.check()
        _make_directories(staging, placed.rpartition("/")[0], made)
        target = staging / placed
        target.write_bytes(content)
        target.chmod(FILE_MODE)


def _link(artifact: Artifact, file: SourceFile, target: str) -> None:
    source = f"{artifact.root}/{file.path}"
    try:
        mode = os.stat(source).st_mode & 0o777  # noqa: PTH116 - see `_build`
    except FileNotFoundError:  # Triton would pass over a link to nothing without a word
        raise AdapterError(f"the model's file {file.path} is not on the volume any more") from None
    if not artifact.is_ours:
        Path(target).symlink_to(Path(source).absolute())
        return
    if mode != FILE_MODE:
        Path(source).chmod(FILE_MODE)
    os.link(source, target)


def _make_directories(top: Path, directory: str, made: set[str]) -> None:
    """Like `mkdir -p` below the staging folder, with modes that do not depend on the umask."""
    if directory not in made:
        _make_directories(top, directory.rpartition("/")[0], made)
        make_plain_directory(top / directory)
        made.add(directory)


def _size(directories: Iterable[Path], stop: Stop) -> int:
    total, seen = 0, set[tuple[int, int]]()
    for directory in directories:
        for size in _file_sizes(directory, seen):
            stop.check()
            total += size
    return total


def _file_sizes(directory: Path, seen: set[tuple[int, int]]) -> Iterator[int]:
    """Of every file below, also behind links; a directory that was seen (a link loop) is not entered again."""
    try:
        entries = list(os.scandir(directory))
    except OSError:
        return
    for entry in entries:
        try:
            status = entry.stat()
        except OSError:  # a dangling link, or deleted meanwhile
            continue
        if (status.st_dev, status.st_ino) in seen:
            continue
        seen.add((status.st_dev, status.st_ino))
        if entry.is_dir():
            yield from _file_sizes(Path(entry.path), seen)
        else:
            yield status.st_size


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
