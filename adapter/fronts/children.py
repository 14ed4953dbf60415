"""
Work in a process of its own, which may be killed and may run out of memory: one call after the other.

It is started by its first call, and again after it has ended. It ends with us: nothing more comes then. A call is two pieces of bytes,
and so is its answer.
"""

from __future__ import annotations

import asyncio
import importlib
import pickle
import resource
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from pkgutil import resolve_name
from typing import IO, Any

from adapter.workers import to_its_end

_LENGTHS = struct.Struct("<QQ")


class ChildEnded(Exception):
    """The process has ended during a call: it had too little memory, or was killed."""


class Child:
    """One process. Call `close` at the end."""

    def __init__(self, module: str, memory_bytes: int) -> None:
        """`module` is imported at the start; `memory_bytes`: the most that a call may have, beside what the import takes."""
        self._program = (sys.executable, "-I", "-m", __name__, module, str(memory_bytes))
        self._process: Any = None
        """A Popen."""
        self._turn = asyncio.Lock()

    async def call(self, name: str, *args: Any, body: bytes | bytearray = b"", seconds: float | None = None) -> tuple[bytes, bytes]:
        """
        What a function makes there of `(*args, body)`.

        Args:
            name: of the function, as `module:function`. It returns two pieces of bytes, and raises nothing.
            args: anything that can be pickled.
            body: goes as it is.
            seconds: then the process is killed, and at once if the caller is cancelled; None: a cancel waits for the answer.

        Raises:
            TimeoutError: it was killed.
            ChildEnded: so it has; the next call starts it again.
        """
        loop = asyncio.get_running_loop()
        async with self._turn:
            if self._process is None or self._process.poll() is not None:
                await to_its_end(loop.run_in_executor(None, self._start), lambda: None)
            running = loop.run_in_executor(None, self._exchange, pickle.dumps((name, args)), body)
            async with asyncio.timeout(seconds):
                return await to_its_end(running, self._process.kill if seconds else lambda: None)

    async def close(self) -> None:
        """End the process."""
        async with self._turn:
            self._end()

    def _start(self) -> None:
        self._end()
        env = {"OPENBLAS_NUM_THREADS": "1"}  # each other one would have memory of its own
        try:
            self._process = subprocess.Popen(  # noqa: S603 - ourselves
                self._program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env
            )
        except OSError as error:
            raise ChildEnded from error
        self._exchange()

    def _exchange(self, *call: bytes | bytearray) -> tuple[bytes, bytes]:
        try:
            if call:
                _write(self._process.stdin, *call)
            return _read(self._process.stdout)
        except (OSError, EOFError) as error:
            self._end()
            raise ChildEnded from error

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with suppress(OSError), process:
                pass  # its pipes are closed, and it is waited for


def _write(stream: IO[bytes], *pieces: bytes | bytearray) -> None:
    stream.write(_LENGTHS.pack(*map(len, pieces)))
    for piece in pieces:
        stream.write(piece)
    stream.flush()


def _read(stream: IO[bytes]) -> tuple[bytes, bytes]:
    head = stream.read(_LENGTHS.size)
    lengths = _LENGTHS.unpack(head) if len(head) == _LENGTHS.size else (1, 1)
    first, second = map(stream.read, lengths)
    if (len(first), len(second)) != lengths:
        raise EOFError
    return first, second


def main() -> None:
    """Until the input ends."""
    module, memory_bytes = sys.argv[1:]
    importlib.import_module(module)
    data_pages = int(Path("/proc/self/statm").read_text().split()[5])  # Source: proc(5)
    limit = data_pages * resource.getpagesize() + int(memory_bytes)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    _write(sys.stdout.buffer, b"", b"")
    with suppress(EOFError):
        while True:
            _answer(sys.stdin.buffer, sys.stdout.buffer)


def _answer(calls: IO[bytes], answers: IO[bytes]) -> None:
    call, body = _read(calls)
    name, args = pickle.loads(call)  # noqa: S301 - of the adapter
    _write(answers, *resolve_name(name)(*args, body))


if __name__ == "__main__":
    main()
