"""
Which bytes a lane of a pull takes next: decided when the lane is free, by what it has moved so far. Knows no store, and no file.

A file is not cut before: how long a span is well pulled for depends on the connection. What ends soon lets others have the
thread; what is long costs fewer requests; and no lane takes more than its part of all that is still to come, so that
all end together.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from adapter.storage.bucket import StoredObject
from adapter.units import MIB

SPAN_SECONDS = 0.75
"""How long a connection shall be busy with one span."""


@dataclass(frozen=True)
class SpanSizes:
    """How many bytes a span may have."""

    first_bytes: int = 4 * MIB
    """Of a lane that has shown nothing yet."""
    least_bytes: int = MIB
    """Smaller files are pulled in one, larger ones in spans of at least so many."""
    most_bytes: int = 64 * MIB


SPAN_SIZES = SpanSizes()


@dataclass(frozen=True)
class Span:
    """Bytes of one object."""

    path: str
    stored: StoredObject
    start: int
    length: int

    @property
    def is_whole(self) -> bool:
        """All of the object."""
        return self.length == self.stored.size_bytes


class Lane:
    """What one connection at a time has moved of a pull. Written by its thread; others may look."""

    def __init__(self) -> None:
        self.moved_bytes = 0
        """In all."""
        self.ended = 0
        """Spans."""
        self.span: Span | None = None
        """Which is being pulled."""
        self._bytes_before = 0
        self._began = 0.0
        self._next_bytes = 0

    @property
    def is_moving(self) -> bool:
        """Something has come."""
        return bool(self.moved_bytes or self.ended)

    @property
    def open_bytes(self) -> int:
        """Of its span, not there yet."""
        span = self.span
        return span.length - (self.moved_bytes - self._bytes_before) if span is not None else 0

    def wanted_bytes(self, sizes: SpanSizes) -> int:
        """Of its next span, as far as its connection has a say."""
        return self._next_bytes or sizes.first_bytes

    def begin(self, span: Span, now: float) -> None:
        """It pulls this now."""
        self._bytes_before, self._began, self.span = self.moved_bytes, now, span

    def end(self, sizes: SpanSizes, now: float) -> None:
        """The span is there. What comes next is at most four times as long: one lucky span proves little."""
        span, self.span = self.span, None
        self.ended += 1
        if span is None or span.length < sizes.least_bytes:
            return
        seconds = max(now - self._began, 1e-3)
        fitting = int(span.length / seconds * SPAN_SECONDS)
        self._next_bytes = max(sizes.least_bytes, min(fitting, 4 * max(span.length, sizes.first_bytes), sizes.most_bytes))


class Plan:
    """What is left of a pull. Asked from any thread."""

    def __init__(self, objects: Mapping[str, StoredObject], sizes: SpanSizes, clock: Callable[[], float]) -> None:
        self.sizes = sizes
        self.clock = clock
        self.lanes: list[Lane] = []
        """All that there ever were."""
        self._lock = threading.Lock()
        files = sorted(objects.items(), key=lambda item: -item[1].size_bytes)  # so that no large file is the last one
        self._files = deque(files)
        self._left_bytes = sum(stored.size_bytes for stored in objects.values())
        large_bytes = sum(stored.size_bytes for stored in objects.values() if self.is_cut(stored))
        self.is_of_bytes = 2 * large_bytes > self._left_bytes
        """Large files are most of it, so bytes count more than requests."""
        self._start = 0
        """In the first of the files."""

    def __bool__(self) -> bool:
        """Whether something is left to be taken."""
        return bool(self._files)

    def is_cut(self, stored: StoredObject) -> bool:
        """Whether several spans make the file."""
        return stored.is_divisible and stored.is_versioned and stored.size_bytes > self.sizes.least_bytes

    def most_lanes(self, ceiling: int) -> int:
        """How many could have something to do."""
        spans = len(self._files) + sum(stored.size_bytes // self.sizes.least_bytes for _, stored in self._files if self.is_cut(stored))
        return min(ceiling, spans)

    def lane(self) -> Lane:
        """One more."""
        made = Lane()
        self.lanes.append(made)
        return made

    def take(self, lane: Lane, sharers: int) -> Span | None:
        """The next span for a lane, of so many that share what is left; None: nothing is left. Call `end` when it is there."""
        with self._lock:
            if not self._files:
                return None
            path, stored = self._files[0]
            length = stored.size_bytes - self._start
            if self.is_cut(stored):
                length = min(length, self._part(lane, sharers))
            span = Span(path, stored, self._start, length)
            self._start += length
            if self._start == stored.size_bytes:
                self._files.popleft()
                self._start = 0
            self._left_bytes -= length
        lane.begin(span, self.clock())
        return span

    def end(self, lane: Lane) -> None:
        """The span of this lane is there."""
        lane.end(self.sizes, self.clock())

    def _part(self, lane: Lane, sharers: int) -> int:
        outstanding = self._left_bytes + sum(other.open_bytes for other in self.lanes)
        fair = -(-outstanding // max(sharers, 1))
        return max(min(lane.wanted_bytes(self.sizes), fair), self.sizes.least_bytes)
