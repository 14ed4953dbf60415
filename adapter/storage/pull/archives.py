"""
Archives made into plain files: `.tar`, `.tar.gz`, `.tgz`, `.zip`.

What may come out, whatever the kind: `archive_tree`. How each kind is read: `archive_zip`, `archive_tar`
and `archive_gzip`. What is wrong with an archive is a fact about the model, in one line. Knows no store.
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO, cast

from adapter.errors import InvalidRequest
from adapter.storage.pull.archive_gzip import Gunzip
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
    kind = _kind(name)
    try:
        with archive.open("rb") as file:
            if kind == "zip":
                unzip(archive, tree, stop)
            elif kind == "tar":
                untar(file, tree, stop, is_packed=False)
            else:
                untar(cast("BinaryIO", Gunzip(file, stop)), tree, stop, is_packed=True)
    except Damaged as reason:
        found = _begins_like(archive) or kind
        hint = reason if found == kind else f"it begins like {found}"
        raise tree.refusal(f"is damaged, or not what its name says: {hint}") from reason
    return tree.finish()


def _kind(name: str) -> str:
    return {".zip": "zip", ".tar": "tar"}.get(name.lower()[-4:], "gzip")


def _begins_like(archive: Path) -> str | None:
    """The kind that its first bytes tell."""
    with archive.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    return "tar" if head[257:262] == b"ustar" else next((kind for start, kind in _KINDS.items() if head.startswith(start)), None)
