"""
A file system whose n-th writing call fails, and maybe all after that, until it is mended.

Every call of this process that changes something below a folder is seen at the border to the kernel: the functions of `os` and
`open`. Others pass. What fails has no effect; only a `write` may have taken a part before the next one fails, as on a full disk.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

GROWING = ("open", "write", "mkdir", "link", "symlink")
"""What needs bytes or inodes."""
SHRINKING = ("rename", "chmod", "unlink", "rmdir", "truncate", "utime")
_BY_PATH = {
    "mkdir": "mkdir", "chmod": "chmod", "unlink": "unlink", "remove": "unlink", "rmdir": "rmdir", "truncate": "truncate", "utime": "utime",
    "mkfifo": "mkdir", "mknod": "mkdir", "chown": "chmod", "lchown": "chmod", "setxattr": "chmod", "removexattr": "chmod",
}  # fmt: skip
_BY_DESCRIPTOR = {
    "write": "write", "pwrite": "write", "writev": "write", "pwritev": "write", "ftruncate": "truncate", "fchmod": "chmod",
    "fsync": "write", "fdatasync": "write", "fchown": "chmod",
}  # fmt: skip
_BY_BOTH = {"rename": "rename", "replace": "rename", "link": "link", "symlink": "symlink"}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


@dataclass(frozen=True)
class Fault:
    """What goes wrong."""

    number: int
    """The `errno`."""
    kinds: tuple[str, ...]
    """Of calls that can fail so."""
    lasts: bool
    """Whether all later calls of these kinds fail too, until the disk is mended."""

    def __str__(self) -> str:
        return f"{errno.errorcode[self.number]}{' from there on' if self.lasts else ''}"


FAULTS = (
    Fault(errno.ENOSPC, GROWING, lasts=False),
    Fault(errno.ENOSPC, GROWING, lasts=True),
    Fault(errno.EDQUOT, GROWING, lasts=True),
    Fault(errno.EROFS, GROWING + SHRINKING, lasts=True),
    Fault(errno.EIO, GROWING + SHRINKING, lasts=False),
    Fault(errno.EIO, GROWING + SHRINKING, lasts=True),
    Fault(errno.EMFILE, ("open", "read"), lasts=False),
)


class FailingDisk:
    """Whatever lies below a folder. Call from any thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = os.path.realpath(folder)
        self._lock = threading.Lock()
        self._fault: Fault | None = None
        self._left = 0
        self.failed: list[str] = []
        """What has failed since the last `break_at`: kind and path."""

    def break_at(self, call: int, fault: Fault) -> None:
        """From now on, the call of this number (the first is 1) fails."""
        with self._lock:
            self._fault, self._left, self.failed = fault, call, []

    def mend(self) -> list[str]:
        """Nothing fails any more. Returns what has failed."""
        with self._lock:
            self._fault = None
            return self.failed

    def meet(self, kind: str, *paths: str) -> None:
        """One call. Raises OSError."""
        with self._lock:
            fault = self._fault
            if fault is None or kind not in fault.kinds or not any(self._is_inside(path) for path in paths):
                return
            if kind == "read" and self._is_tritons(paths[0]):
                return
            self._left -= 1
            if self._left > 0 or (self._left < 0 and not fault.lasts):
                return
            self.failed.append(f"{kind} {os.path.relpath(paths[-1], self.folder)}")
        raise OSError(fault.number, os.strerror(fault.number), paths[0])

    def _is_tritons(self, path: str) -> bool:
        """The fake Triton reads in this process; the adapter reads no file there."""
        return path.startswith(f"{self.folder}/_triton_models")

    def _is_inside(self, path: str) -> bool:
        return path == self.folder or path.startswith(self.folder + "/")

    @contextmanager
    def installed(self) -> Iterator[FailingDisk]:
        """While inside, calls of this process go through here."""
        with pytest.MonkeyPatch.context() as patch:
            for name, kind in _BY_PATH.items():
                patch.setattr(os, name, self._seen(getattr(os, name), partial(_at_path, kind)))
            for name, kind in _BY_DESCRIPTOR.items():
                patch.setattr(os, name, self._seen(getattr(os, name), partial(_at_descriptor, kind)))
            for name, kind in _BY_BOTH.items():
                patch.setattr(os, name, self._seen(getattr(os, name), partial(_at_both, kind)))
            patch.setattr(os, "splice", self._seen(os.splice, lambda _, target, *__, **___: ("write", _place("", target))))
            patch.setattr(os, "open", self._seen(os.open, _at_open))
            opened = self._file(io.open)
            patch.setattr(io, "open", opened)
            patch.setattr(builtins, "open", opened)
            yield self

    def _seen(self, call: Callable[..., Any], about: Callable[..., tuple[str, ...]]) -> Callable[..., Any]:
        """The call, which may fail before; `about`: from its arguments to its kind and paths."""

        def met(*arguments: Any, **options: Any) -> Any:
            if self._fault is not None:
                self.meet(*about(*arguments, **options))
            return call(*arguments, **options)

        return met

    def _file(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def met(file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
            is_writing = any(letter in mode for letter in "wax+")
            if self._fault is None:
                return call(file, mode, *arguments, **options)
            if not isinstance(file, int):
                self.meet("open" if is_writing else "read", _place(file, None))
            opened = call(file, mode, *arguments, **options)
            place = _place("", file) if isinstance(file, int) else _place(file, None)
            if is_writing and self._is_inside(place):
                return _File(opened, self, place)
            return opened

        return met


class _File:
    """An open file: its buffer is written by the C library of Python, which asks nobody."""

    def __init__(self, file: Any, disk: FailingDisk, place: str) -> None:
        self._file = file
        self._disk = disk
        self._place = place

    def write(self, content: Any) -> Any:
        self._disk.meet("write", self._place)
        return self._file.write(content)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _at_path(kind: str, path: Any, *_: Any, dir_fd: int | None = None, **__: Any) -> tuple[str, str]:
    return kind, _place(path, dir_fd)


def _at_descriptor(kind: str, descriptor: Any, *_: Any) -> tuple[str, str]:
    return kind, _place("", descriptor)


def _at_both(kind: str, source: Any, target: Any, *_: Any, **options: Any) -> tuple[str, ...]:
    there = _place(target, options.get("dst_dir_fd", options.get("dir_fd")))
    return (kind, there) if kind == "symlink" else (kind, _place(source, options.get("src_dir_fd")), there)


def _at_open(path: Any, flags: int, *_: Any, **options: Any) -> tuple[str, str]:
    return "open" if flags & _WRITING else "read", _place(path, options.get("dir_fd"))


def _place(path: Any, descriptor: int | None) -> str:
    """The absolute path, links in its folders included, as far as they are there."""
    name = os.fsdecode(path) if not isinstance(path, int) else ""
    if isinstance(path, int):
        descriptor = path
    if descriptor is not None and not name.startswith("/"):
        try:
            name = os.path.join(os.readlink(f"/proc/self/fd/{descriptor}"), name).rstrip("/")
        except OSError:
            return ""
    head, tail = os.path.split(os.path.abspath(name))
    return os.path.join(os.path.realpath(head), tail)
