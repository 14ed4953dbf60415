"""
The health of endpoints, which all loads share.

Knows nothing of any one store. An endpoint (`Bucket.endpoint`) is in one of three states:

        a call fails, and no             a load ends, for nothing came
        other is answered                for (about) all of its time
    Well ──────────────────────► Trouble ─────────────────────────────► Away
      ▲                             │                                    │
      └─────────────────────────────┴────────────────────────────────────┘
                    the first answer, or byte, of any call

- Well: every call goes.
- Trouble: one call at a time is the probe, with growing pauses between probes; the others wait. A probe that
  takes longer than `TRY_SECONDS` goes on, and the next may begin.
- Away: as Trouble for loads that began before it was known. A load that begins later gets one probe of
  `PROBE_SECONDS`, which those that wait share, and fails with it. Once in `AWAY_SECONDS`, a load has its whole time,
  as in Trouble: an answer may honestly take longer than that probe.

The probe goes from call to call, so that one object that fails does not stop the others: the call
after a first failure probes without a pause.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

import structlog

from adapter.backoff import doubling, set_within
from adapter.storage.bucket import Bucket
from adapter.storage.net.failures import ANSWER_SECONDS, CONNECT_SECONDS
from adapter.waits import Waits

FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 5.0
PROBE_SECONDS = 5.0
"""Of an endpoint that is away, until its first byte."""
AWAY_SECONDS = 300.0
"""For so long only those probes ask an endpoint that is away."""
TRY_SECONDS = CONNECT_SECONDS + ANSWER_SECONDS
"""For so long others wait for a probe: a server may send a byte of a header now and then."""
KEPT_ENDPOINTS = 256
"""A request may name any endpoint."""

_log = structlog.stdlib.get_logger(__name__)


@dataclass(eq=False)
class Turn:
    """One try that may be made."""

    began: float
    others: int = 0
    """Tries of others that failed while this one waited."""
    probe_seconds: float | None = None
    """A probe: how long it may be without a byte. None: others may try as well."""
    is_last: bool = False
    """The endpoint is away: the load ends when this try fails."""


class NoTurnError(Exception):
    """The load may not try, or not in time."""

    def __init__(self, cause: str, others: int, away_seconds: float | None) -> None:
        super().__init__(cause)
        self.cause = cause
        """The endpoint's last one, without bucket and key."""
        self.others = others
        self.away_seconds = away_seconds
        """For how long it has been away; None: it is not."""


@dataclass(eq=False)
class _Trouble:
    cause: str
    not_before: float
    """The next probe."""
    failures: int = 0
    prober: Turn | None = None
    pauses: Iterator[float] = field(default_factory=lambda: doubling(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS))
    away_since: float | None = None
    told_at: float = 0.0
    """When it became known that it is away."""
    believed_until: float = 0.0
    whole: Waits | None = None
    """Of the last load that came after that, and has its whole time: no other has it for as long again, unless it was stopped."""

    def ends(self, waits: Waits, now: float) -> bool:
        """Whether this load gets one try only: it has begun since the endpoint is known to be away."""
        if self.away_since is None or waits.began < self.told_at:
            return False
        if now >= self.believed_until:
            self.whole, self.believed_until = waits, now + AWAY_SECONDS
        return waits is not self.whole


