"""
A bucket that repeats what can pass, and tells what it waits for.

Knows nothing of any one store, and of no clock: pauses end at once when the work is stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import structlog

from adapter.backoff import doubling
from adapter.errors import SourceUnavailable
from adapter.storage.bucket import PAGE_OBJECTS, Bucket, Page, Sink, StoredObject
from adapter.storage.search import shown
from adapter.storage.wire.cutting import telling
from adapter.telemetry.metrics import SOURCE_RETRIES
from adapter.waits import Wait, Waits
from adapter.workers import Stop

TRIES = 5
"""Tries without any progress, the first one included."""
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 5.0

_log = structlog.stdlib.get_logger(__name__)


class RetriedBucket:
    """
    Repeats what can pass. A read goes on after the bytes that already reached the sink.

    Only SourceUnavailable is repeated; the last one is raised.
    """

    def __init__(self, bucket: Bucket, waits: Waits, *, jitter: Callable[[], float]) -> None:
        """`jitter` gives a number from 0 to 1 for each pause; a pause is shortened by up to half of that."""
        self._bucket = bucket
        self._waits = waits
        self._jitter = jitter
        self.kind = bucket.kind
        self.place = bucket.place
        self.words = bucket.words

    def list_page(self, prefix: str, stop: Stop, *, token: str | None = None, limit: int = PAGE_OBJECTS, by_folder: bool = False) -> Page:
        """One page, asked for again when the store was away."""
        with self._waits.on(f"an answer of {self.words} to a listing") as wait, telling(wait):
            tries = _Tries(self._bucket, self._jitter, wait, stop)
            while True:
                try:
                    return self._bucket.list_page(prefix, stop, token=token, limit=limit, by_folder=by_folder)
                except SourceUnavailable as error:
                    tries.failed(error)

    def read(self, wanted: StoredObject, start: int, length: int, sink: Sink, stop: Stop) -> None:
        """The range, resumed as long as there is progress."""
        if not length:
            return
        with self._waits.on(f"bytes {start}-{start + length - 1} of {shown(wanted.key)}") as wait, telling(wait):
            tries = _Tries(self._bucket, self._jitter, wait, stop)
            taken = 0

            def counted(chunk: bytes) -> None:
                nonlocal taken
                sink(chunk)
                taken += len(chunk)
                tries.progressed()

            while taken < length:
                try:
                    return self._bucket.read(wanted, start + taken, length - taken, counted, stop)
                except SourceUnavailable as error:
                    tries.failed(error)


class _Tries:
    """The tries of one call."""

    def __init__(self, bucket: Bucket, jitter: Callable[[], float], wait: Wait, stop: Stop) -> None:
        self._bucket = bucket
        self._jitter = jitter
        self._wait = wait
        self._stop = stop
        self._begin()

    def progressed(self) -> None:
        self._wait.progressed()
        if self._failures:
            self._begin()

    def failed(self, error: SourceUnavailable) -> None:
        """Pause before the next try, or raise the error when there have been enough."""
        self._failures += 1
        self._wait.trouble = error.text
        if self._failures >= TRIES:
            raise error
        SOURCE_RETRIES.labels(self._bucket.kind).inc()
        _log.info("source.retried", place=self._bucket.place, failed=self._failures, error=error.text)
        self._stop.pause(next(self._pauses) * (1 - self._jitter() / 2))

    def _begin(self) -> None:
        self._failures = 0
        self._pauses: Iterator[float] = doubling(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
