"""
A bucket that repeats what can pass for as long as the load may wait. Knows nothing of any one store.

All loads share what is known of an endpoint (`Bucket.endpoint`). While it is well, every call goes. A call that fails while no
other is answered is the beginning of its *trouble*: now one call at a time is the probe, with growing pauses between probes, and
the others wait. The first byte, or answer, of any call ends the trouble.

The probe goes from call to call, so that one object that fails does not stop the others: the call after a first failure probes
without a pause, and calls that wait go before calls that have failed.

An endpoint from which nothing has come until a load had to end is *away*. A load that begins then gets one probe of
`PROBE_SECONDS`, which those that wait share, and fails with it. After `AWAY_SECONDS` loads have their whole time again: an answer
may honestly take longer than that probe.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TypeVar

import structlog

from adapter.errors import SourceChanged, SourceError, SourceUnavailable
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


@dataclass(eq=False)
class Endpoint:
    """One endpoint, as all calls of this process have met it: well, in trouble, or away. Times are those of the loads' clock."""

    name: str
    trouble_since: float = math.inf
    cause: str = "no answer"
    """Of the trouble, without bucket and key."""
    next_probe: float = 0.0
    probed_until: float = 0.0
    """While a probe is under way: when the others do not wait for it any more."""
    probes: int = 0
    """That have failed."""
    away_from: float = -math.inf
    """When it became known that the endpoint is away."""
    answered_at: float = -math.inf
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once, at the next change."""

    @property
    def is_in_trouble(self) -> bool:
        """Nothing has come since a call has failed."""
        return self.trouble_since < math.inf

    def is_away_for(self, began: float) -> bool:
        """Whether a load that began then gets one probe only."""
        return self.away_from <= began < self.away_from + AWAY_SECONDS

    def answered(self, now: float) -> None:
        """Bytes have come, or an answer with a meaning: the trouble is over."""
        if self.away_from > -math.inf:
            _log.info("source.back", endpoint=self.name, away_seconds=round(now - self.trouble_since, 1))
        self.answered_at, self.trouble_since, self.away_from, self.cause = now, math.inf, -math.inf, "no answer"
        self.notify()

    def notify(self) -> None:
        """Wake the calls that wait."""
        self.changed.set()
        self.changed = asyncio.Event()


Endpoints = Callable[[str, str, str], Endpoint]


def endpoints() -> Endpoints:
    """Those that were met last: by kind and place of a store, and who reads there, for what gives out the credentials to this one."""
    return lru_cache(KEPT_ENDPOINTS)(lambda _, place, reader: Endpoint(f"what gives out credentials for {place}" if reader else place))


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
            reader: names the source of credentials; equal readers share one endpoint.
            jitter: a number from 0 to 1 for each pause; a pause is shortened by up to half of that.
        """
        self.kind, self.place, self.words, self.endpoint = bucket.kind, bucket.place, bucket.words, bucket.endpoint
        self.bucket, self.waits, self.jitter = bucket, waits, jitter
        self.store, self.giver = known(bucket.kind, bucket.endpoint, ""), known(bucket.kind, bucket.endpoint, reader)
        """Endpoints: of the bucket, and of its credentials."""

    async def list_page(self, prefix: str, *, token: str | None = None, limit: int = PAGE_OBJECTS, by_folder: bool = False) -> Page:
        """One page, asked for again when the store was away."""
        with self.waits.on(f"an answer of {self.words} to a listing") as wait:
            call = _Call(self, wait)
            page = await call.repeated(partial(self.bucket.list_page, prefix, token=token, limit=limit, by_folder=by_folder))
            call.answered()
            return page

    async def read(self, reads: Sequence[Read]) -> None:
        """As the Protocol says, gone on with as long as there is progress."""
        with self.waits.on(_Bytes(reads)) as wait:
            call = _Call(self, wait)
            for read in reads:
                read.moved = call.moved
            await call.repeated(partial(self._rest, reads))

    async def _rest(self, reads: Sequence[Read]) -> None:
        broken = next((read for read in reads if read.taken and read.missing), None)
        if broken is not None and not broken.wanted.is_versioned:  # the rest might be of another version
            text = f"the body of {shown(broken.wanted.key)} broke off, and {self.words} names no version to go on with"
            raise SourceChanged(text)
        await self.bucket.read(reads)


class _Bytes(tuple[Read, ...]):
    """Those that are waited for, in words when these are asked for."""

    def __str__(self) -> str:
        read = next((read for read in self if not read.is_done), self[-1])
        return f"bytes {read.start}-{read.last} of {shown(read.wanted.key)}"


