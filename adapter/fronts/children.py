"""
Work in a process of its own, which may be killed and may run out of memory: one call after the other.

It is started by its first call, and again after it has ended. It ends with us: nothing more comes then. Its input is a socket, for
calls and answers.
"""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from adapter.workers import to_its_end


class ChildEnded(Exception):
    """The process has ended during a call: it had too little memory, or was killed; with a text: it does not start."""


class Child:
    """One process. Call `close` at the end."""

    def __init__(self, name: str, memory_bytes: int) -> None:
        """
        Args:
            name: of a function, as `module:function`, which is imported at the start. It returns two pieces of bytes, and raises nothing.
            memory_bytes: the most that a call may have, beside what the import takes.
        """
        self._program = (sys.executable, "-P", "-s", "-m", __name__, name, str(memory_bytes))
        self._process: Any = None
        """A Popen, and the other end of its input."""
        self._connection: Any = None
        self._turn = asyncio.Lock()

    async def call(self, *args: Any, body: bytes | bytearray = b"", seconds: float | None = None) -> tuple[bytes, bytes]:
        """
        What the function makes there of `(*args, body)`.

        Args:
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
            running = loop.run_in_executor(None, self._exchange, args, body)
            async with asyncio.timeout(seconds):
                return await to_its_end(running, self._process.kill if seconds else lambda: None)

    async def close(self) -> None:
        """End the process."""
        async with self._turn:
            self._end()

    def _start(self) -> None:
        self._end()
        env = {"PYTHONPATH": str(Path(__file__).parents[2]), "OPENBLAS_NUM_THREADS": "1"}  # each thread would have memory of its own
        self._connection, there = Pipe()
        try:
            with there:
                self._process = subprocess.Popen(  # noqa: S603 - ourselves
                    self._program, stdin=there.fileno(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env
                )
            self._connection.recv_bytes()
        except (OSError, EOFError) as error:
            self._end()
            raise ChildEnded("its process does not start") from error

    def _exchange(self, args: tuple[Any, ...], body: bytes | bytearray) -> tuple[bytes, bytes]:
        try:
            self._connection.send(args)
            self._connection.send_bytes(body)
            return self._connection.recv_bytes(), self._connection.recv_bytes()
        except (OSError, EOFError) as error:
            self._end()
            raise ChildEnded from error

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            self._connection.close()
            process.kill()
            process.wait()


def main() -> None:
    """Until the input ends."""
    name, memory_bytes = sys.argv[1:]
    work = resolve_name(name)
    data_pages = int(Path("/proc/self/statm").read_text().split()[5])  # Source: proc(5)
    limit = data_pages * resource.getpagesize() + int(memory_bytes)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    connection = Connection(sys.stdin.fileno())
    connection.send_bytes(b"")
    with suppress(EOFError):
        while True:
            _answer(connection, work)


def _answer(connection: Connection, work: Callable[..., Iterable[bytes]]) -> None:
    args = connection.recv()
    for piece in work(*args, connection.recv_bytes()):
        connection.send_bytes(piece)


if __name__ == "__main__":
    main()
