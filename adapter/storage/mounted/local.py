"""
Models that are files already: ModelMesh's storage helper has pulled them, or a volume claim holds them.

Such files are listed from the file system, placed from there, and never changed or deleted by us. Links
inside are followed as far as `bounds` lets them. Blocks; runs in threads.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from adapter.errors import InvalidModel, InvalidRequest, SourceChanged, SourceNotFound
from adapter.model import Artifact, Listing, SourceFile
from adapter.storage.mounted.bounds import Bounds
from adapter.storage.search import MAX_OBJECTS, Search, T, asked, check_readable, readable
from adapter.storage.secret.files import opened
from adapter.waits import Waits
from adapter.workers import Stop, Workers


class LocalModel:
    """A model whose files belong to somebody else. Implements `Found` and `StoredModel`."""

    def __init__(self, *, listing: Listing, path: Path, schema: Path | None, asks: Workers, waits: Waits, holder: str) -> None:
        """
        Args:
            listing: what is there.
            path: the model itself, a file or a directory.
            schema: where the schema is.
            asks: threads for reads.
            waits: told what is waited for.
            holder: of the files, in words.
        """
        self.listing = listing
        self._root = path.parent if listing.is_single_file else path
        self._schema = schema
        self._asks = asks
        self._waits = waits
        self._holder = holder

    async def open(self) -> LocalModel:
        """As `Found`."""
        return self

    async def read(self, file: SourceFile) -> bytes:
        """As `StoredModel`."""
        check_readable(file, self.listing.origin)
        return await self._asked(lambda _: self._read(file))

    async def fetch(self, files: tuple[SourceFile, ...]) -> Artifact:
        """Nothing is copied: the artifact is where the files are, if they are still as listed."""

        def check(stop: Stop) -> None:
            for file in files:
                stop.check()
                _check_unchanged(self._path(file), file)

        await self._asked(check)
        return Artifact(root=self._root, is_ours=False)

    async def _asked(self, work: Callable[[Stop], T]) -> T:
        def told(stop: Stop) -> T:
            with self._waits.on(self._holder):
                return work(stop)

        return await asked(self._asks, self._waits, told)

    def _path(self, file: SourceFile) -> Path:
        return self._schema if self._schema is not None and file == self.listing.schema else self._root / file.path

    def _read(self, file: SourceFile) -> bytes:
        path = self._path(file)
        _check_unchanged(path, file)
        with readable(path), open(path, "rb", opener=opened) as open_file:  # others write to the volume meanwhile
            content = open_file.read(file.size_bytes + 1)
        _check_unchanged(path, file)
        return content


def is_below(path: str, root: Path) -> bool:
    """Whether an absolute path, as written, lies below the root."""
    written = Path(path)
    return written.is_absolute() and ".." not in written.parts and root in written.parents


class HelpedModels:
    """Models that the storage helper has pulled to absolute paths below ROOT_MODEL_DIR."""

    def __init__(self, root: Path, own: tuple[Path, ...], claims: Path, asks: Workers) -> None:
        """
        Args:
            root: ROOT_MODEL_DIR.
            own: the adapter's own folders; no model lies in them.
            claims: where volume claims are mounted. The storage helper links to a model in one of them.
            asks: threads for later reads; the network volume of a claim can hang like any store.
        """
        self._root = root
        self._own = own
        self._claims = claims
        self._asks = asks

    def find(self, search: Search, stop: Stop) -> LocalModel:
        """
        List the files at the absolute path that is searched for. Raises as `Finder.find`.

        Raises:
            InvalidModel: a link leads out of the root and of the claim that the path leads into, nowhere, or round in a circle.
        """
        holder = "the model volume"
        with search.waits.on(holder):
            path, bounds = self._below_root(search.spec.path, "modelPath")
            schema = self._below_root(search.spec.schema_path, "schema_path") if search.spec.schema_path else None
            listing = Walk(search, stop).listing(path, bounds, origin=str(path), name=path.name, schema=schema)
        where = schema[0] if schema else None
        return LocalModel(listing=listing, path=path, schema=where, asks=self._asks, waits=search.waits, holder=holder)

    def _below_root(self, text: str, what: str) -> tuple[Path, Bounds]:
        """The path, and where links at and below it may lead."""
        if "\0" in text or not is_below(text, self._root):
            raise InvalidRequest(f"{what} {text!r} is not an absolute path below {self._root}, where models that were already pulled are")
        path = Path(text)
        if any(path.is_relative_to(folder) for folder in self._own):
            raise InvalidRequest(f"{what} {text!r} lies in a folder of the adapter's own")
        if not os.path.lexists(path):
            raise SourceNotFound(f"{what} {path} does not exist")
        bounds = Bounds(root=self._root, own=self._own).with_claim_of(path, self._claims)
        bounds.check(path)
        return path, bounds


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
    return Walk(None, Stop()).listing(top, bounds, origin=str(path), name=top.name, schema=None)


class Walk:
    """Files of a tree, links followed. Counts entries, so that links cannot multiply without end."""

    def __init__(self, search: Search | None, stop: Stop) -> None:
        """`search` is told what is seen on the way; `stop` ends the walk between entries."""
        self._search = search
        self._stop = stop
        self._entries = 0

    def listing(self, path: Path, bounds: Bounds, *, origin: str, name: str, schema: tuple[Path, Bounds] | None) -> Listing:
        """
        What is at a path that exists, with the schema at another one.

        Raises:
            SourceNotFound: a directory without files.
            InvalidModel: not files and directories, or links that lead out of the bounds.
            SourceUnavailable: something cannot be read.
        """
        is_single = not path.is_dir()
        found = [self._file(path, path.name)] if is_single else sorted(self._tree(path, bounds), key=lambda file: file.path)
        if not found:
            raise SourceNotFound(f"the directory {path} holds no files")
        described = self._file(schema[0], schema[0].name) if schema else None
        return Listing(origin=origin, name=name, is_single_file=is_single, files=tuple(found), schema=described)

    def _tree(self, top: Path, bounds: Bounds) -> list[SourceFile]:
        files: list[SourceFile] = []
        pending: list[tuple[Path, str, tuple[tuple[int, int], ...]]] = [(top, "", (_identity(top),))]
        while pending:
            self._stop.check()
            directory, prefix, above = pending.pop()
            for entry in _entries(directory):
                path = f"{prefix}{entry.name}"
                self._count(top, path)
                if entry.is_symlink():
                    bounds.check(Path(entry.path))
                if not entry.is_dir():
                    files.append(self._file(Path(entry.path), path))
                    continue
                identity = _identity(Path(entry.path))
                if identity in above:
                    raise InvalidModel(f"the link {entry.path} leads round in a circle")
                pending.append((Path(entry.path), f"{path}/", (*above, identity)))
        return files

    def _file(self, path: Path, name: str) -> SourceFile:
        state = _state(path)
        if not stat.S_ISREG(state.st_mode):
            raise InvalidModel(f"{path} is neither a file nor a directory")
        if self._search is not None:
            self._search.seen_bytes += state.st_size
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
    with readable(directory), os.scandir(directory) as found:
        return list(found)


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
    except OSError as error:
        raise SourceChanged(f"{path} has gone after the listing ({error.strerror})") from error
    if _etag(state) != file.etag:
        raise SourceChanged(f"{path} was changed after the listing")
