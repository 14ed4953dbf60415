"""
`meta.json` of an artifact: what it is, and how each file looked when it was whole. Written once, when the artifact is made.

Its time of modification is that of the owner's last listing, in seconds since the boot; 0 after a refusal. It is hostile on reading,
since a Triton that runs as root can write the volume: the record is bounded, of the right types, its paths stay below the artifact,
and its key must be what its content says. Blocks; runs in threads.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from adapter.model import MAX_SIZE_BYTES, Listing
from adapter.paths import directories_of, path_problem
from adapter.storage.bucket import StoredObject
from adapter.storage.cache.identity import ARCHIVE, FILES, SCHEMA, Identity
from adapter.volume.boot import boot_id
from adapter.volume.trees import read_below

FORMAT = 3
NAME = "meta.json"
MODE = 0o600
MAX_BYTES = 8 * 1024 * 1024
"""Of one record: about 25,000 files. What has more is not kept."""
_NANO = 10**9
_Number = Annotated[int, msgspec.Meta(ge=0, le=MAX_SIZE_BYTES)]


class Unusable(Exception):
    """This artifact cannot be used. The text is the kind of reason, for one log line for all of a kind: `another boot`."""


class KeptFile(msgspec.Struct, frozen=True, array_like=True):
    """One file of an artifact, as it was when it was whole."""

    path: Annotated[str, msgspec.Meta(pattern=f"^({FILES}/|{SCHEMA}$)")]
    """Below the artifact: `files/1/model.onnx`, `schema`."""
    key: str
    """Of the object that it comes from; of a file that was unpacked, of the archive."""
    version: Annotated[str, msgspec.Meta(min_length=1)]
    size_bytes: _Number
    """Of the file."""
    mtime_ns: _Number

    @property
    def stored(self) -> StoredObject:
        """What it comes from."""
        return StoredObject(self.key, self.size_bytes, self.version)


class ArtifactRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The record of one artifact."""

    format: int = FORMAT
    boot_id: str
    key: str
    origin: str
    listing: Listing
    """All that the store had when the artifact was made, so that it can be told while the store is away."""
    files: tuple[KeptFile, ...]
    archive: tuple[str, _Number, str] | None = None
    """Key, bytes and version of what the files were unpacked from."""

    def identity(self) -> Identity:
        """What the artifact is."""
        if self.archive is None:
            return Identity(self.origin, {file.path: file.stored for file in self.files})
        of_schema = {file.path: file.stored for file in self.files if file.path == SCHEMA}
        return Identity(self.origin, {ARCHIVE: StoredObject(*self.archive)} | of_schema)

    def find(self, stored: StoredObject) -> KeptFile | None:
        """The file that is this version of this object; None for what was unpacked."""
        if self.archive is not None and stored.key == self.archive[0]:
            return None
        wanted = version_of(stored)
        return next((file for file in self.files if file.stored == wanted), None)


def version_of(stored: StoredObject) -> StoredObject:
    """What two objects have in common that are one version of one object."""
    return StoredObject(stored.key, stored.size_bytes, stored.etag)


def read(folder: Path, key: str) -> ArtifactRecord:
    """
    The record of the artifact in this folder.

    Raises:
        Unusable: there is none, or it is not ours, or of another boot or format.
    """
    try:
        return parse(read_below(folder, NAME, MAX_BYTES), key)
    except (OSError, ValueError) as error:
        raise Unusable("no record") from error


def parse(content: bytes, key: str) -> ArtifactRecord:
    """As `read`, of what is in the file."""
    try:
        record = msgspec.json.decode(content, type=ArtifactRecord)
        if record.format != FORMAT:
            raise Unusable("another format")
        if record.boot_id != boot_id():
            raise Unusable("another boot")
        _check(record)
        if record.key != key or record.identity().key != key:
            raise Unusable("a damaged record")
    except (ValueError, RecursionError) as error:  # what msgspec raises is a ValueError
        raise Unusable("a damaged record") from error
    return record


def dump(record: ArtifactRecord) -> bytes:
    """The record as it is written."""
    return msgspec.json.encode(record)


def _check(record: ArtifactRecord) -> None:
    """Raises ValueError: a path leads elsewhere, two are one, or a number is too large."""
    listing = record.listing
    listed = listing.files if listing.schema is None else (*listing.files, listing.schema)
    _check_paths([file.path for file in listing.files])
    _check_paths([file.path for file in record.files])
    is_odd = any(map(path_problem, [listing.name, *(file.path for file in listed)]))
    if is_odd or not all(0 <= file.size_bytes <= MAX_SIZE_BYTES for file in listed):
        raise ValueError


def _check_paths(paths: list[str]) -> None:
    if any(map(path_problem, paths)) or len(set(paths)) != len(paths) or directories_of(paths).intersection(paths):
        raise ValueError


def check(folder: Path, record: ArtifactRecord, stop: Callable[[], None]) -> dict[int, int]:
    """
    Whether every file is what the record says, looked at without following a link.

    Args:
        folder: of the artifact.
        record: its record.
        stop: raises when the work is no longer wanted.

    Returns:
        Inode → bytes of the files.

    Raises:
        Unusable: a file is another one, or is not there.
    """
    found: dict[int, int] = {}
    try:
        for directory in directories_of(file.path for file in record.files):
            stop()
            if not stat.S_ISDIR(os.lstat(f"{folder}/{directory}").st_mode):
                raise Unusable("a damaged file")
        for file in record.files:
            stop()
            state = os.lstat(f"{folder}/{file.path}")
            if not stat.S_ISREG(state.st_mode) or (state.st_size, state.st_mtime_ns) != (file.size_bytes, file.mtime_ns):
                raise Unusable("a damaged file")
            found[state.st_ino] = state.st_size
    except (OSError, ValueError) as error:
        raise Unusable("a damaged file") from error
    return found


def whole(folder: Path, key: str, stop: Callable[[], None]) -> tuple[ArtifactRecord, dict[int, int]]:
    """The record of an artifact that is whole, and its files as `check` gives them. Raises Unusable."""
    record = read(folder, key)
    return record, check(folder, record, stop)


def look(folder: Path, objects: Mapping[str, StoredObject]) -> tuple[tuple[KeptFile, ...], dict[int, int]]:
    """Files that have just been made, as a record keeps them, and inode → bytes. Raises OSError."""
    kept, inodes = [], {}
    for path, stored in sorted(objects.items()):
        state = os.lstat(f"{folder}/{path}")
        kept.append(KeptFile(path, stored.key, stored.etag, stored.size_bytes, state.st_mtime_ns))
        inodes[state.st_ino] = state.st_size
    return tuple(kept), inodes


def state_of(folder: Path) -> tuple[int, float]:
    """Bytes of the record of the artifact in this folder, and when it was confirmed; 0 and 0 where there is none that would be read."""
    try:
        state = os.lstat(folder / NAME)
    except OSError:
        return 0, 0.0
    return (state.st_size, state.st_mtime_ns / _NANO) if state.st_size <= MAX_BYTES else (0, 0.0)


def confirm(folder: Path, seconds: float) -> None:
    """Write down when the artifact was confirmed. Raises OSError."""
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.utime(NAME, ns=(int(seconds * _NANO),) * 2, dir_fd=held, follow_symlinks=False)
    finally:
        os.close(held)
