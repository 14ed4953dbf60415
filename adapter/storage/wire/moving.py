"""
A body straight from its socket into a file, past the buffers of http.client.

Over plain TCP the kernel moves the bytes (splice: socket → pipe → file), and they are never in memory of ours. TLS (see
`decrypting`), bytes whose checksum is verified, and files and kernels that cannot do that, go through one buffer for each
thread. Which way is taken never changes what arrives, nor what a stop, a silence or a full disk looks like.
"""

from __future__ import annotations

import fcntl
import os
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial

from adapter.storage.bucket import FileSink
from adapter.storage.wire.decrypting import Decrypted
from adapter.storage.wire.plain import PlainBody
from adapter.workers import Stop

BUFFER_BYTES = 512 * 1024
"""Of each thread."""
PIPE_BYTES = 512 * 1024
"""Of each thread: 128 threads have them. Source: pipe(7); without privileges a user may have 64 MiB of pipes, and tiny ones beyond."""
SPLICE_FROM_BYTES = 1024 * 1024
"""Of smaller bodies, the calls that change the socket's mode cost more than is gained; over TLS, too."""
WAKE_BYTES = 256 * 1024
"""Half of a pipe: so many bytes are worth a turn."""
GATHER_SECONDS = 1.0
"""For so long a buffer is filled before it is written: who waits for the body sees that it comes."""


