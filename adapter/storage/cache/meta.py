"""
`meta.json` of an artifact: what it is, who may have it, and how each file looked when it was whole.

Hostile on reading: a Triton that runs as root can write the volume. So the file is bounded before it is parsed, every
value has its type and bound, paths stay below the artifact, and the name of the folder must be what the content says.
Blocks; runs in threads.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NoReturn

from adapter.boot import boot_id
from adapter.model import MAX_SIZE_BYTES, Listing, SourceFile
from adapter.paths import directories_of, path_problem
from adapter.storage.bucket import StoredObject
from adapter.storage.cache.identity import ARCHIVE, FILES, SCHEMA, Identity

FORMAT = 1
NAME = "meta.json"
MODE = 0o600
MAX_BYTES = 8 * 1024 * 1024
"""Of one record: about 25,000 files. What has more is not kept, since a parser makes up to ten times as much of it."""
MAX_READERS = 64
"""The last ones that were confirmed: whoever rotates credentials becomes another reader each time."""
_SHORT_BYTES = 16 * 1024
"""Of records that are remembered for the next look: a load looks twice."""
_MAX_VALUES = 1_000_000
_MAX_BRACKETS = 200_000
_MAX_TEXT = 4096
_MAX_SECONDS = 1e10


class Unusable(Exception):
    """This artifact cannot be used. The text is the kind of reason, for one log line for all of a kind: `another boot`."""


@dataclass(frozen=True)
class KeptFile:
    """One file of an artifact, as it was when it was whole."""

    path: str
    """Below the artifact: `files/1/model.onnx`, `schema`."""
    stored: StoredObject
    """Where it comes from; of a file that was unpacked: the archive's key and version, and the size of the file."""
    mtime_ns: int


@dataclass(frozen=True, kw_only=True)
class Meta:
    """The record of one artifact."""

    origin: str
    listing: Listing
    """All that the store had, so that it can be told while the store is away."""
    files: tuple[KeptFile, ...]
    archive: StoredObject | None = None
    """What the files were unpacked from."""
    readers: Mapping[str, float] = field(default_factory=dict)
    """Who has listed and read it with credentials of his own → when last, in seconds since the boot."""

    def identity(self) -> Identity:
        """What the artifact is."""
        if self.archive is None:
            return Identity(self.origin, {file.path: file.stored for file in self.files})
        return Identity(self.origin, {ARCHIVE: self.archive} | {file.path: file.stored for file in self.files if file.path == SCHEMA})

    def find(self, stored: StoredObject) -> KeptFile | None:
        """The file that is this version of this object; None for what was unpacked."""
        if self.archive is not None and stored.key == self.archive.key:
            return None
        wanted = version_of(stored)
        return next((file for file in self.files if version_of(file.stored) == wanted and file.stored.is_versioned), None)


def version_of(stored: StoredObject) -> tuple[str, str, int]:
    """What two objects have in common that are one version of one object; without a version that proves nothing."""
    return stored.key, stored.etag, stored.size_bytes


def dump(meta: Meta, key: str) -> bytes:
    """The record as it is written."""
    readers = sorted(meta.readers.items(), key=lambda item: item[1])[-MAX_READERS:]
    listing = meta.listing
    document = {
        "format": FORMAT,
        "boot_id": boot_id(),
        "key": key,
        "origin": meta.origin,
        "model": listing.origin,
        "archive": None if meta.archive is None else [meta.archive.key, meta.archive.etag, meta.archive.size_bytes],
        "readers": dict(readers),
        "listing": {
            "name": listing.name,
            "is_single_file": listing.is_single_file,
            "schema": _row(listing.schema) if listing.schema else None,
            "files": [_row(file) for file in listing.files],
        },
        "files": [
            {
                "path": file.path,
                "key": file.stored.key,
                "version": file.stored.etag,
                "size": file.stored.size_bytes,
                "mtime_ns": file.mtime_ns,
            }
            for file in meta.files
        ],
    }
    return json.dumps(document, ensure_ascii=True, separators=(",", ":")).encode()


def write(folder: Path, content: bytes) -> None:
    """Into the artifact's folder, in one rename, readable by us alone. Raises OSError."""
    fresh = folder / f"{NAME}.{secrets.token_hex(4)}"
    file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, MODE)
    try:
        try:
            os.fchmod(file, MODE)
            view = memoryview(content)
            while view:
                view = view[os.write(file, view) :]
        finally:
            os.close(file)
        fresh.replace(folder / NAME)
    except BaseException:
        with suppress(OSError):
            fresh.unlink()
        raise


def read(folder: Path) -> Meta:
    """
    The record of the artifact in this folder, whose name is its key.

    Raises:
        Unusable: there is none, or it is not ours, or of another boot or format.
    """
    try:
        if not stat.S_ISDIR(os.lstat(folder).st_mode):
            raise Unusable("no folder")
        return parse(_content(folder / NAME), folder.name)
    except OSError as error:
        raise Unusable("no record") from error


def parse(content: bytes, key: str) -> Meta:
    """As `read`, of what is in the file. What was read a moment ago is not parsed again."""
    return (_parsed_again if len(content) <= _SHORT_BYTES else _parsed)(content, key, boot_id())