class _Call:
    """One call of a load, and its tries."""

    def __init__(self, bucket: RetriedBucket, wait: Wait) -> None:
        self._bucket, self._waits, self._wait = bucket, bucket.waits, wait
        self._endpoint = bucket.store
        """What was waited for last, or has failed last: what gives out the credentials comes first."""
        self._loop = asyncio.get_running_loop()
        self._bound: asyncio.Timeout | None = None
        """Of the try, until bytes have come."""
        self._tries = 0
        """Since bytes came; those of others count that were waited for."""

    async def repeated(self, work: Callable[[], Awaitable[T]]) -> T:
        """What the work gives. Raises as the work; SourceUnavailable when it cannot pass, or no other try fits."""
        while True:
            seconds = await self._turn()
            endpoint, began = self._endpoint, self._waits.clock()
            try:
                async with asyncio.timeout(seconds) as self._bound:
                    return await work()
            except (SourceUnavailable, TimeoutError) as error:
                pause = self._failed(error, began, seconds)
            except asyncio.CancelledError:
                if self._waits.left_seconds() <= 0:  # by the load's budget: it proves what the silence was
                    self._ended("")
                raise
            except SourceError:
                self.answered()
                raise
            finally:
                if seconds is not None:  # it was the probe
                    endpoint.probed_until = 0.0
                    endpoint.notify()
            await asyncio.sleep(pause)

    def moved(self) -> None:
        """Bytes have come. In the engine's thread."""
        self._wait.since = self._waits.clock()
        if self._bound is not None:
            self._loop.call_soon_threadsafe(self._progressed, self._bound)
            self._bound = None

    def _progressed(self, bound: asyncio.Timeout) -> None:
        self.answered()
        self._wait.progressed()
        self._tries = 0
        with suppress(RuntimeError):  # it has just expired
            bound.reschedule(None)

    def answered(self) -> None:
        """The endpoint has said something with a meaning."""
        for endpoint in (self._bucket.giver, self._bucket.store):
            endpoint.answered(self._waits.clock())

    async def _turn(self) -> float | None:
        """
        Wait until the call may try.

        Returns:
            How many seconds a probe may be without a byte. None: it is no probe, for the endpoint is well.

        Raises:
            SourceUnavailable: the load's time is up, or the probe that it waited for has failed and it gets no other.
        """
        endpoint = self._endpoint = self._bucket.giver if self._bucket.giver.is_in_trouble else self._bucket.store
        seen, tries = endpoint.probes, self._tries
        while endpoint.is_in_trouble:
            now, left, is_last = self._waits.clock(), self._waits.left_seconds(), endpoint.is_away_for(self._waits.began)
            if left <= 0 or (is_last and self._tries > tries):
                raise self._ended(self._wait.trouble or f"{self._words()} is away: {endpoint.cause}")
            pause = max(endpoint.probed_until, -math.inf if is_last else endpoint.next_probe) - now
            if pause <= 0:
                endpoint.probed_until = now + TRY_SECONDS
                return min(left, PROBE_SECONDS) if is_last else left
            await set_within(endpoint.changed, max(min(pause, left), 0.001))  # no less than a clock can tell
            self._tries = tries + endpoint.probes - seen
        return None

    def _failed(self, error: SourceUnavailable | TimeoutError, began: float, seconds: float | None) -> float:
        """Seconds until the next try. Raises the failure when it cannot pass, or no other try fits."""
        if isinstance(error, TimeoutError):
            cause = f"no answer within {seconds:.3g} s"
            error = SourceUnavailable(self._wait.trouble or f"{self._words()} cannot be reached: {cause}", cause=cause)
        if not error.can_pass:
            raise error
        endpoint = self._endpoint = self._bucket.giver if error.is_of_giver else self._endpoint
        now, left, asked = self._waits.clock(), self._waits.left_seconds(), error.retry_after_seconds or 0
        self._tries += 1
        self._wait.trouble = error.text
        if not endpoint.is_in_trouble and endpoint.answered_at <= began:  # else it answers others, and what was asked for is in trouble
            endpoint.trouble_since, endpoint.next_probe = began, now
        endpoint.cause = error.cause
        grown = min(FIRST_PAUSE_SECONDS * 2.0 ** min(self._tries - 1, 10), LONGEST_PAUSE_SECONDS)
        pause = max(grown * (1 - self._bucket.jitter() / 2), asked)
        if seconds is not None:  # calls that have not failed go first
            endpoint.probes, endpoint.next_probe = endpoint.probes + 1, now + 0.9 * min(pause, LONGEST_PAUSE_SECONDS)
        as_long = min(now - max(began, self._wait.since), CONNECT_SECONDS)
        if (is_last := endpoint.is_away_for(self._waits.began)) or max(asked, LEAST_PAUSE_SECONDS) + as_long > left:
            asks = f"; it asks for a pause of {asked:.0f} s, and {left:.1f} s are left"
            raise self._ended(error.text + asks if asked == pause and not is_last else error.text) from error
        SOURCE_RETRIES.labels(self._bucket.kind).inc()
        _log.info("source.retried", place=self._bucket.place, failed=self._tries, error=error.text)
        return min(pause, left - as_long)

    def _ended(self, text: str) -> SourceUnavailable:
        """
        The failure, with what was tried. The endpoint is away if no call has got anything since this one waits.

        What was silent for less than a probe may take, and for less than a quarter of the load's time, is not away.
        """
        endpoint, waits, now = self._endpoint, self._waits, self._waits.clock()
        since = max(self._wait.since, endpoint.answered_at)
        if now - since >= min(PROBE_SECONDS, (waits.until - waits.began) / 4) and not endpoint.is_away_for(now):
            endpoint.trouble_since, endpoint.away_from = min(since, endpoint.trouble_since), now
            _log.warning("source.away", endpoint=endpoint.name, away_seconds=round(now - endpoint.trouble_since, 1), cause=endpoint.cause)
        if self._tries:
            times = "once" if self._tries == 1 else f"{self._tries} times"
            text += f"; tried {times} in {now - self._wait.since:.1f} s"
        if endpoint.is_away_for(waits.began):
            text += f"; {endpoint.name} has been away for {now - endpoint.trouble_since:.0f} s"
        return SourceUnavailable(text)

    def _words(self) -> str:
        return self._bucket.words if self._endpoint is self._bucket.store else self._endpoint.name
