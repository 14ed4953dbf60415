"""
A read-only file system that can hang: a real mount (FUSE), whose server stops to answer, as a network volume whose server is away.

It shows what lies in another folder. The server is a process of its own, which ends with this one: a call that hangs in the mount
then gets an error. Needs `/dev/fuse` and the right to mount; `can_mount` tries. Protocol: Linux `include/uapi/linux/fuse.h`.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import TracebackType

_LIBC = ctypes.CDLL(None, use_errno=True)
_DETACH = 2
_DIE_WITH_PARENT = 1
_HEADER = struct.Struct("<IIQQIIII")
_ANSWER = struct.Struct("<IiQ")
_SILENT = (2, 36, 42)
"""FORGET, INTERRUPT and BATCH_FORGET have no answer."""
_NOTHING = (18, 25, 29, 34)
"""RELEASE, FLUSH, RELEASEDIR and ACCESS say no more than that they are done."""


_NOT_PERMITTED = (errno.EPERM, errno.EACCES, errno.ENODEV, errno.ENXIO, errno.ENOENT)
"""Of opening the device or of the mount: this machine, or the container, does not let us."""


@cache
def can_mount() -> bool:
    """Whether this process may mount a FUSE file system. Tried: root in a container often may not. Any other failure is raised."""
    with tempfile.TemporaryDirectory() as folder:
        source, mount = Path(folder, "source"), Path(folder, "mount")
        source.mkdir()
        mount.mkdir()
        try:
            with SlowVolume(source, mount):
                return True
        except OSError as error:
            if error.errno not in _NOT_PERMITTED:
                raise
            return False


class SlowVolume:
    """The mount. A context manager."""

    def __init__(self, source: Path, mount: Path) -> None:
        """`source` has the files; `mount` is an empty folder."""
        self._source = source
        self._mount = mount

    def __enter__(self) -> SlowVolume:
        command = [sys.executable, "-m", "tests.fakes.slow_volume", str(self._source), str(self._mount)]
        self._server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2])
        try:
            self._heard()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        _LIBC.umount2(os.fsencode(self._mount), _DETACH)
        self._end()

    def hang(self) -> None:
        """From now on nothing is answered."""
        self._tell(b"hang\n")

    def heal(self) -> None:
        """All that was asked meanwhile is answered."""
        self._tell(b"heal\n")

    def die(self) -> None:
        """From now on each call gets an error: the mount has no server any more, as when a driver has crashed."""
        self._server.kill()
        self._server.wait()

    def _tell(self, word: bytes) -> None:
        assert self._server.stdin is not None
        self._server.stdin.write(word)
        self._server.stdin.flush()
        self._heard()

    def _heard(self) -> None:
        assert self._server.stdout is not None
        word, _, number = self._server.stdout.readline().strip().partition(b" ")
        if word == b"no":
            raise OSError(int(number), os.strerror(int(number)), str(self._mount))
        assert word == b"ok", "the server of the volume has died"

    def _end(self) -> None:
        self._server.kill()
        self._server.communicate()


class _Server:
    """Answers the kernel."""

    def __init__(self, source: Path, mount: Path) -> None:
        self._paths: dict[int, Path] = {1: source}
        self._nodes: dict[Path, int] = {source: 1}
        self._line = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        options = f"fd={self._line},rootmode=40000,user_id=0,group_id=0,allow_other"
        if _LIBC.mount(b"slow", os.fsencode(mount), b"fuse", 0, options.encode()):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def run(self) -> None:
        """Until there are no more words, or the mount is gone."""
        lines = [0, self._line]
        print("ok", flush=True)
        while True:
            ready, _, _ = select.select(lines, [], [])
            if 0 in ready:
                word = os.read(0, 100)
                if not word:
                    return
                lines = [0] if word == b"hang\n" else [0, self._line]
                print("ok", flush=True)
            elif not self._answered():
                return

    def _answered(self) -> bool:
        try:
            request = os.read(self._line, 1 << 17)
        except OSError as error:
            return error.errno in (errno.ENOENT, errno.EINTR, errno.EAGAIN)  # else it was unmounted
        _, code, unique, node, *_ = _HEADER.unpack_from(request)
        if code in _SILENT:
            return True
        failure, content = 0, b""
        answers: dict[int, Callable[[Path, bytes], bytes]] = {
            1: self._looked_up, 3: self._attributes, 5: self._link, 14: self._opened, 15: self._read, 17: lambda *_: bytes(80),
            26: self._begun, 27: self._opened, 28: self._entries, **dict.fromkeys(_NOTHING, lambda *_: b""),
        }  # fmt: skip
        try:
            if code not in answers:
                raise OSError(errno.ENOSYS, "unknown")
            content = answers[code](self._paths[node] if node else Path(), request[_HEADER.size :])
        except OSError as error:
            failure = -(error.errno or errno.EIO)
        os.write(self._line, _ANSWER.pack(_ANSWER.size + len(content), failure, unique) + content)
        return True

    def _begun(self, _path: Path, asked: bytes) -> bytes:
        _, _, readahead, _ = struct.unpack_from("<IIII", asked)
        return struct.pack("<IIIIHHIIHH", 7, 31, readahead, 0, 16, 12, 1 << 16, 1, 0, 0).ljust(64, b"\0")

    def _looked_up(self, path: Path, asked: bytes) -> bytes:
        child = path / os.fsdecode(asked.partition(b"\0")[0])
        node = self._node(child)
        return struct.pack("<QQQQII", node, 0, 0, 0, 0, 0) + self._stat(child)

    def _attributes(self, path: Path, _asked: bytes) -> bytes:
        return struct.pack("<QII", 0, 0, 0) + self._stat(path)

    def _link(self, path: Path, _asked: bytes) -> bytes:
        return os.fsencode(path.readlink())

    def _opened(self, _path: Path, _asked: bytes) -> bytes:
        return struct.pack("<QII", 0, 0, 0)

    def _read(self, path: Path, asked: bytes) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", asked)
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(size)

    def _entries(self, path: Path, asked: bytes) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", asked)
        content = b""
        for number, child in enumerate(sorted(path.iterdir()), 1):
            name = os.fsencode(child.name)
            kind = stat.S_IFMT(child.lstat().st_mode) >> 12
            entry = struct.pack("<QQII", self._node(child), number, len(name), kind) + name
            if number > offset and len(content) + len(entry) + 8 <= size:
                content += entry.ljust(-(-len(entry) // 8) * 8, b"\0")
        return content

    def _node(self, path: Path) -> int:
        state = path.lstat()
        if path not in self._nodes:
            self._nodes[path] = state.st_ino + (1 << 40)
            self._paths[self._nodes[path]] = path
        return self._nodes[path]

    def _stat(self, path: Path) -> bytes:
        state = path.lstat()
        times = (int(state.st_atime), int(state.st_mtime), int(state.st_ctime))
        parts = (0, state.st_mtime_ns % 1_000_000_000, 0)
        rest = (state.st_mode, state.st_nlink, 0, 0, 0, 4096, 0)
        return struct.pack("<QQQQQQIIIIIIIIII", self._node(path), state.st_size, 0, *times, *parts, *rest)


if __name__ == "__main__":
    _LIBC.prctl(_DIE_WITH_PARENT, 9)
    try:
        server = _Server(Path(sys.argv[1]), Path(sys.argv[2]))
    except OSError as failure:
        print(f"no {failure.errno}", flush=True)
    else:
        server.run()
