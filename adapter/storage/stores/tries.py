"""
A bucket that repeats what can pass for as long as the load may wait. Knows nothing of any one store.

All loads share what is known of an endpoint (`Bucket.endpoint`). While it is well, every call goes. A call that fails while no
other is answered is the beginning of its *trouble*: now one call at a time is the probe, with growing pauses between probes, and
the others wait. The first byte, or answer, of any call ends the trouble.

The probe goes from call to call, so that one object that fails does not stop the others: the call after a first failure probes
without a pause.

An endpoint from which nothing has come until a load had to end is *away*. A load that begins then gets one probe of
`PROBE_SECONDS`, which those that wait share, and fails with it. After `AWAY_SECONDS` loads have their whole time again: an answer
may honestly take longer than that probe.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import structlog

from adapter.errors import SourceChanged, SourceDenied, SourceNotFound, SourceUnavailable
from adapter.storage.bucket import PAGE_OBJECTS, Bucket, Page, Read
from adapter.storage.net.failures import ANSWER_SECONDS, CONNECT_SECONDS
from adapter.storage.search import shown
from adapter.telemetry.metrics import SOURCE_RETRIES
from adapter.waits import Wait, Waits, set_within

T = TypeVar("T")
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 5.0
LEAST_PAUSE_SECONDS = 0.1
"""The last pause is cut to fit one more try. Where less than this is left, there is none."""
PROBE_SECONDS = 5.0
"""Of an endpoint that is away, until its first byte."""
AWAY_SECONDS = 300.0
"""For so long only those probes ask an endpoint that is away."""
TRY_SECONDS = CONNECT_SECONDS + ANSWER_SECONDS
"""For so long others wait for a probe: a server may send a byte of a header now and then."""
KEPT_ENDPOINTS = 256
"""A request may name any endpoint."""

_log = structlog.stdlib.get_logger(__name__)


def _pause_after(tries: int) -> float:
    """Seconds; each pause is twice as long as the one before."""
    return min(FIRST_PAUSE_SECONDS * 2.0 ** min(tries - 1, 10), LONGEST_PAUSE_SECONDS)


@dataclass(eq=False)
class _Trouble:
    cause: str
    """The last one, without bucket and key."""
    since: float
    next_probe: float
    prober: _Call | None = None
    probes: int = 0
    """That have failed."""
    away_from: float = -math.inf
    """When it became known that it is away."""

    def is_away_for(self, began: float) -> bool:
        """Whether a load that began then gets one probe only."""
        return self.away_from <= began < self.away_from + AWAY_SECONDS


class Endpoint:
    """One endpoint, as all calls of this process have met it. Times are those of the loads' clock."""

    def __init__(self, kind: str, place: str, reader: str) -> None:
        """`kind`, `place`: of the store; `reader`: for what gives out the credentials for it to this one; else empty."""
        self.name = f"what gives out credentials for {place}" if reader else place
        self.trouble: _Trouble | None = None
        self.failures = 0
        """Of tries in times of trouble."""
        self.changed = asyncio.Event()
        """Set once, at the next change."""
        self._answered_at = -math.inf

    def answered(self, now: float) -> None:
        """Bytes have come, or an answer with a meaning: the trouble is over."""
        self._answered_at = now
        trouble, self.trouble = self.trouble, None
        if trouble is None:
            return
        self._notify()
        if trouble.away_from > -math.inf:
            _log.info("source.back", endpoint=self.name, away_seconds=round(now - trouble.since, 1))

    def failed(self, call: _Call, cause: str, now: float, pause_seconds: float) -> None:
        """A try of the call got nothing. Others heed the pause that was asked for up to the longest one: it may be of one object."""
        if self.trouble is None:
            if self._answered_at > call.began:  # it answers others: what was asked for is in trouble, not the endpoint
                return
            self.trouble = _Trouble(cause, since=call.began, next_probe=now)
        self.failures += 1
        self.trouble.cause = cause
        if self.trouble.prober is call:
            self.trouble.probes += 1
            self.trouble.next_probe = now + min(max(_pause_after(self.trouble.probes), pause_seconds), LONGEST_PAUSE_SECONDS)

    def left(self, call: _Call) -> None:
        """A try has ended. If it was the probe, the next one may begin."""
        if self.trouble is not None and self.trouble.prober is call:
            self.trouble.prober = None
            self._notify()

    def ended_a_load(self, waits: Waits, since: float, cause: str) -> None:
        """
        A load ends because nothing came since then. Away, if no other call got anything either.

        What was silent for less than a probe may take, and for less than a quarter of the load's time, is not away.
        """
        now, since = waits.clock(), max(since, self._answered_at)
        if now - since < min(PROBE_SECONDS, (waits.until - waits.began) / 4):
            return
        trouble = self.trouble = self.trouble or _Trouble(cause, since, next_probe=now)
        if not trouble.is_away_for(now):
            trouble.away_from = min(now, waits.until)
            _log.warning("source.away", endpoint=self.name, away_seconds=round(now - trouble.since, 1), cause=cause)

    def _notify(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


Endpoints = Callable[[str, str, str], Endpoint]


def endpoints() -> Endpoints:
    """The endpoints that were met last, by what `Endpoint` is made of."""
    return lru_cache(KEPT_ENDPOINTS)(Endpoint)


class RetriedBucket:
    """
    Repeats what can pass. A read goes on after the bytes that already reached the sink, of an object that has a version.

    Only SourceUnavailable is repeated. When no other try fits, it is raised with the last cause, the number of tries and the time.
    """

    def __init__(self, bucket: Bucket, waits: Waits, *, known: Endpoints, reader: str, jitter: Callable[[], float]) -> None:
        """
        Args:
            bucket: whose calls are repeated.
            waits: of the load: what it waits for is told there, and how long it may wait is asked there.
            known: the endpoints.
            reader: who asks: of equal ones the credentials are given out together.
            jitter: a number from 0 to 1 for each pause; a pause is shortened by up to half of that.
        """
        self.kind, self.place, self.words, self.endpoint = bucket.kind, bucket.place, bucket.words, bucket.endpoint
        self.waits = waits
        self.jitter = jitter
        self.store = known(bucket.kind, bucket.endpoint, "")
        self.giver = known(bucket.kind, bucket.endpoint, reader)
        """Of credentials."""
        self._bucket = bucket

    async def list_page(self, prefix: str, *, token: str | None = None, limit: int = PAGE_OBJECTS, by_folder: bool = False) -> Page:
        """One page, asked for again when the store was away."""
        with self.waits.on(f"an answer of {self.words} to a listing") as wait:
            call = _Call(self, wait)
            page = await call.repeated(lambda: self._bucket.list_page(prefix, token=token, limit=limit, by_folder=by_folder))
            if page.is_answer:
                call.answered()
            return page

    async def read(self, reads: Sequence[Read]) -> None:
        """As the Protocol says, gone on with as long as there is progress."""
        with self.waits.on(_Bytes(reads)) as wait:
            call = _Call(self, wait)
            for read in reads:
                read.moved = call.moved

            async def rest() -> None:
                try:
                    await self._bucket.read(reads)
                except SourceUnavailable as error:
                    broken = next((read for read in reads if read.missing), None)
                    if broken is not None and broken.taken and not broken.wanted.is_versioned:  # the rest might be of another version
                        text = f"the body of {shown(broken.wanted.key)} broke off, and {self.words} names no version to go on with"
                        raise SourceChanged(text) from error
                    raise

            await call.repeated(rest)


class _Bytes:
    """Those that are waited for, in words when these are asked for."""

    def __init__(self, reads: Sequence[Read]) -> None:
        self._reads = reads

    def __str__(self) -> str:
        read = next((read for read in self._reads if not read.is_done), self._reads[-1])
        return f"bytes {read.start}-{read.last} of {shown(read.wanted.key)}"


class _Call:
    """One call of a load, and its tries."""

    def __init__(self, bucket: RetriedBucket, wait: Wait) -> None:
        self.began = wait.since
        """The try."""
        self._bucket = bucket
        self._waits = bucket.waits
        self._wait = wait
        self._failing = bucket.store
        """What was waited for last, or has failed last: what gives out the credentials comes first."""
        self._cause = "no answer"
        self._loop = asyncio.get_running_loop()
        self._bound: asyncio.Timeout | None = None
        """Of the try, until bytes have come."""
        self._tries = 0
        """Since bytes came; those of others count that were waited for."""

    async def repeated(self, work: Callable[[], Awaitable[T]]) -> T:
        """What the work gives. Raises as the work; SourceUnavailable when it cannot pass, or no other try fits."""
        while True:
            seconds, is_last = await self._turn()
            try:
                async with asyncio.timeout(seconds) as self._bound:
                    return await work()
            except (SourceNotFound, SourceDenied, SourceChanged):
                self.answered()
                raise
            except (SourceUnavailable, TimeoutError) as error:
                failure = error if isinstance(error, SourceUnavailable) else self._silence(seconds or 0)
                pause = self._failed(failure, is_last=is_last)
            except asyncio.CancelledError:
                if self._waits.left_seconds() <= 0:  # by the load's budget: it proves what the silence was
                    self._failing.ended_a_load(self._waits, self._wait.since, self._cause)
                raise
            finally:
                self._bound = None
                for endpoint in (self._bucket.store, self._bucket.giver):
                    endpoint.left(self)
            await asyncio.sleep(pause)

    def answered(self) -> None:
        """The endpoint has said something with a meaning."""
        for endpoint in (self._bucket.giver, self._bucket.store):
            endpoint.answered(self._waits.clock())

    def moved(self) -> None:
        """Bytes have come. In the engine's thread."""
        self._wait.since = self._waits.clock()
        bound, self._bound = self._bound, None
        if bound is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._progressed, bound)

    def _progressed(self, bound: asyncio.Timeout) -> None:
        self.answered()
        self._wait.progressed()
        self._tries = 0
        with suppress(RuntimeError):  # it has just expired
            bound.reschedule(None)

    async def _turn(self) -> tuple[float | None, bool]:
        """
        Wait until the call may try.

        Returns:
            How many seconds the try may be without a byte (None: others may try as well), and whether the load ends when it fails.

        Raises:
            SourceUnavailable: not before the load's time is up, or the probe that it waited for has failed and it gets no other.
        """
        endpoint = self._failing = self._bucket.store if self._bucket.giver.trouble is None else self._bucket.giver
        now = end = arrived = self._waits.clock()
        seen, is_last, is_over = endpoint.failures, False, False
        while (trouble := endpoint.trouble) is not None:
            now, end, ready = self._waits.clock(), self._waits.until, trouble.next_probe
            if is_last := trouble.is_away_for(self._waits.began):
                ready, end = now, min(end, arrived + PROBE_SECONDS)
            is_over = max(now, ready) >= end or (is_last and endpoint.failures > seen)
            if trouble.prober is not None:
                ready = max(ready, trouble.prober.began + TRY_SECONDS)
            if is_over or now >= ready:
                break
            await set_within(endpoint.changed, max(min(ready, end) - now, 0.001))  # not for less than a clock can tell
        self._tries += endpoint.failures - seen
        self.began = self._waits.clock()
        if trouble is None:
            return None, False
        if is_over:
            self._cause = trouble.cause
            raise self._ended(self._wait.trouble or f"{self._words()} is away: {trouble.cause}")
        trouble.prober = self
        return end - now, is_last

    def _silence(self, seconds: float) -> SourceUnavailable:
        if seconds < PROBE_SECONDS and self._wait.trouble:  # too short to prove a silence: what failed before tells more
            return SourceUnavailable(self._wait.trouble, cause=self._cause)
        cause = f"no answer within {seconds:.3g} s"
        return SourceUnavailable(f"{self._words()} cannot be reached: {cause}", cause=cause)

    def _failed(self, error: SourceUnavailable, *, is_last: bool) -> float:
        """Seconds until the next try. Raises the failure when it cannot pass, or no other try fits."""
        if not error.can_pass:
            raise error
        now, left, asked = self._waits.clock(), self._waits.left_seconds(), error.retry_after_seconds or 0
        self._tries += 1
        self._wait.trouble, self._cause = error.text, error.cause
        if error.is_of_giver:
            self._failing = self._bucket.giver
        self._failing.failed(self, error.cause, now, asked)
        if is_last:
            raise self._ended(error.text) from error
        pause = max(_pause_after(self._tries) * (1 - self._bucket.jitter() / 2), asked)
        as_long = min(now - max(self.began, self._wait.since), CONNECT_SECONDS)
        if max(asked, LEAST_PAUSE_SECONDS) + as_long > left:
            too_long = f"; it asks for a pause of {asked:.0f} s, and {left:.1f} s are left" if asked and pause == asked else ""
            raise self._ended(error.text + too_long) from error
        SOURCE_RETRIES.labels(self._bucket.kind).inc()
        _log.info("source.retried", place=self._bucket.place, failed=self._tries, error=error.text)
        return min(pause, left - as_long)

    def _ended(self, text: str) -> SourceUnavailable:
        """The failure with what was tried; the endpoint is told that a load ends because of it."""
        self._failing.ended_a_load(self._waits, self._wait.since, self._cause)
        now, trouble = self._waits.clock(), self._failing.trouble
        if self._tries:
            times = "once" if self._tries == 1 else f"{self._tries} times"
            text += f"; tried {times} in {now - self._wait.since:.1f} s"
        if trouble is not None and trouble.is_away_for(self._waits.began):
            text += f"; {self._failing.name} has been away for {now - trouble.since:.0f} s"
        return SourceUnavailable(text, cause=self._cause)

    def _words(self) -> str:
        return self._bucket.words if self._failing is self._bucket.store else self._failing.name
