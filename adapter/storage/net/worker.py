"""One thread of the engine, with its connections: libcurl's multi interface over epoll."""

from __future__ import annotations

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
from adapter.storage.net.access import Access
from adapter.storage.net.failures import Unanswered, UnansweredForGood, failure_of
from adapter.storage.net.transfer import BUFFER_BYTES, TICK_SECONDS, Handle, Transfer, UnknownNameError

KEPT_CONNECTIONS = 128
"""Of each thread."""
_KEPT_ACCESSES = 64
"""Whose idle handles are kept; a request may name any endpoint."""
_KEPT_HANDLES = 8
"""Idle ones of each access, and idle buffers."""
_EPOLL = {
    pycurl.POLL_NONE: 0,
    pycurl.POLL_IN: select.EPOLLIN,
    pycurl.POLL_OUT: select.EPOLLOUT,
    pycurl.POLL_INOUT: select.EPOLLIN | select.EPOLLOUT,
}
_CURL = {
    select.EPOLLIN: pycurl.CSELECT_IN,
    select.EPOLLOUT: pycurl.CSELECT_OUT,
    select.EPOLLIN | select.EPOLLOUT: pycurl.CSELECT_IN | pycurl.CSELECT_OUT,
}
_EVERYTHING = pycurl.CSELECT_IN | pycurl.CSELECT_OUT | pycurl.CSELECT_ERR

_log = structlog.stdlib.get_logger(__name__)


class _CancelledError(Exception):
    """The transfer is not wanted any more."""


def _tell(transfers: list[Transfer]) -> None:
    """On the event loop."""
    for transfer in transfers:
        if not transfer.answer.ended.done():
            transfer.answer.ended.set_result((transfer.head, transfer.answer.error))


