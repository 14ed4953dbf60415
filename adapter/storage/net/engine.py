"""
The download engine: threads that each run libcurl's multi interface over epoll.

`Engine.fetch` belongs to the event loop; the bytes of a body are taken in the engine's thread. Requests that
only ask (listings, tokens) have a thread that never writes to a disk.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pycurl
import structlog

from adapter.errors import StartError
from adapter.storage.net.failures import CONNECT_SECONDS, DeniedAddress, Unanswered, UnknownName, failure_of, unresolved
from adapter.storage.net.messages import SMALL_BYTES, Head, Request
from adapter.storage.net.transfer import TICK_SECONDS, Transfer
from adapter.workers import Workers, to_its_end

NAME_THREADS = 8
"""The operating system's resolver blocks for as long as its name servers are silent, 5 to 30 s, and nothing wakes it."""
KEPT_CONNECTIONS = 128
"""Of each thread."""
_CLOSED = "the engine is closed"
_EVENTS = {pycurl.POLL_IN: select.EPOLLIN, pycurl.POLL_OUT: select.EPOLLOUT, pycurl.POLL_INOUT: select.EPOLLIN | select.EPOLLOUT}
_log = structlog.stdlib.get_logger(__name__)


class Engine:
    """All transfers of storage. Call `close` at the end."""

    def __init__(self, threads: int) -> None:
        """
        Args:
            threads: that take bodies and write them.

        Raises:
            StartError: the process cannot have these threads.
        """
        self._workers: list[Worker] = []
        self._names = Workers("name", NAME_THREADS)
        try:
            for name in ("net_ask", *(f"net_{number}" for number in range(threads))):
                self._workers.append(Worker(name))
        except StartError:
            self.close()
            raise
        self._asker, *self._writers = self._workers

    async def fetch(self, request: Request) -> Head:
        """
        Send a request, and those that come after it, and give their bodies to the sinks.

        Cancelled, it ends when nothing can reach the sink any more.

        Returns:
            The head of the last answer: of the first that is neither 200 nor 206, which ends the sequence.

        Raises:
            Unanswered: no whole answer has come.
            whatever a sink raises.
        """
        transfer = Transfer(request, await self._checked(request) if request.access.guard.denied else ())
        try:
            return await self._worker(request.written_bytes).sent(transfer)
        except UnknownName as unknown:
            await self._addresses(urlsplit(request.access.proxy or request.url).hostname or "")  # raises the reason
            raise unknown from None

    def close(self) -> None:
        """Take no more requests. Does not wait for those that run."""
        for worker in self._workers:
            worker.close()
        self._names.close()

    async def _checked(self, request: Request) -> tuple[str, ...]:
        """
        Look at all addresses of a guarded request's server: which of them is connected to is the server's choice, too.

        Returns:
            The addresses; none where a proxy connects.

        Raises:
            DeniedAddress: one of them is denied.
        """
        proxy = request.access.proxy
        try:
            addresses = await self._addresses((urlsplit(request.url).hostname or "").rstrip("."))
        except Unanswered:
            if proxy:  # what the proxy alone knows is the proxy's to judge
                return ()
            raise
        for address in addresses:
            if not request.access.guard.allows(address):
                raise DeniedAddress(address)
        return () if proxy else addresses

    async def _addresses(self, host: str) -> tuple[str, ...]:
        """
        All addresses of a name, as numbers. Numbers in any notation are names as well.

        A thread whose caller has given up is left behind.

        Raises:
            Unanswered: there is none, or name servers do not tell.
        """
        asked = self._names.submit(socket.getaddrinfo, host.strip("[]"), None, type=socket.SOCK_STREAM)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                found = await asyncio.wrap_future(asked)
        except (OSError, UnicodeError) as error:
            raise unresolved(error) from error
        return tuple(dict.fromkeys(str(place[0]) for *_, place in found))

    def _worker(self, written_bytes: int) -> Worker:
        if not written_bytes:
            return self._asker
        if written_bytes <= SMALL_BYTES:  # two threads would wait for each other at Python's lock: a fifth more CPU, and no gain
            return self._writers[0]
        return min(self._writers, key=lambda worker: worker.transfers)


