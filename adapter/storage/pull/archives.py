"""
Archives made into plain files: `.tar`, `.tar.gz`, `.tgz`, `.zip`.

What may come out, whatever the kind: `archive_tree`. How each kind is read: `archive_zip`, `archive_tar`. What is wrong
with an archive is a fact about the model, in one line. Knows no store.
"""

from __future__ import annotations

import gzip
import tarfile
import zlib
from pathlib import Path
from typing import Any, BinaryIO, cast

from adapter.errors import InvalidRequest
from adapter.storage.pull import archive_zip
from adapter.storage.pull.archive_tar import Tar
from adapter.storage.pull.archive_tree import CHUNK_BYTES, FREE_BYTES, ArchiveTree, Damaged
from adapter.storage.search import shown
from adapter.volume.space import Reservation
from adapter.workers import Stop

SUFFIXES = (".tar.gz", ".tgz", ".tar", ".zip")
_OTHERS = (".gz", ".bz2", ".tbz2", ".xz", ".txz", ".zst", ".7z", ".rar")
_KINDS = {
    b"\x1f\x8b": "gzip", b"PK\3\4": "zip", b"PK\5\6": "zip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd",
    b"7z\xbc\xaf": "7z", b"Rar!": "rar",
}  # fmt: skip
"""First bytes of what is taken for one another."""
_BROKEN = (*archive_zip.BROKEN, tarfile.TarError, gzip.BadGzipFile)
"""What the libraries raise on bytes that are no archive."""
_STEP_BYTES = 16 * 1024
_MAX_SINGLE_BYTES = 1024 * 1024
"""Of a name, or of padding, in a gzip file: `gzip` reads them one by one."""


def is_archive(name: str) -> bool:
    """
    Whether a file of this name is unpacked.

    Raises:
        InvalidRequest: a kind of archive that is not supported.
    """
    if name.lower().endswith(SUFFIXES):
        return True
    if name.lower().endswith(_OTHERS):
        raise InvalidRequest(f"unpack is set, but {name!r} cannot be unpacked; supported: {', '.join(SUFFIXES)}")
    return False


def unpack(archive: Path, *, name: str, target: Path, reserved: Reservation, max_bytes: int, stop: Stop) -> dict[str, int]:
    """
    Unpack one archive into an empty directory.

    Args:
        archive: the file.
        name: the archive's for people; it tells the kind.
        target: the directory.
        reserved: grows by what is unpacked.
        max_bytes: bounds all files together.
        stop: checked between steps.

    Returns:
        Every file's length in bytes by its path below the target.

    Raises:
        InvalidModel: damaged, or with content that is not unpacked.
        DiskFull: with both numbers.
        OSError: the volume cannot be written; see `Volume.writing`.
        Stopped: the work is no longer wanted.
    """
    archive_bytes = archive.stat().st_size
    tree = ArchiveTree(name=name, archive_bytes=archive_bytes, target=target, reserved=reserved, max_bytes=max_bytes, stop=stop)
    kind = {".zip": "zip", ".tar": "tar"}.get(name.lower()[-4:], "gzip")
    try:
        with archive.open("rb") as file:
            content = cast("BinaryIO", gzip.GzipFile(fileobj=cast("Any", _Steps(file, stop))))
            for entry in archive_zip.members(archive, tree, stop) if kind == "zip" else Tar(file if kind == "tar" else content, stop):
                tree.add(entry)
            if kind == "gzip" and all(content.read(CHUNK_BYTES) for _ in range(FREE_BYTES // CHUNK_BYTES)):  # to the checksum
                raise Damaged("it goes on without end")
    except _BROKEN as error:
        found = _begins_like(archive) or kind
        hint = _words(error, kind) if found == kind else f"it begins like {found}"
        raise tree.refusal(f"is damaged, or not what its name says: {hint}") from error
    return tree.finish()


def _words(error: Exception, kind: str) -> str:
    """Why it is damaged."""
    if isinstance(error, UnicodeDecodeError):
        return f"the name {error.object[:200]!r} is not UTF-8"
    if isinstance(error, EOFError):
        return "it ends in the middle"
    if isinstance(error, (gzip.BadGzipFile, zlib.error)):
        return f"what {kind} has packed is damaged"
    return str(error) if isinstance(error, Damaged) else shown(str(error))


def _begins_like(archive: Path) -> str | None:
    """The kind that its first bytes tell."""
    with archive.open("rb") as file:
        head = file.read(512)
    return "tar" if head[257:262] == b"ustar" else next((kind for start, kind in _KINDS.items() if head.startswith(start)), None)


class _Steps:
    """A file that is read until the work is no longer wanted. Reading raises Stopped, and Damaged: bytes one by one without end."""

    def __init__(self, file: BinaryIO, stop: Stop) -> None:
        self._file = file
        self._stop = stop
        self._single_bytes = 0

    def read(self, size: int = -1, /) -> bytes:
        """The next bytes, at most a step: what follows a member of a gzip file is copied once for each."""
        self._stop.check()
        self._single_bytes = self._single_bytes + 1 if size == 1 else 0
        if self._single_bytes > _MAX_SINGLE_BYTES:
            raise Damaged("a name or the padding of gzip has no end")
        return self._file.read(min(size, _STEP_BYTES) if size >= 0 else _STEP_BYTES)