class Worker:
    """One thread with its connections. Other threads only give it orders."""

    def __init__(self, name: str) -> None:
        """Raises StartError: the process cannot have one more thread."""
        self._ordered = self._over = 0
        """Transfers; each is counted by one thread."""
        self._orders: deque[Callable[[], None]] = deque()
        self._epoll = select.epoll()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._wake, select.EPOLLIN)
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._on_socket)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._on_timer)
        self._multi.setopt(pycurl.M_MAXCONNECTS, KEPT_CONNECTIONS)
        self._due: float | None = None
        """When libcurl wants to be called, whatever comes."""
        self._tick = 0.0
        self._running: dict[Any, Transfer] = {}
        self._idle: dict[Access, list[Handle]] = {}
        self._buffers: list[memoryview] = []
        self._ended: list[Transfer] = []
        """To be told of."""
        self._is_open = True
        self._sleeps = False
        """Has to be woken for an order."""
        self._is_closed, self._lock = False, threading.Lock()
        """Guards the wake-up."""
        try:
            threading.Thread(target=self._run, name=name, daemon=True).start()
        except RuntimeError as error:
            self._close()
            raise StartError(f"thread {name!r} cannot start: {error} (is there a limit of processes?)") from error

    @property
    def transfers(self) -> int:
        """Under way, or ordered."""
        return self._ordered - self._over

    def start(self, transfer: Transfer) -> None:
        """Begin a transfer. From any thread. Raises RuntimeError after `close`."""
        self._ordered += 1
        self._order(partial(self._begin, transfer))

    def cancel(self, transfer: Transfer) -> None:
        """End a transfer at once, if it has not ended. From any thread."""
        with suppress(RuntimeError):  # all have ended
            self._order(partial(self._cancel, transfer))

    def close(self) -> None:
        """End the thread, with all transfers. From any thread."""

        def leave() -> None:
            self._is_open = False

        with suppress(RuntimeError):  # it was closed before
            self._order(leave)

    def _order(self, what: Callable[[], None]) -> None:
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the engine is closed")
            self._orders.append(what)
            if self._sleeps:
                os.eventfd_write(self._wake, 1)

    def _close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._multi.close()
            self._epoll.close()
            os.close(self._wake)

    def _run(self) -> None:
        while self._is_open:
            try:
                self._turn()
            except pycurl.error as error:  # libcurl's own state is in doubt: what runs is tried again by its owners
                _log.error("source.engine_failed", error=str(error))
                self._end_all(Unanswered("the transfer failed"))
        while self._orders:
            self._orders.popleft()()
        self._end_all(_CancelledError())
        for handles in self._idle.values():
            for handle in handles:
                handle.curl.close()
        self._close()

    def _turn(self) -> None:
        """Wait for something to do, and do it."""
        self._sleeps = True  # first this, then the look at the orders: one of the two threads sees the other
        found = self._epoll.poll(0 if self._orders else self._pause())
        self._sleeps = False
        while self._orders:
            self._orders.popleft()()
        for file, events in found:
            if file == self._wake:
                os.eventfd_read(file)
            else:
                self._multi.socket_action(file, _CURL.get(events, _EVERYTHING))
        now = time.monotonic()
        if self._due is not None and now >= self._due:
            self._due = None
            self._multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)
        if now >= self._tick:
            self._tick = now + TICK_SECONDS
            self._give_up(now)
        self._collect()
        self._tell()

    def _end_all(self, error: BaseException) -> None:
        for transfer in list(self._running.values()):
            transfer.error = error
            self._end(transfer, None)
        self._tell()

    def _tell(self) -> None:
        """All at once: each call wakes the loop's thread."""
        ended, self._ended = self._ended, []
        self._over += len(ended)
        for loop in {transfer.answer.loop for transfer in ended}:
            with suppress(RuntimeError):  # the loop has ended, and with it all that waited
                loop.call_soon_threadsafe(_tell, [transfer for transfer in ended if transfer.answer.loop is loop])

    def _pause(self) -> float:
        """Seconds until something is to be done without being woken; -1: nothing is."""
        ends = [self._tick] if self._running else []
        if self._due is not None:
            ends.append(self._due)
        return max(0.0, min(ends) - time.monotonic()) if ends else -1.0

    def _begin(self, transfer: Transfer) -> None:
        access = transfer.request.access
        idle = self._idle[access] = self._idle.pop(access, [])  # the last used one comes last
        if len(self._idle) > _KEPT_ACCESSES:
            for unused in self._idle.pop(next(iter(self._idle))):
                unused.curl.close()
        handle = idle.pop() if idle else Handle(access)
        handle.buffer = self._buffers.pop() if self._buffers else memoryview(bytearray(BUFFER_BYTES))
        self._start(handle, transfer)

    def _start(self, handle: Handle, transfer: Transfer) -> None:
        try:
            handle.begin(transfer)
            self._multi.add_handle(handle.curl)
        except (ValueError, pycurl.error):
            handle.curl.close()
            transfer.curl, transfer.answer.error = None, UnansweredForGood("its address or a header cannot be part of a request")
            self._ended.append(transfer)
            return
        self._running[handle.curl] = transfer

    def _collect(self) -> None:
        while self._running:
            left, done, failed = self._multi.info_read()
            for curl in done:
                self._end(self._running[curl], None)
            for curl, code, text in failed:
                transfer = self._running[curl]
                if code in (pycurl.E_COULDNT_RESOLVE_HOST, pycurl.E_COULDNT_RESOLVE_PROXY):
                    self._end(transfer, UnknownNameError())
                else:
                    self._end(transfer, failure_of(curl, code, text, uses_proxy=bool(transfer.request.access.proxy)))
            if not left:
                return

    def _end(self, transfer: Transfer, failure: BaseException | None) -> None:
        handle = transfer.curl
        if handle is None:
            return
        del self._running[handle.curl]
        self._multi.remove_handle(handle.curl)
        error, request, following = transfer.error, transfer.request, None
        try:
            if error is None:  # also before a failure: what has come is right
                handle.flush()
            if error is None and failure is None and transfer.is_good:
                request.sink.end()
                following = request.then() if request.then is not None else None
        except BaseException as wrong:  # noqa: BLE001 - `fetch` raises it
            error = wrong
        if following is not None:
            transfer.begin(following)
            self._start(handle, transfer)
            return
        transfer.curl = None
        self._keep(handle, request.access)
        transfer.answer.error = error or failure
        self._ended.append(transfer)

    def _keep(self, handle: Handle, access: Access) -> None:
        """For the next transfer. The connection is the multi's, whatever becomes of the handle."""
        idle = self._idle.setdefault(access, [])
        if len(self._buffers) < _KEPT_HANDLES:
            self._buffers.append(handle.buffer)
        handle.transfer, handle.buffer = None, memoryview(b"")
        if len(idle) < _KEPT_HANDLES:
            idle.append(handle)
        else:
            handle.curl.close()

    def _cancel(self, transfer: Transfer) -> None:
        if transfer.curl is not None:
            transfer.error = _CancelledError()
            self._end(transfer, None)

    def _give_up(self, now: float) -> None:
        for transfer in list(self._running.values()):
            late = transfer.lateness(now)
            try:
                if late is None and transfer.filled and transfer.curl is not None:  # what is slow must not look silent
                    transfer.curl.flush()
            except BaseException as error:  # noqa: BLE001 - `fetch` raises it
                late = error
            if late is not None:
                transfer.error = late
                self._end(transfer, None)

    def _on_socket(self, what: int, file: int, multi: Any, is_known: object) -> None:
        if what == pycurl.POLL_REMOVE:
            with suppress(OSError):  # it was closed before
                self._epoll.unregister(file)
        elif is_known:
            self._epoll.modify(file, _EPOLL[what])
        else:
            self._epoll.register(file, _EPOLL[what])
            multi.assign(file, True)

    def _on_timer(self, milliseconds: int) -> None:
        self._due = None if milliseconds < 0 else time.monotonic() + milliseconds / 1000