def _parsed(content: bytes, key: str, boot: str) -> Meta:
    if content.count(b",") > _MAX_VALUES or content.count(b"[") + content.count(b"{") > _MAX_BRACKETS:
        raise Unusable("a damaged record")
    try:
        document = _mapping(json.loads(content, parse_constant=_refuse))
        if document.get("format") != FORMAT:
            raise Unusable("another format")
        if document.get("boot_id") != boot:
            raise Unusable("another boot")
        meta = _meta(document)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise Unusable("a damaged record") from error
    if document.get("key") != key or meta.identity().key != key:
        raise Unusable("a damaged record")
    return meta


_parsed_again = lru_cache(maxsize=64)(_parsed)


def check(folder: Path, meta: Meta, stop: Callable[[], None]) -> dict[int, int]:
    """
    Whether every file is what the record says, looked at without following a link.

    Args:
        folder: of the artifact.
        meta: its record.
        stop: raises when the work is no longer wanted.

    Returns:
        Inode → bytes of the files.

    Raises:
        Unusable: a file is another one, or is not there.
    """
    found: dict[int, int] = {}
    try:
        for directory in directories_of(file.path for file in meta.files):
            stop()
            if not stat.S_ISDIR(os.lstat(f"{folder}/{directory}").st_mode):
                raise Unusable("a damaged file")
        for file in meta.files:
            stop()
            state = os.lstat(f"{folder}/{file.path}")
            if not stat.S_ISREG(state.st_mode) or (state.st_size, state.st_mtime_ns) != (file.stored.size_bytes, file.mtime_ns):
                raise Unusable("a damaged file")
            found[state.st_ino] = state.st_size
    except (OSError, ValueError) as error:
        raise Unusable("a damaged file") from error
    return found


def look(folder: Path, objects: Mapping[str, StoredObject]) -> tuple[tuple[KeptFile, ...], dict[int, int]]:
    """Files that have just been made, as a record keeps them, and inode → bytes. Raises OSError."""
    kept, inodes = [], {}
    for path, stored in sorted(objects.items()):
        state = os.lstat(f"{folder}/{path}")
        kept.append(KeptFile(path, stored, state.st_mtime_ns))
        inodes[state.st_ino] = state.st_size
    return tuple(kept), inodes


def length(folder: Path) -> int:
    """Bytes of the record of the artifact in this folder; 0 where there is none that would be read."""
    try:
        length_bytes = os.lstat(folder / NAME).st_size
    except OSError:
        return 0
    return length_bytes if length_bytes <= MAX_BYTES else 0


def _content(path: Path) -> bytes:
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(file, "rb") as opened:  # noqa: PTH123 - a descriptor
        state = os.fstat(file)
        if not stat.S_ISREG(state.st_mode) or state.st_size > MAX_BYTES:
            raise Unusable("a damaged record")
        return opened.read(MAX_BYTES)


def _meta(document: Mapping[str, object]) -> Meta:
    listed = _mapping(document["listing"])
    files = tuple(_source(row) for row in _list(listed["files"]))
    _check_paths(file.path for file in files)
    schema = None if listed["schema"] is None else _source(listed["schema"])
    is_single_file = listed["is_single_file"]
    if not isinstance(is_single_file, bool):
        raise TypeError
    listing = Listing(_text(document["model"]), _path(listed["name"]), is_single_file, files, schema)
    kept = tuple(_kept(_mapping(row)) for row in _list(document["files"]))
    _check_paths(file.path for file in kept)
    archive = None
    if document["archive"] is not None:
        key, version, size_bytes = _list(document["archive"])
        archive = StoredObject(_text(key), _number(size_bytes), _text(version))
    readers = {_text(reader): _time(when) for reader, when in _mapping(document["readers"]).items()}
    if len(readers) > MAX_READERS:
        raise ValueError
    return Meta(origin=_text(document["origin"]), listing=listing, files=kept, archive=archive, readers=readers)


def _row(file: SourceFile) -> list[object]:
    return [file.path, file.size_bytes, file.etag]


def _source(row: object) -> SourceFile:
    path, size_bytes, version = _list(row)
    return SourceFile(_path(path), _number(size_bytes), _text(version))


def _kept(row: Mapping[str, object]) -> KeptFile:
    path = _path(row["path"])
    if path != SCHEMA and not path.startswith(f"{FILES}/"):
        raise ValueError
    stored = StoredObject(_text(row["key"]), _number(row["size"]), _text(row["version"]))
    if not stored.is_versioned:
        raise ValueError
    return KeptFile(path, stored, _number(row["mtime_ns"]))


def _check_paths(paths: Iterable[str]) -> None:
    listed = list(paths)
    if len(set(listed)) != len(listed) or directories_of(listed).intersection(listed):
        raise ValueError


def _mapping(value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise TypeError
    return value


def _list(value: object) -> Collection[object]:
    if not isinstance(value, list):
        raise TypeError
    return value


def _text(value: object) -> str:
    if not isinstance(value, str) or len(value) > _MAX_TEXT:
        raise TypeError
    return value


def _path(value: object) -> str:
    path = _text(value)
    if path_problem(path):
        raise ValueError
    return path


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_SIZE_BYTES:
        raise TypeError
    return value


def _time(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= _MAX_SECONDS:
        raise TypeError
    return float(value)


def _refuse(word: str) -> NoReturn:
    raise ValueError(word)
