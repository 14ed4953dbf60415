"""
The real folder, as a file system that fails: every change that the adapter makes passes here.

An operation may fail (a full disk, an error of input or output), or be the last one of a process that dies in the middle of
it. What a dead process still tries does not happen. An observer is told before each change.
"""

from __future__ import annotations

import errno
import io
import itertools
import os
import random
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from tests.simulation.fibers import Killed
from tests.simulation.loop import LIFE, Life

CHANGES = ("rename", "replace", "mkdir", "rmdir", "unlink", "remove", "link", "symlink", "write", "pwrite", "ftruncate")
FREES_SPACE = ("rmdir", "unlink", "remove", "ftruncate")
FULL = (errno.ENOSPC, errno.EDQUOT)
BROKEN = (errno.EIO, errno.EROFS)
SPACE = os.statvfs_result((4096, 4096, 1 << 24, 1 << 23, 1 << 23, 1 << 20, 1 << 19, 1 << 19, 0, 255))
"""What the file system says of itself: 32 GiB are free."""
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Files:
    """What the adapter's processes do to the volume."""

    def __init__(self, decide: random.Random) -> None:
        self.decide = decide
        self.rate = 0.0
        """How many of the changes fail."""
        self.errors: tuple[int, ...] = FULL
        self.on_change: Callable[[str, tuple[Any, ...]], None] = lambda *_: None
        """Told before each change that takes place: its name and its arguments."""
        self.after_rename: Callable[[Path], None] = lambda _: None
        self.kill: Callable[[Life], None] = lambda _: None
        self.appended: dict[Life, set[int]] = {}
        """Descriptors that the kernel closes when a process dies."""
        self.failed = 0
        self.failed_deletes = 0
        self._clock = itertools.count(2_000_000_000_000_000_000, 1_000_000_000)

    def close(self, life: Life) -> None:
        """The kernel closes what a dead process has open."""
        for descriptor in self.appended.pop(life, set()):
            os.close(descriptor)

    @contextmanager
    def patched(self) -> Iterator[None]:
        """While inside, `os` is ours."""
        with ExitStack() as stack:
            for name in CHANGES:
                stack.enter_context(mock.patch.object(os, name, self._changing(name, getattr(os, name))))
            stack.enter_context(mock.patch.object(os, "open", self._opening(os.open)))
            stack.enter_context(mock.patch.object(os, "close", self._closing(os.close)))
            stack.enter_context(mock.patch.object(os, "statvfs", lambda _: SPACE))
            stack.enter_context(mock.patch.object(os, "utime", self._touching(os.utime)))
            stack.enter_context(mock.patch.object(io, "open", self._opening_file(io.open)))
            stack.enter_context(mock.patch.object(secrets, "token_hex", lambda count=16: self.decide.randbytes(count).hex()))
            stack.enter_context(mock.patch.object(secrets, "token_bytes", lambda count=32: self.decide.randbytes(count)))
            yield

    def _meet(self, name: str, arguments: tuple[Any, ...], real: Callable[..., Any]) -> None:
        life = LIFE.get()
        if life is None:
            return
        if not life.is_alive:
            raise Killed
        if life.kill_after is not None:
            life.kill_after -= 1
            if life.kill_after < 0:
                self._half(name, arguments, real)
                self.kill(life)
                raise Killed
        if life.is_faulty and self.rate and self.decide.random() < self.rate:
            number = self.decide.choice(self.errors)
            if number in BROKEN or name not in FREES_SPACE:
                self.failed += 1
                self.failed_deletes += name in FREES_SPACE or name == "rename"
                raise OSError(number, os.strerror(number), *(argument for argument in arguments[:1] if not isinstance(argument, int)))
        self.on_change(name, arguments)

    def _half(self, name: str, arguments: tuple[Any, ...], real: Callable[..., Any]) -> None:
        """What is written when a process dies may be a part."""
        if name in ("write", "pwrite") and self.decide.random() < 0.7:
            content = memoryview(arguments[1])
            self.on_change(name, arguments)
            real(arguments[0], content[: self.decide.randint(0, len(content))], *arguments[2:])

    def _changing(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def changing(*arguments: Any, **options: Any) -> Any:
            self._meet(name, arguments, real)
            result = real(*arguments, **options)
            if name in ("rename", "replace") and LIFE.get() is not None:
                self.after_rename(Path(arguments[1]))
            return result

        return changing

    def _opening(self, real: Callable[..., int]) -> Callable[..., int]:
        def opening(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
            if flags & _WRITES:
                self._meet("open", (path,), real)
            descriptor = real(path, flags, *arguments, **options)
            life = LIFE.get()
            if life is not None and flags & os.O_APPEND:
                self.appended.setdefault(life, set()).add(descriptor)
            return descriptor

        return opening

    def _closing(self, real: Callable[[int], None]) -> Callable[[int], None]:
        def closing(descriptor: int) -> None:
            life = LIFE.get()
            if life is not None:
                self.appended.get(life, set()).discard(descriptor)
            real(descriptor)

        return closing

    def _touching(self, real: Callable[..., None]) -> Callable[..., None]:
        def touching(path: Any, times: Any = None, *, ns: Any = None, **options: Any) -> None:
            if LIFE.get() is None:
                real(path, times, **options) if ns is None else real(path, ns=ns, **options)
                return
            self._meet("utime", (path,), real)
            now = next(self._clock)
            real(path, ns=(now, now), **options)

        return touching

    def _opening_file(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def opening(file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
            if set(mode) & set("wax+") and not isinstance(file, int):
                self._meet("open", (file,), real)
            return real(file, mode, *arguments, **options)

        return opening