class _Pipe:
    """Closed with the last that holds it: with its thread, or when it may hold bytes of a body that was given up."""

    def __init__(self) -> None:
        self.source, self.target = os.pipe()
        with suppress(OSError):  # this user has many pipes; a smaller one only needs more calls
            fcntl.fcntl(self.target, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    def __del__(self) -> None:
        os.close(self.source)
        os.close(self.target)


class _Mine(threading.local):
    """What each thread keeps."""

    buffer: memoryview | None = None
    pipe: _Pipe | None = None


_mine = _Mine()


def move(answer: PlainBody, length: int, sink: FileSink, stop: Stop, *, translated: Callable[[], AbstractContextManager[None]]) -> int:
    """
    Give a plain body of so many bytes to the sink, whose failures go through untranslated.

    Returns:
        How many bytes are missing: 0, or the body ended before.
    """
    with translated():
        first = answer.first(length)
    missing = length - len(first)
    if not first:
        return missing
    stop.check()
    answer.took(0)
    sink(first)
    is_long = missing >= SPLICE_FROM_BYTES
    if is_long and type(answer.line) is socket.socket:
        if not sink.sees_bytes:
            missing = _spliced(answer, missing, sink, stop, translated)
        if missing >= SPLICE_FROM_BYTES:
            receive = partial(_received_whole, seconds=answer.line.gettimeout())
            with _kernel_keeps_time(answer.line, GATHER_SECONDS), _woken_from(answer.line, WAKE_BYTES):
                return _copied(answer, missing, sink, stop, translated, receive=receive)
    elif is_long and isinstance(answer.line, ssl.SSLSocket):
        with Decrypted(answer.line, gather_seconds=GATHER_SECONDS) as receive_all:
            return _copied(answer, missing, sink, stop, translated, receive=partial(_counted, receive=receive_all))
    return _copied(answer, missing, sink, stop, translated, receive=_received) if missing else 0


def _copied(
    answer: PlainBody,
    missing: int,
    sink: FileSink,
    stop: Stop,
    translated: Callable[[], AbstractContextManager[None]],
    *,
    receive: Callable[[PlainBody, memoryview, int], int],
) -> int:
    """What is still missing when the body has ended. `receive` is told how much of the body may come behind the buffer."""
    buffer = _mine.buffer = _mine.buffer or memoryview(bytearray(BUFFER_BYTES))
    while missing:
        wanted = min(BUFFER_BYTES, missing)
        with translated():
            filled = receive(answer, buffer[:wanted], missing - wanted)
        stop.check()
        if not filled:
            break
        sink(buffer[:filled])
        missing -= filled
    return missing


def _counted(answer: PlainBody, buffer: memoryview, _behind: int, *, receive: Callable[[memoryview], int]) -> int:
    count = receive(buffer)
    answer.took(count)
    return count


def _received(answer: PlainBody, buffer: memoryview, _behind: int) -> int:
    """What has come: of TLS several records, each of 16 KiB at most, unless they come slowly."""
    receive: Callable[[memoryview], int] = answer.line.recv_into
    size, until = len(buffer), 0.0
    filled = count = receive(buffer)
    while count and filled < size:
        now = time.monotonic()
        until = until or now + GATHER_SECONDS
        if now >= until:
            break
        count = receive(buffer[filled:])
        filled += count
    answer.took(filled)
    return filled


def _received_whole(answer: PlainBody, buffer: memoryview, behind: int, *, seconds: float | None) -> int:
    """A full buffer by one call, or what has come when `GATHER_SECONDS` were over. Raises as `_waited`."""
    if behind < WAKE_BYTES:
        _wake_at_once(answer.line)
    count = _waited(lambda: answer.line.recv_into(buffer, len(buffer), socket.MSG_WAITALL), seconds)
    answer.took(count)
    return count


def _waited(take: Callable[[], int], seconds: float | None) -> int:
    """What a call gives whose time the kernel keeps, made again until there is something. Raises TimeoutError: not for so many seconds."""
    until = None if seconds is None else time.monotonic() + seconds
    while True:
        try:
            return take()
        except BlockingIOError as error:
            if until is not None and time.monotonic() >= until:
                raise TimeoutError("timed out") from error


@contextmanager
def _kernel_keeps_time(line: socket.socket, seconds: float) -> Iterator[None]:
    """One call for each chunk, not two: Python asks a socket with a timeout whether there is something, before it takes that."""
    before = line.gettimeout()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", int(seconds), 0))
    line.settimeout(None)
    try:
        yield
    finally:
        if line.fileno() >= 0:
            line.settimeout(before)


def _spliced(answer: PlainBody, missing: int, sink: FileSink, stop: Stop, translated: Callable[[], AbstractContextManager[None]]) -> int:
    """What is still missing when the body has ended, or the file has turned out to take nothing from a pipe."""
    pipe, _mine.pipe = _mine.pipe or _Pipe(), None
    line, seconds = answer.line, answer.line.gettimeout()
    with _kernel_keeps_time(line, GATHER_SECONDS), _woken_from(line, WAKE_BYTES):
        while missing:
            if missing < WAKE_BYTES:
                _wake_at_once(line)
            with translated():
                held = _filled(line, pipe, min(PIPE_BYTES, missing), seconds)
                answer.took(held)
            stop.check()
            if not held:
                break
            missing -= held
            while held and (count := sink.take(pipe.source, held)):
                held -= count
            if held:
                _by_hand(pipe, held, sink)
                break
    _mine.pipe = pipe  # empty
    return missing


def _filled(line: socket.socket, pipe: _Pipe, most_bytes: int, seconds: float | None) -> int:
    """So much of what comes, or what has come when `GATHER_SECONDS` were over. Raises as `_waited`."""
    return _waited(lambda: os.splice(line.fileno(), pipe.target, most_bytes), seconds)


@contextmanager
def _woken_from(line: socket.socket, most_bytes: int) -> Iterator[None]:
    """The thread sleeps until so many bytes are there, or the time of the kernel is over: a slow line would wake it for each packet."""
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, most_bytes)
    try:
        yield
    finally:
        if line.fileno() >= 0:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)


def _wake_at_once(line: socket.socket) -> None:
    """The last bytes are too few to wake anybody otherwise."""
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)


def _by_hand(pipe: _Pipe, held: int, sink: FileSink) -> None:
    while held:
        chunk = os.read(pipe.source, min(held, BUFFER_BYTES))
        held -= len(chunk)
        sink(chunk)
