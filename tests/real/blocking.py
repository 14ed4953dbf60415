"""Buckets asked from a test's own thread: an event loop with an engine runs in another one."""

from __future__ import annotations

import asyncio
import functools
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import CancelledError
from typing import Any, TypeVar

from adapter.storage.bucket import PAGE_OBJECTS, Bucket, Page, Read, StoredObject
from adapter.storage.net.engine import Engine
from adapter.storage.net.messages import FREE, Guard
from adapter.storage.secret.merging import StorageConfig
from adapter.storage.stores.clients import Clients, Means
from adapter.storage.stores.table import BUCKETS
from adapter.workers import Stop, Workers
from tests.real.polls import until

T = TypeVar("T")
Sink = Callable[[bytes | memoryview], object] | Read
"""What takes the bytes of a read."""


@functools.cache
def loop() -> asyncio.AbstractEventLoop:
    """For all tests of a process."""
    made = asyncio.new_event_loop()
    threading.Thread(target=made.run_forever, name="loop-of-tests", daemon=True).start()
    return made


def run(work: Coroutine[Any, Any, T], stop: Stop | None = None) -> T:
    """The result of a coroutine. Raises what it raises; Stopped."""
    stop = stop or Stop()
    try:
        stop.check()
    except BaseException:
        work.close()
        raise
    future = asyncio.run_coroutine_threadsafe(work, loop())

    def end() -> None:
        future.cancel()

    with stop.waking(end):
        try:
            return future.result()
        except CancelledError:
            stop.check()
            raise


class BlockingBucket:
    """A bucket whose calls block, until a stop."""

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket
        self.kind, self.place, self.endpoint, self.words = bucket.kind, bucket.place, bucket.endpoint, bucket.words

    def list_page(self, prefix: str, stop: Stop, *, token: str | None = None, limit: int = PAGE_OBJECTS, by_folder: bool = False) -> Page:
        """As `Bucket`."""
        return run(self.bucket.list_page(prefix, token=token, limit=limit, by_folder=by_folder), stop)

    def read(self, wanted: StoredObject, start: int, length: int, sink: Sink, stop: Stop) -> None:
        """As `Bucket`."""
        run(self.bucket.read((sink if isinstance(sink, Read) else _Given(wanted, start, length, sink, stop),)), stop)

    def bytes_of(self, wanted: StoredObject, start: int = 0, length: int | None = None, stop: Stop | None = None) -> bytes:
        """Of the object; all of it unless told."""
        got = bytearray()
        self.read(wanted, start, wanted.size_bytes - start if length is None else length, got.extend, stop or Stop())
        return bytes(got)


class _Given(Read):
    """Goes to a function of a test, until the stop."""

    def __init__(self, wanted: StoredObject, start: int, length: int, sink: Callable[[bytes | memoryview], object], stop: Stop) -> None:
        super().__init__(wanted, start, length)
        self._sink, self._stop = sink, stop

    def keep(self, chunk: bytes | memoryview) -> None:
        self._stop.check()
        self._sink(chunk)


@functools.cache
def engine() -> Engine:
    """For all tests of a process."""
    return Engine(1)


@functools.cache
def blocking() -> Workers:
    """For all tests of a process."""
    return Workers("blocking", 16)


class BlockingClients:
    """As `Clients`, for a test's own thread."""

    def __init__(self, stores: Mapping[str, Any] = BUCKETS, guard: Guard = FREE) -> None:
        self._clients = Clients(stores, Means(engine=engine(), blocking=blocking(), asking=blocking(), guard=guard))

    def bucket(self, config: StorageConfig, stop: Stop | None = None) -> BlockingBucket:
        """The bucket of a config."""
        return BlockingBucket(run(self._clients.bucket(config), stop))

    def close(self) -> None:
        """Nothing is kept open here."""


def ended(work: Callable[[Stop], object], is_waiting: Callable[[float], object]) -> tuple[BaseException, float]:
    """What the work raised, and how many seconds after the stop; it is stopped once it waits."""
    stop, raised = Stop(), []

    def run() -> None:
        try:
            work(stop)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert is_waiting(20)
    until(_stands_still(thread), "the thread waits", 20)
    begun = time.monotonic()
    assert thread.is_alive(), raised
    stop.set()
    thread.join(20)
    return raised[0], time.monotonic() - begun


def _stands_still(thread: threading.Thread) -> Callable[[], bool]:
    """Whether a thread is where it was at the last ten looks: it waits for a peer that has said its last."""
    places: list[object] = []

    def look() -> bool:
        frame = sys._current_frames().get(thread.ident or 0)
        places.append((frame, frame and frame.f_lasti))
        return places[-10:].count(places[-1]) == 10

    return look
