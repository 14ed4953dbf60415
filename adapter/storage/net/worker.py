"""One thread of the engine, with its connections: libcurl's multi interface over epoll."""

from __future__ import annotations

import asyncio
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pycurl
import structlog

from adapter.errors import StartError
from adapter.storage.net.failures import Unanswered, failure_of
from adapter.storage.net.messages import Head
from adapter.storage.net.transfer import TICK_SECONDS, Transfer
from adapter.workers import to_its_end

KEPT_CONNECTIONS = 128
"""Of each thread."""
_EVENTS = {
    pycurl.POLL_IN: select.EPOLLIN,
    pycurl.POLL_OUT: select.EPOLLOUT,
    pycurl.POLL_INOUT: select.EPOLLIN | select.EPOLLOUT,
}
_log = structlog.stdlib.get_logger(__name__)


class Worker:
    """One thread with its connections. One other thread, that of the event loop, gives it orders."""

    def __init__(self, name: str) -> None:
        """Raises StartError: the process cannot have one more thread."""
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
        try:
            threading.Thread(target=self._run, name=name, daemon=True).start()
        except RuntimeError as error:
            self._end_thread()
            raise StartError(f"thread {name!r} cannot start: {error} (is there a limit of processes?)") from error

    @property
    def transfers(self) -> int:
        """Under way, or ordered."""
        return len(self._running) + len(self._orders)

    async def sent(self, transfer: Transfer) -> Head:
        """As `Engine.fetch`. Raises RuntimeError after `close`."""
        if not self._order(partial(self._start, transfer)):
            raise RuntimeError("the engine is closed")
        return await to_its_end(asyncio.wrap_future(transfer.told), lambda: self._order(partial(self._stop, transfer)))

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
            except pycurl.error as error:  # libcurl's own state is in doubt: what runs is tried again by its owners
                _log.error("source.engine_failed", error=str(error))
                self._stop(*self._running.values(), error=Unanswered("the transfer failed"))
        self._end_thread()

    def _end_thread(self) -> None:
        self._stop(*self._running.values())
        self._multi.close()
        self._epoll.close()
        os.close(self._wake)

    def _turn(self) -> None:
        """Wait for something to do, and do it."""
        milliseconds = [self._multi.timeout(), *([1000 * TICK_SECONDS] if self._running else [])]
        for file, _ in self._epoll.poll(min((each / 1000 for each in milliseconds if each >= 0), default=None)):
            if file == self._wake:
                os.eventfd_read(file)
            else:
                self._multi.socket_action(file, 0)  # libcurl looks what there is
        while self._orders:
            self._orders.popleft()()
        self._multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)
        left = len(self._running)
        while left:
            left, done, failed = self._multi.info_read()
            for curl in done:
                self._end(self._running[curl])
            for curl, code, text in failed:
                transfer = self._running[curl]
                transfer.failure = failure_of(curl, code, text, uses_proxy=bool(transfer.request.access.proxy))
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

    def _stop(self, *transfers: Transfer, error: BaseException | None = None) -> None:
        for transfer in transfers:
            if transfer.curl in self._running:
                transfer.error = error or asyncio.CancelledError()
                self._end(transfer)

    def _end(self, transfer: Transfer) -> None:
        del self._running[transfer.curl]
        self._multi.remove_handle(transfer.curl)
        if transfer.is_followed():
            self._start(transfer)

    def _on_socket(self, what: int, file: int, multi: Any, is_known: object) -> None:
        if what == pycurl.POLL_REMOVE:
            with suppress(OSError):  # it was closed before
                self._epoll.unregister(file)
        elif is_known:
            self._epoll.modify(file, _EVENTS[what])
        else:
            self._epoll.register(file, _EVENTS[what])
            multi.assign(file, True)
