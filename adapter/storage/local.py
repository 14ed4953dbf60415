"""
Models that are already on the volume: ModelMesh's storage helper has pulled them.

They are listed from the file system, placed from there, and never changed or deleted by us. Links
inside are followed as long as they stay below the models' root. Blocks; runs in threads.
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from adapter.errors import InvalidModel, InvalidRequest, SourceChanged, SourceNotFound, SourceUnavailable
from adapter.model import Artifact, Listing, ModelSpec, SourceFile
from adapter.settings import CACHE_DIR, REPOSITORY_DIR
from adapter.storage.listing import MAX_OBJECTS, Tally
from adapter.workers import Stop, Workers


class LocalModel:
    """A model whose files belong to somebody else. Implements `StoredModel`."""

    def __init__(self, *, listing: Listing, root: Path, schema: Path | None, files: Workers, read_limit_bytes: int) -> None:
        self.listing = listing
        self._root = root
        self._schema = schema
        self._files = files
        self._read_limit_bytes = read_limit_bytes

    async def read(self, file: SourceFile) -> bytes:
        """As `StoredModel`."""
        check_readable(file, self._read_limit_bytes, self.listing.origin)
        return await self._files.run(lambda _: self._read(file))

    async def fetch(self, files: tuple[SourceFile, ...]) -> Artifact:
        """Nothing is copied: the artifact is where the files are, if they are still as listed."""

        def check(stop: Stop) -> None:
            for file in files:
                stop.check()
                _check_unchanged(self._path(file), file)

        await self._files.run(check)
        return Artifact(root=self._root, is_ours=False)

    def _path(self, file: SourceFile) -> Path:
        return self._schema if self._schema is not None and file == self.listing.schema else self._root / file.path

    def _read(self, file: SourceFile) -> bytes:
        path = self._path(file)
        _check_unchanged(path, file)
        try:
            content = path.read_bytes()
        except OSError as error:
            raise SourceUnavailable(f"{path} cannot be read: {error.strerror}") from error
        _check_unchanged(path, file)
        return content


def check_readable(file: SourceFile, limit_bytes: int, origin: str) -> None:
    """
    Small files only are read into memory.

    Raises:
        InvalidModel: the file is larger.
    """
    if file.size_bytes > limit_bytes:
        raise InvalidModel(f"{file.path!r} of {origin} has {file.size_bytes} bytes, expected at most {limit_bytes}")


def is_below(path: str, root: Path) -> bool:
    """Whether an absolute path, as written, lies below the root."""
    written = Path(path)
    return written.is_absolute() and ".." not in written.parts and root in written.parents


def find_local(root: Path, spec: ModelSpec, tally: Tally, stop: Stop, *, files: Workers, read_limit_bytes: int) -> LocalModel:
    """
    List the files at an absolute model path.

    Args:
        root: ROOT_MODEL_DIR; nothing outside of it is a model.
        spec: its path and schema_path are absolute.
        tally: told what is seen on the way.
        stop: ends the walk.
        files: threads for later reads.
        read_limit_bytes: of those.

    Raises:
        InvalidRequest: the path is not below the root, or in a folder of ours.
        SourceNotFound: nothing is there.
        InvalidModel: a link leads out of the root, nowhere, or round in a circle.
    """
    boundary = _Boundary(root)
    path = boundary.checked(spec.path, "modelPath")
    walk = _Walk(boundary, tally, stop)
    is_single = not path.is_dir()
    if is_single:
        found = [walk.file(path, path.name)]
    else:
        found = sorted(walk.tree(path), key=lambda file: file.path)
        if not found:
            raise SourceNotFound(f"the directory {path} holds no files")
    schema = schema_path = None
    if spec.schema_path:
        schema_path = boundary.checked(spec.schema_path, "schema_path")
        schema = walk.file(schema_path, schema_path.name)
    listing = Listing(origin=str(path), name=path.name, is_single_file=is_single, files=tuple(found), schema=schema)
    where = path.parent if is_single else path
    return LocalModel(listing=listing, root=where, schema=schema_path, files=files, read_limit_bytes=read_limit_bytes)


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
    walk = _Walk(_Boundary(top.resolve().parent), Tally(), Stop())
    is_single = not top.is_dir()
    found = [walk.file(top, top.name)] if is_single else sorted(walk.tree(top), key=lambda file: file.path)
    if not found:
        raise SourceNotFound(f"the directory {path} holds no files")
    return Listing(origin=str(path), name=top.name, is_single_file=is_single, files=tuple(found))


@dataclass(frozen=True)
class _Boundary:
    root: Path

    def checked(self, text: str, what: str) -> Path:
        if "\0" in text or not is_below(text, self.root):
            raise InvalidRequest(f"{what} {text!r} is not an absolute path below {self.root}, where models that were already pulled are")
        path = Path(text)
        if path.relative_to(self.root).parts[0] in (REPOSITORY_DIR, CACHE_DIR):
            raise InvalidRequest(f"{what} {text!r} lies in a folder of the adapter's own")
        if not os.path.lexists(path):
            raise SourceNotFound(f"{what} {path} does not exist")
        self.check_target(path)
        return path

    def check_target(self, path: Path) -> None:
        """Follow links to the end, and see that it lies below the root."""
        try:
            target = path.resolve(strict=True)
        except (OSError, RuntimeError) as error:  # Python before 3.13 reports a loop as RuntimeError
            is_loop = isinstance(error, RuntimeError) or error.errno == errno.ELOOP
            raise InvalidModel(f"the link {path} leads {'round in a circle' if is_loop else 'nowhere'}") from error
        real_root = self.root.resolve()
        if real_root not in target.parents:
            raise InvalidModel(f"the link {path} leads out of {self.root}; a model's links must stay below it")
        if target.relative_to(real_root).parts[0] in (REPOSITORY_DIR, CACHE_DIR):
            raise InvalidModel(f"the link {path} leads into a folder of the adapter's own")


class _Walk:
    """Files of a tree, links followed. Counts entries, so that links cannot multiply without end."""

    def __init__(self, boundary: _Boundary, tally: Tally, stop: Stop) -> None:
        self._boundary = boundary
        self._tally = tally
        self._stop = stop
        self._entries = 0

    def tree(self, top: Path) -> list[SourceFile]:
        files: list[SourceFile] = []
        pending: list[tuple[Path, str, tuple[tuple[int, int], ...]]] = [(top, "", (_identity(top),))]
        while pending:
            self._stop.check()
            directory, prefix, above = pending.pop()
            for entry in _entries(directory):
                path = f"{prefix}{entry.name}"
                self._count(top, path)
                if entry.is_symlink():
                    self._boundary.check_target(Path(entry.path))
                if not entry.is_dir():
                    files.append(self.file(Path(entry.path), path))
                    continue
                identity = _identity(Path(entry.path))
                if identity in above:
                    raise InvalidModel(f"the link {entry.path} leads round in a circle")
                pending.append((Path(entry.path), f"{path}/", (*above, identity)))
        return files

    def file(self, path: Path, name: str) -> SourceFile:
        state = _state(path)
        if not stat.S_ISREG(state.st_mode):
            raise InvalidModel(f"{path} is neither a file nor a directory")
        self._tally.seen_bytes += state.st_size
        return SourceFile(name, state.st_size, _etag(state))

    def _count(self, top: Path, path: str) -> None:
        self._entries += 1
        if self._entries > MAX_OBJECTS:
            raise InvalidModel(f"{top} holds more than {MAX_OBJECTS} files and directories; is it really one model?")
        try:
            path.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InvalidModel(f"{path!r} in {top} is a name that is not UTF-8") from error


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as found:
            return list(found)
    except OSError as error:
        raise SourceUnavailable(f"{directory} cannot be read: {error.strerror}") from error


def _state(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except OSError as error:
        raise SourceUnavailable(f"{path} cannot be read: {error.strerror}") from error


def _identity(path: Path) -> tuple[int, int]:
    state = _state(path)
    return state.st_dev, state.st_ino


def _etag(state: os.stat_result) -> str:
    return f"{state.st_mtime_ns}-{state.st_size}-{state.st_ino}"


def _check_unchanged(path: Path, file: SourceFile) -> None:
    try:
        state = path.stat()
    except OSError as error:
        raise SourceChanged(f"{path} is gone since it was listed ({error.strerror})") from error
    if _etag(state) != file.etag:
        raise SourceChanged(f"{path} was changed since it was listed")
