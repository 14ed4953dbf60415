"""
How many lanes a pull uses: more as long as more move more. Pure: told the time and the progress, it decides.

Where latency or a bound on each connection limits, bytes a second grow with the lanes; where the processor or the whole link
does, they do not, and more lanes only cost. So it is tried: a few lanes are measured, then several times as many, and
what brings nothing is taken back. Later it is tried again from time to time, for others come and go. While this process
itself has all that it can use of the processors, no more are tried: there the lanes wait for each other, and for Python's lock.
So fewer are tried, unless the kernel does the work.
"""

from __future__ import annotations

import math
from enum import Enum, auto

from adapter.threads import PROCESSORS

FIRST_LANES = 4
WINDOW_SECONDS = 0.1
"""How long progress is measured, after each lane has begun to move."""
LOOK_SECONDS = 0.01
"""Between looks while something is tried."""
REST_SECONDS = 1.0
"""Before the next try; twice as long after each that brought nothing."""
LONGEST_REST_SECONDS = 8.0
BUSY = 0.9
"""Of a processor: Python runs on one at a time."""
BUSY_BY_KERNEL = 0.65 * PROCESSORS
"""Likewise, where the kernel does the work: for several lanes at a time. On loopback, the rest is the server's."""
_WARM_SECONDS = 0.5
"""Longest wait for each lane to begin: a thread or the store may keep one waiting."""
_LEAST_GAIN = 1.15
_NEARLY_ALL = 0.75
"""Of the lanes that were tried: if so many were of use, still more may be."""
_FIRST_FACTOR = 4
_LATER_FACTOR = 2


class _State(Enum):
    WARMING = auto()
    MEASURING = auto()
    RESTING = auto()


class Work(Enum):
    """What the lanes of a pull are busy with."""

    MOVING = auto()
    """The kernel moves the bytes."""
    DECRYPTING = auto()
    """OpenSSL does, one record after the other."""
    ASKING = auto()
    """Python does, for many small files."""


class Growth:
    """The number of lanes of one pull."""

    def __init__(self, ceiling: int, now: float, work: Work) -> None:
        """
        Args:
            ceiling: the most lanes; at least 1.
            now: seconds.
            work: of the lanes.
        """
        self.lanes = self._first = min(ceiling, FIRST_LANES)
        """As many shall be at work."""
        self._ceiling = ceiling
        self._busy = BUSY_BY_KERNEL if work is Work.MOVING else BUSY
        self._fewest = {Work.MOVING: FIRST_LANES, Work.DECRYPTING: PROCESSORS, Work.ASKING: 1}[work]
        """Are tried where the processor is busy: one that asks keeps nobody from Python's lock."""
        self._before: int | None = None
        """What was at work before the try that is under way."""
        self._rate = 0.0
        """Before it."""
        self._factor = _FIRST_FACTOR
        self._rest_seconds = REST_SECONDS
        self._state = _State.WARMING
        self._since = now
        self._progress = 0.0
        self._cpu = 0.0
        self._is_busy = False

    @property
    def look_seconds(self) -> float:
        """Until it wants to be told again."""
        return LOOK_SECONDS if self._state is not _State.RESTING else REST_SECONDS / 4

    def look(self, now: float, progress: float, *, are_all_moving: bool, cpu_seconds: float = 0.0) -> None:
        """
        Decide.

        Args:
            now: seconds.
            progress: of the whole pull, in bytes or what is worth as much.
            are_all_moving: each lane that was asked for has got something, and no other is at work.
            cpu_seconds: that this process has used.
        """
        passed = now - self._since
        self._is_busy = passed > 0 and cpu_seconds - self._cpu >= self._busy * passed
        before = self._state, self._since
        if self._state is _State.WARMING:
            if are_all_moving or passed >= _WARM_SECONDS:
                self._enter(_State.MEASURING, now, progress)
        elif self._state is _State.MEASURING:
            if passed >= WINDOW_SECONDS:
                self._measured((progress - self._progress) / passed, now, progress)
        elif passed >= self._rest_seconds:
            self._enter(_State.MEASURING, now, progress)
        if (self._state, self._since) != before:
            self._cpu = cpu_seconds

    def _measured(self, rate: float, now: float, progress: float) -> None:
        if self._before is None:
            if rate:
                self._try_others(rate, now, progress)
            else:  # a store that gives nothing would only keep more threads waiting; one connection, the whole pull
                self.lanes = max(self.lanes, self._first)
                self._rest(REST_SECONDS, now, progress)
            return
        gain = rate / self._rate
        if self.lanes < self._before:
            if gain * _LEAST_GAIN < 1:
                self.lanes = self._before
            self._rest(self._rest_seconds * 2, now, progress)
            return
        useful = min(math.ceil(self._before * gain), self.lanes)
        if gain < _LEAST_GAIN:
            self.lanes = self._before
            self._rest(self._rest_seconds * 2, now, progress)
        elif useful >= _NEARLY_ALL * self.lanes:
            self._try_others(rate, now, progress)
        else:
            self.lanes = useful
            self._rest(REST_SECONDS, now, progress)

    def _try_others(self, rate: float, now: float, progress: float) -> None:
        if self._is_busy and self._fewest < self.lanes <= FIRST_LANES:
            self._try(self._fewest, rate, now, progress)
            return
        more = min(self._ceiling, self.lanes * self._factor)
        if more == self.lanes or self._is_busy:
            self._rest(REST_SECONDS if self._is_busy else LONGEST_REST_SECONDS, now, progress)
            return
        self._try(more, rate, now, progress)

    def _try(self, lanes: int, rate: float, now: float, progress: float) -> None:
        self._before, self._rate, self.lanes = self.lanes, rate, lanes
        self._enter(_State.WARMING, now, progress)

    def _rest(self, seconds: float, now: float, progress: float) -> None:
        self._before = None
        self._factor = _LATER_FACTOR
        self._rest_seconds = min(seconds, LONGEST_REST_SECONDS)
        self._enter(_State.RESTING, now, progress)

    def _enter(self, state: _State, now: float, progress: float) -> None:
        self._state, self._since, self._progress = state, now, progress
