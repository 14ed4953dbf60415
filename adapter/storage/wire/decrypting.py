"""
A large body out of TLS, by lanes that take turns.

OpenSSL decrypts one record at a time, of 16 KiB at most, and Python gives its lock away and takes it back for each of them. More
lanes than processors wait for that lock more than they decrypt. So a lane takes all that has come, up to a buffer, in its turn;
it waits for the network, and writes, outside of it.
"""

from __future__ import annotations

import select
import ssl
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from adapter.threads import PROCESSORS

TURNS = PROCESSORS
"""Lanes that decrypt at once: each keeps a processor busy."""


class Turns:
    """As many as there are; whoever has one keeps nobody waiting for long."""

    def __init__(self, count: int) -> None:
        self._free: SimpleQueue[None] = SimpleQueue()  # a semaphore that is not made of Python
        for _ in range(count):
            self._free.put(None)

    def __enter__(self) -> None:
        self._free.get()

    def __exit__(self, *_: object) -> None:
        self._free.put(None)


_turns = Turns(TURNS)


class Decrypted:
    """While inside, the socket itself waits for nothing: `receive` does."""

    def __init__(self, line: ssl.SSLSocket, *, gather_seconds: float) -> None:
        """`gather_seconds`: for so long a buffer is filled, when bytes come slowly."""
        self._line: Any = line
        self._seconds = line.gettimeout()
        self._gather_seconds = gather_seconds
        self._ready = select.poll()

    def __enter__(self) -> Callable[[memoryview], int]:
        self._ready.register(self._line)
        self._line.settimeout(0)
        return self.receive

    def __exit__(self, *_: object) -> None:
        if self._line.fileno() >= 0:
            self._line.settimeout(self._seconds)

    def receive(self, buffer: memoryview) -> int:
        """
        A full buffer, or what has come after some time; nothing at the end.

        Raises:
            TimeoutError: nothing, for as long as the socket is to be waited for.
            OSError: the connection broke.
        """
        began, filled = time.monotonic(), 0
        while True:
            with _turns:
                filled, wanted = self._taken(buffer, filled)
            if not wanted:
                return filled
            seconds = self._gather_seconds if filled else self._seconds
            left = None if seconds is None else began + seconds - time.monotonic()
            if left is not None and left <= 0:
                if filled:
                    return filled
                raise TimeoutError("timed out")
            self._ready.modify(self._line, wanted)
            self._ready.poll(None if left is None else left * 1000)

    def _taken(self, buffer: memoryview, filled: int) -> tuple[int, int]:
        """How much is full now, and what the socket has to be ready for before there is more; 0: the buffer is full, or it is the end."""
        read: Callable[[int, memoryview], int] = self._line.read
        size = len(buffer)
        try:
            while filled < size:
                count = read(size - filled, buffer[filled:])
                if not count:
                    break
                filled += count
        except ssl.SSLWantReadError:
            return filled, select.POLLIN
        except ssl.SSLWantWriteError:  # new keys are to be answered first
            return filled, select.POLLOUT
        return filled, 0
