"""One thread of the engine, with its connections: libcurl's multi interface over epoll."""

from __future__ import annotations

import math
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
from adapter.storage.net.transfer import TICK_SECONDS, Transfer

KEPT_CONNECTIONS = 128
"""Of each thread."""
_IDLE_SECONDS = 3600.0
"""Longest pause of a thread that has nothing to do."""

_log = structlog.stdlib.get_logger(__name__)


class _CancelledError(Exception):
    """The transfer is not wanted any more."""


class Worker:
    """One thread with its connections. Other threads only give it orders."""

    def __init__(self, name: str) -> None:
        """Raises StartError: the process cannot have one more thread."""
        self._orders: deque[Callable[[], None]] = deque()
        self._epoll = select.epoll()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._wake, select.EPOLLIN)
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._on_socket)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._on_timer)
        self._multi.setopt(pycurl.M_MAXCONNECTS, KEPT_CONNECTIONS)
        self._tick = 0.0
        """When the times of the transfers are looked at next."""
        self._due = math.inf
        """When libcurl wants to be called, whatever comes."""
        self._running: dict[Any, Transfer] = {}
        """By handle of libcurl."""
        self._is_open, self._lock = True, threading.Lock()
        """Guarded by the lock, as the wake-up is: it is closed when it is not open any more."""
        try:
            threading.Thread(target=self._run, name=name, daemon=True).start()
        except RuntimeError as error:
            self._is_open = False
            self._end_thread()
            raise StartError(f"thread {name!r} cannot start: {error} (is there a limit of processes?)") from error

    @property
    def transfers(self) -> int:
        """Under way, or ordered."""
        return len(self._running) + len(self._orders)

    def start(self, transfer: Transfer) -> None:
        """Begin a transfer. From any thread. Raises RuntimeError after `close`."""
        self._order(partial(self._start, transfer))

    def cancel(self, transfer: Transfer) -> None:
        """End a transfer at once, if it has not ended. From any thread."""
        with suppress(RuntimeError):  # all have ended
            self._order(partial(self._cancel, transfer))

    def close(self) -> None:
        """End the thread, with all transfers. From any thread."""
        with self._lock:
            if self._is_open:
                self._is_open = False
                os.eventfd_write(self._wake, 1)

    def _order(self, what: Callable[[], None]) -> None:
        with self._lock:
            if not self._is_open:
                raise RuntimeError("the engine is closed")
            self._orders.append(what)
            os.eventfd_write(self._wake, 1)

    def _run(self) -> None:
        while self._is_open:
            try:
                self._turn()
            except pycurl.error as error:  # libcurl's own state is in doubt: what runs is tried again by its owners
                _log.error("source.engine_failed", error=str(error))
                self._end_all(Unanswered("the transfer failed"))
        self._end_thread()

    def _end_thread(self) -> None:
        while self._orders:
            self._orders.popleft()()
        self._end_all(_CancelledError())
        self._multi.close()
        self._epoll.close()
        with self._lock:
            os.close(self._wake)

    def _turn(self) -> None:
        """Wait for something to do, and do it."""
        end = min(self._due, self._tick if self._running else math.inf)
        for file, events in self._epoll.poll(max(0.0, min(end - time.monotonic(), _IDLE_SECONDS))):
            if file == self._wake:
                os.eventfd_read(file)
            else:  # an error is for both
                can_read, can_write = events & ~select.EPOLLOUT, events & ~select.EPOLLIN
                self._multi.socket_action(file, bool(can_read) * pycurl.CSELECT_IN | bool(can_write) * pycurl.CSELECT_OUT)
        while self._orders:
            self._orders.popleft()()
        now = time.monotonic()
        if now >= self._due:
            self._due = math.inf
            self._multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)
        self._collect()
        if now >= self._tick:
            self._tick = now + TICK_SECONDS
            self._look(now)

    def _start(self, transfer: Transfer) -> None:
        try:
            curl = transfer.open()
            self._multi.add_handle(curl)
        except (ValueError, pycurl.error):
            transfer.close(Unanswered("its address or a header cannot be part of a request", can_pass=False))
            return
        self._running[curl] = transfer

    def _collect(self) -> None:
        left = 1
        while left and self._running:
            left, done, failed = self._multi.info_read()
            for curl in done:
                self._end(self._running[curl])
            for curl, code, text in failed:
                transfer = self._running[curl]
                self._end(transfer, failure_of(curl, code, text, uses_proxy=bool(transfer.request.access.proxy)))

    def _end(self, transfer: Transfer, failure: Unanswered | None = None) -> None:
        del self._running[transfer.curl]
        self._multi.remove_handle(transfer.curl)
        try:
            following = transfer.followed(failure)
        except BaseException as error:  # noqa: BLE001 - `fetch` raises it
            transfer.close(error)
            return
        if following is None:
            transfer.close()
        else:
            transfer.reset(following)
            self._start(transfer)

    def _cancel(self, transfer: Transfer, error: BaseException | None = None) -> None:
        if transfer.curl in self._running:
            transfer.error = error or _CancelledError()
            self._end(transfer)

    def _end_all(self, error: BaseException) -> None:
        for transfer in list(self._running.values()):
            self._cancel(transfer, error)

    def _look(self, now: float) -> None:
        """End what takes too long. Bytes of what is slow reach their sink, so that it does not look silent."""
        for transfer in list(self._running.values()):
            if (late := transfer.lateness(now)) is not None:
                self._end(transfer, late)
                continue
            try:
                transfer.flush()
            except BaseException as error:  # noqa: BLE001 - `fetch` raises it
                self._cancel(transfer, error)

    def _on_socket(self, what: int, file: int, multi: Any, is_known: object) -> None:
        if what == pycurl.POLL_REMOVE:
            with suppress(OSError):  # it was closed before
                self._epoll.unregister(file)
            return
        events = bool(what & pycurl.POLL_IN) * select.EPOLLIN | bool(what & pycurl.POLL_OUT) * select.EPOLLOUT
        if is_known:
            self._epoll.modify(file, events)
        else:
            self._epoll.register(file, events)
            multi.assign(file, True)

    def _on_timer(self, milliseconds: int) -> None:
        self._due = math.inf if milliseconds < 0 else time.monotonic() + milliseconds / 1000
