"""
Concerns around a source, each a wrapper of the same Protocol.

Knows nothing of any one store, and of no clock: pauses end at once when the work is stopped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import structlog

from adapter.errors import SourceUnavailable
from adapter.storage.source import PAGE_OBJECTS, ObjectSource, Page, Sink, StoredObject
from adapter.telemetry.metrics import SOURCE_RETRIES
from adapter.workers import Stop

T = TypeVar("T")

TRIES = 5
"""Tries without any progress, the first one included."""
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 5.0

_log = structlog.stdlib.get_logger(__name__)


class RetriedSource:
    """
    Repeats what can pass. A read goes on after the bytes that already reached the sink.

    Only SourceUnavailable is repeated; the last one is raised.
    """

    def __init__(self, source: ObjectSource, *, jitter: Callable[[], float]) -> None:
        """
        Args:
            source: what to ask.
            jitter: a number from 0 to 1 for each pause, which is shortened by up to half of it.
        """
        self._source = source
        self._jitter = jitter
        self.kind = source.kind
        self.place = source.place

    def list_page(self, prefix: str, stop: Stop, *, token: str | None = None, limit: int = PAGE_OBJECTS, by_folder: bool = False) -> Page:
        """One page, asked for again when the store was away."""
        failed = 0
        while True:
            try:
                return self._source.list_page(prefix, stop, token=token, limit=limit, by_folder=by_folder)
            except SourceUnavailable as error:
                failed += 1
                self._pause_or_raise(error, failed, stop)

    def read(self, wanted: StoredObject, start: int, length: int, sink: Sink, stop: Stop) -> None:
        """The range, resumed as long as there is progress."""
        counted = _CountingSink(sink)
        failed = 0
        while counted.taken < length or not length:
            before = counted.taken
            try:
                return self._source.read(wanted, start + before, length - before, counted, stop)
            except SourceUnavailable as error:
                failed = 1 if counted.taken > before else failed + 1
                self._pause_or_raise(error, failed, stop)
        return None

    def _pause_or_raise(self, error: SourceUnavailable, failed: int, stop: Stop) -> None:
        if failed >= TRIES:
            raise error
        SOURCE_RETRIES.labels(self.kind).inc()
        pause = min(FIRST_PAUSE_SECONDS * 2 ** (failed - 1), LONGEST_PAUSE_SECONDS)
        _log.info("source.retried", place=self.place, failed=failed, error=error.text)
        stop.pause(pause * (1 - self._jitter() / 2))


class _CountingSink:
    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.taken = 0

    def __call__(self, chunk: bytes) -> None:
        self._sink(chunk)
        self.taken += len(chunk)