class Worker:
    """One thread with its connections. One other thread, that of the event loop, gives it orders."""

    def __init__(self, name: str) -> None:
        """Raises StartError: the process cannot have one more thread."""
        self._thread = Workers(name, 1)
        self._is_open, self._lock = True, threading.Lock()
        """Guarded by the lock: what is ordered is done."""
        self._orders: deque[Callable[[], None]] = deque()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll = select.epoll()
        self._epoll.register(self._wake, select.EPOLLIN)
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._on_socket)
        self._multi.setopt(pycurl.M_MAXCONNECTS, KEPT_CONNECTIONS)
        self._tick = 0.0
        """When the times of the transfers are looked at next."""
        self._running: dict[Any, Transfer] = {}
        """By handle of libcurl."""
        self._thread.submit(self._run)

    @property
    def transfers(self) -> int:
        """Under way, or ordered."""
        return len(self._running) + len(self._orders)

    async def sent(self, transfer: Transfer) -> Head:
        """As `Engine.fetch`. Raises RuntimeError after `close`."""
        if not self._order(partial(self._start, transfer)):
            raise RuntimeError(_CLOSED)
        cancel = partial(self._stop, asyncio.CancelledError(), transfer)
        return await to_its_end(asyncio.wrap_future(transfer.told), lambda: self._order(cancel))

    def close(self) -> None:
        """End the thread, with all transfers."""
        self._order(self._close)

    def _order(self, what: Callable[[], None]) -> bool:
        with self._lock:
            if self._is_open:
                self._orders.append(what)
                os.eventfd_write(self._wake, 1)
            return self._is_open

    def _close(self) -> None:
        with self._lock:
            self._is_open = False

    def _run(self) -> None:
        while self._is_open or self._orders:
            try:
                self._turn()
            except Exception as error:  # noqa: BLE001 - the state is in doubt: what runs is tried again
                _log.error("source.engine_failed", error=repr(error))
                self._stop(Unanswered("the transfer failed"), *self._running.values())
        self._end_thread()

    def _end_thread(self) -> None:
        self._stop(RuntimeError(_CLOSED), *self._running.values())
        self._multi.close()
        self._epoll.close()
        os.close(self._wake)
        self._thread.close()

    def _turn(self) -> None:
        """Wait for something to do, and do it."""
        milliseconds = self._multi.timeout()
        seconds = TICK_SECONDS if self._running else None
        for file, _ in self._epoll.poll(seconds if milliseconds < 0 else min(milliseconds / 1000, TICK_SECONDS)):
            if file == self._wake:
                os.eventfd_read(file)
            else:
                self._multi.socket_action(file, 0)  # libcurl looks what there is
        while self._orders:
            self._orders.popleft()()
        self._multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)
        _, done, failed = self._multi.info_read()
        for curl in done:
            self._end(self._running[curl])
        for curl, code, text in failed:
            transfer = self._running[curl]
            transfer.failure = transfer.failure or failure_of(curl, code, text, uses_proxy=bool(transfer.request.access.proxy))
            self._end(transfer)
        if (now := time.monotonic()) >= self._tick:
            self._tick = now + TICK_SECONDS
            for transfer in [each for each in self._running.values() if each.is_late(now)]:
                self._end(transfer)

    def _start(self, transfer: Transfer) -> None:
        try:
            curl = transfer.opened()
            self._multi.add_handle(curl)
        except (ValueError, pycurl.error):
            transfer.close(Unanswered("its address or a header cannot be part of a request", can_pass=False))
        else:
            self._running[curl] = transfer

    def _stop(self, error: BaseException, *transfers: Transfer) -> None:
        for transfer in transfers:
            if transfer.curl in self._running:
                transfer.failure = error
                self._end(transfer)

    def _end(self, transfer: Transfer) -> None:
        del self._running[transfer.curl]
        self._multi.remove_handle(transfer.curl)
        try:
            is_followed = transfer.is_followed()
        except BaseException as error:  # noqa: BLE001 - `fetch` raises it
            transfer.close(error)
            return
        if is_followed:
            self._start(transfer)
        else:
            transfer.close()

    def _on_socket(self, what: int, file: int, multi: Any, is_known: object) -> None:
        if what == pycurl.POLL_REMOVE:
            with suppress(OSError):  # it was closed before
                self._epoll.unregister(file)
        elif is_known:
            self._epoll.modify(file, _EVENTS[what])
        else:
            self._epoll.register(file, _EVENTS[what])
            multi.assign(file, True)
