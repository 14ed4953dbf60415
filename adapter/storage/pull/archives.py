"""
Archives made into plain files: `.tar`, `.tar.gz`, `.tgz`, `.zip`.

What may come out, whatever the kind: `archive_tree`. How each kind is read: `archive_zip`, `archive_tar`
and `archive_gzip`. What is wrong with an archive is a fact about the model, in one line. Knows no store.
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO, cast

from adapter.errors import InvalidRequest
from adapter.storage.pull.archive_gzip import Gunzipped
from adapter.storage.pull.archive_tar import untar
from adapter.storage.pull.archive_tree import ArchiveTree, Damaged
from adapter.storage.pull.archive_zip import unzip
from adapter.volume.space import Reservation
from adapter.workers import Stop

SUFFIXES = (".tar.gz", ".tgz", ".tar", ".zip")
_OTHERS = (".gz", ".bz2", ".tbz2", ".xz", ".txz", ".zst", ".7z", ".rar")
_HEAD_BYTES = 512
_KINDS = {
    b"\x1f\x8b": "gzip",
    b"PK\3\4": "zip",
    b"PK\5\6": "zip",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"7z\xbc\xaf": "7z",
    b"Rar!": "rar",
}
"""First bytes of what is taken for one another."""


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


class Unpacking:
    """One archive on its way into an empty directory."""

    def __init__(self, *, name: str, target: Path, reserved: Reservation, max_bytes: int, stop: Stop) -> None:
        """`name` is the archive's, and tells its kind; `target` is an empty directory; `reserved` grows; `max_bytes` bounds all files."""
        self._name = name
        self._target = target
        self._reserved = reserved
        self._max_bytes = max_bytes
        self._stop = stop

    def run(self, archive: Path) -> dict[str, int]:
        """
        Unpack it.

        Returns:
            Every file's length in bytes by its path below the target.

        Raises:
            InvalidModel: damaged, or with content that is not unpacked.
            DiskFull: with both numbers.
            OSError: the volume cannot be written; see `Volume.writing`.
            Stopped: the work is no longer wanted.
        """
        tree = ArchiveTree(
            name=self._name,
            archive_bytes=archive.stat().st_size,
            target=self._target,
            reserved=self._reserved,
            max_bytes=self._max_bytes,
            stop=self._stop,
        )
        try:
            self._unpack(archive, tree)
        except Damaged as reason:
            hint = self._other_kind(archive)
            raise tree.refusal(f"is damaged, or not what its name says: {hint or reason}") from reason
        return tree.finish()

    def _unpack(self, archive: Path, tree: ArchiveTree) -> None:
        name = self._name.lower()
        if name.endswith(".zip"):
            unzip(archive, tree, self._stop)
            return
        with archive.open("rb") as file:
            is_packed = not name.endswith(".tar")
            untar(cast("BinaryIO", Gunzipped(file, self._stop)) if is_packed else file, tree, self._stop, is_packed=is_packed)

    def _other_kind(self, archive: Path) -> str | None:
        """What it begins like, where that is not its name's kind."""
        with archive.open("rb") as file:
            head = file.read(_HEAD_BYTES)
        expected = {".zip": "zip", ".tar": "tar"}.get(self._name.lower()[-4:], "gzip")
        kind = "tar" if head[257:262] == b"ustar" else next((kind for start, kind in _KINDS.items() if head.startswith(start)), expected)
        return None if kind == expected else f"it begins like {kind}"