class Endpoint:
    """One endpoint, as all calls of this process have met it. Times are those of the loads' clock."""

    def __init__(self, name: str) -> None:
        self.name = name
        """Host and port."""
        self._changed = asyncio.Event()
        self._trouble: _Trouble | None = None
        self._answered_at = float("-inf")

    @property
    def is_well(self) -> bool:
        """Nothing is known of it."""
        return self._trouble is None

    def away_seconds(self, now: float) -> float | None:
        """For how long it has been away; None when it is not known to be."""
        trouble = self._trouble
        return None if trouble is None or trouble.away_since is None else now - trouble.away_since

    async def turn(self, waits: Waits) -> Turn:
        """
        Wait until the call may try.

        Raises:
            NoTurnError: not before the load's time is up, or the probe that it waited for has failed and it gets no other.
        """
        arrived = waits.clock()
        known, seen = None, 0
        while True:
            now, trouble = waits.clock(), self._trouble
            if trouble is None:
                return Turn(now, 0 if known is None else known.failures - seen)
            if trouble is not known:
                known, seen = trouble, trouble.failures
            others = trouble.failures - seen
            is_last = trouble.ends(waits, now)
            end = min(waits.until, arrived + PROBE_SECONDS) if is_last else waits.until
            ready = now if is_last else trouble.not_before
            if max(now, ready) >= end or (is_last and others):
                raise NoTurnError(trouble.cause, others, self.away_seconds(now))
            ready = max(ready, now if trouble.prober is None else trouble.prober.began + TRY_SECONDS)
            if now >= ready:
                trouble.prober = Turn(now, others, end - now, is_last)
                return trouble.prober
            await set_within(self._changed, min(ready, end) - now)

    def look(self, waits: Waits) -> Turn:
        """As `turn`, for a survey, which asks no endpoint that is in trouble."""
        if self._trouble is not None:
            raise NoTurnError(self._trouble.cause, 0, None)
        return Turn(waits.clock())

    def answered(self, now: float) -> None:
        """Bytes have come, or an answer with a meaning: the trouble is over."""
        self._answered_at = now
        trouble, self._trouble = self._trouble, None
        if trouble is None:
            return
        self._notify()
        if trouble.away_since is not None:
            _log.info("source.back", endpoint=self.name, away_seconds=round(now - trouble.away_since, 1))

    def failed(self, turn: Turn, cause: str, now: float, pause_seconds: float | None = None) -> None:
        """
        A try got nothing.

        Args:
            turn: of the try.
            cause: without bucket and key.
            now: by the load's clock.
            pause_seconds: what the endpoint asked for. Others heed it up to the longest pause: what one object asks for is not
                what all have to bear.
        """
        if self._trouble is None:
            if self._answered_at > turn.began:  # it answers others: what was asked for is in trouble, not the endpoint
                return
            self._trouble = _Trouble(cause, not_before=now)
        trouble = self._trouble
        trouble.failures += 1
        trouble.cause = cause
        if trouble.prober is turn:
            trouble.prober = None
            trouble.not_before = now + min(max(next(trouble.pauses), pause_seconds or 0), LONGEST_PAUSE_SECONDS)
        self._notify()

    def left(self, turn: Turn) -> None:
        """A try has ended. One that was the probe and told nothing lets the next one begin."""
        trouble = self._trouble
        if trouble is not None and trouble.prober is turn:
            trouble.prober = None
            if trouble.whole is not None and not turn.is_last:
                trouble.believed_until = turn.began
            self._notify()

    def ended_a_load(self, waits: Waits, since: float, cause: str) -> None:
        """
        A load ends because nothing came since then. Away, if no other call got anything either.

        What was silent for less than a probe may take, and for less than a quarter of the load's time, is not away.
        """
        now, since = waits.clock(), max(since, self._answered_at)
        if now - since < min(PROBE_SECONDS, (waits.until - waits.began) / 4):
            return
        trouble = self._trouble = self._trouble or _Trouble(cause, not_before=now)
        if trouble.away_since is not None:
            return
        trouble.away_since, trouble.told_at = since, min(now, waits.until)
        trouble.believed_until = now + AWAY_SECONDS
        self._notify()
        _log.warning("source.away", endpoint=self.name, away_seconds=round(now - since, 1), cause=cause)

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class Health:
    """The endpoints that were met last, the ones in trouble first."""

    def __init__(self) -> None:
        self._endpoints: OrderedDict[tuple[str, str, str], Endpoint] = OrderedDict()

    def of(self, bucket: Bucket, reader: str = "") -> Endpoint:
        """The endpoint of a bucket; with `reader`, what gives out the credentials for it to this one."""
        key = (bucket.kind, bucket.endpoint, reader)
        found = self._endpoints.setdefault(key, Endpoint(f"what gives out credentials for {bucket.words}" if reader else bucket.endpoint))
        self._endpoints.move_to_end(key)
        if len(self._endpoints) > KEPT_ENDPOINTS:
            well = (name for name, endpoint in self._endpoints.items() if endpoint.is_well and endpoint is not found)
            del self._endpoints[next(well, next(iter(self._endpoints)))]
        return found
