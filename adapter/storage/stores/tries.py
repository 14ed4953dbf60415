"""A bucket that repeats what can pass for as long as the load may wait. Knows nothing of any one store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

import structlog

from adapter.backoff import doubling
from adapter.errors import SourceChanged, SourceDenied, SourceNotFound, SourceUnavailable
from adapter.storage.bucket import PAGE_OBJECTS, Bucket, Page, Read
from adapter.storage.net.failures import CONNECT_SECONDS
from adapter.storage.search import shown
from adapter.storage.stores.health import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, PROBE_SECONDS, Endpoint, Health, NoTurnError, Turn
from adapter.telemetry.metrics import SOURCE_RETRIES
from adapter.waits import Wait, Waits

T = TypeVar("T")
LEAST_PAUSE_SECONDS = 0.1
"""The last pause is cut to fit one more try. Where less than this is left, there is none."""

_log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class Patience:
    """With what a load repeats."""

    waits: Waits
    """Of the load: what it waits for is told there, and how long it may wait is asked there."""
    health: Health
    jitter: Callable[[], float]
    """A number from 0 to 1 for each pause; a pause is shortened by up to half of that."""
    reader: str
    """Who asks: of equal ones the credentials are given out together."""
    is_survey: bool = False
    """Proves nothing, and is no probe: others do not wait for it."""


class RetriedBucket:
    """
    Repeats what can pass. A read goes on after the bytes that already reached the sink, of an object that has a version.

    Only SourceUnavailable is repeated. When no other try fits, it is raised with the last cause, the number of tries and the time.
    """

    def __init__(self, bucket: Bucket, patience: Patience) -> None:
        self._bucket = bucket
        self._patience = patience
        self.kind = bucket.kind
        self.place = bucket.place
        self.words = bucket.words
        self.endpoint = bucket.endpoint

    async def list_page(self, prefix: str, *, token: str | None = None, limit: int = PAGE_OBJECTS, by_folder: bool = False) -> Page:
        """One page, asked for again when the store was away."""
        with self._patience.waits.on(f"an answer of {self.words} to a listing") as wait:
            call = _Call(self._bucket, self._patience, wait)
            page = await call.repeated(lambda: self._bucket.list_page(prefix, token=token, limit=limit, by_folder=by_folder))
            if page.is_answer:
                call.answered()
            return page

    async def read(self, reads: Sequence[Read]) -> None:
        """As the Protocol says, gone on with as long as there is progress."""
        with self._patience.waits.on(_Bytes(reads)) as wait:
            call = _Call(self._bucket, self._patience, wait)
            for read in reads:
                read.moved = call.moved

            async def rest() -> None:
                try:
                    await self._bucket.read(reads)
                except SourceUnavailable as error:
                    broken = next((read for read in reads if read.taken < read.length), None)
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
        return f"bytes {read.start}-{read.start + read.length - 1} of {shown(read.wanted.key)}"


class _Call:
    """One call of a load, and its tries."""

    def __init__(self, bucket: Bucket, patience: Patience, wait: Wait) -> None:
        self._bucket = bucket
        self._patience = patience
        self._waits = patience.waits
        self._store = patience.health.of(bucket)
        self._giver = patience.health.of(bucket, patience.reader)
        self._failing = self._store
        """What this try is let through by, and what has failed last: what gives out its credentials comes first."""
        self._wait = wait
        self._loop = asyncio.get_running_loop()
        self._bound: asyncio.Timeout | None = None
        self._has_moved = False
        """In this try."""
        self._cause = "no answer"
        self._begin()

    async def repeated(self, work: Callable[[], Awaitable[T]]) -> T:
        """What the work gives. Raises as the work; SourceUnavailable when it cannot pass, or no other try fits."""
        while True:
            endpoint = self._failing = self._store if self._giver.is_well else self._giver
            turn = await self._turn(endpoint)
            self._has_moved = False
            try:
                async with asyncio.timeout(turn.probe_seconds) as self._bound:
                    return await work()
            except SourceUnavailable as error:
                await self._failed(turn, error)
            except (SourceNotFound, SourceDenied, SourceChanged):
                self.answered()
                raise
            except TimeoutError:
                if turn.probe_seconds is not None and turn.probe_seconds < PROBE_SECONDS and self._wait.trouble:
                    self._tries += 1  # too short to prove a silence: what failed before tells more
                    raise self._ended(self._wait.trouble) from None
                cause = f"no answer within {turn.probe_seconds:.3g} s"
                await self._failed(turn, SourceUnavailable(f"{self._words()} cannot be reached: {cause}", cause=cause))
            except asyncio.CancelledError:
                if self._waits.left_seconds() <= 0:  # by the load's budget: it proves what the silence was
                    self._told()
                raise
            finally:
                self._bound = None
                endpoint.left(turn)

    def answered(self) -> None:
        """The endpoint has said something with a meaning."""
        for endpoint in (self._giver, self._store):
            endpoint.answered(self._waits.clock())

    def moved(self) -> None:
        """Bytes have come. In the engine's thread."""
        self._wait.since = self._waits.clock()
        if not self._has_moved:
            self._has_moved = True
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._progressed)

    def _progressed(self) -> None:
        self.answered()
        self._wait.progressed()
        if self._bound is not None and self._bound.when() is not None:
            with suppress(RuntimeError):  # it has just expired
                self._bound.reschedule(None)
        if self._tries:
            self._begin()

    def _begin(self) -> None:
        self._tries = 0
        self._pauses = doubling(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)

    async def _turn(self, endpoint: Endpoint) -> Turn:
        try:
            turn = endpoint.look(self._waits) if self._patience.is_survey else await endpoint.turn(self._waits)
        except NoTurnError as none:
            self._tries += none.others
            self._cause = none.cause
            raise self._ended(self._wait.trouble or f"{self._words()} is away: {none.cause}", none.away_seconds) from None
        self._tries += turn.others
        return turn

    async def _failed(self, turn: Turn, error: SourceUnavailable) -> None:
        """Pause before the next try. Raises the failure when it cannot pass, or no other try fits."""
        if not error.can_pass:
            raise error
        now, asked = self._waits.clock(), error.retry_after_seconds
        self._tries += 1
        self._wait.trouble, self._cause = error.text, error.cause
        if error.is_of_giver:
            self._failing = self._giver
        if not self._patience.is_survey:
            self._failing.failed(turn, error.cause, now, asked)
        if turn.is_last:
            raise self._ended(error.text, self._failing.away_seconds(now)) from error
        pause = max(next(self._pauses) * (1 - self._patience.jitter() / 2), asked or 0)
        as_long = min(now - max(turn.began, self._wait.since), CONNECT_SECONDS)
        left = self._waits.left_seconds()
        if max(asked or 0, LEAST_PAUSE_SECONDS) + as_long > left:
            too_long = f"; it asks for a pause of {asked:.0f} s, and {left:.1f} s are left" if asked and pause == asked else ""
            raise self._ended(error.text + too_long) from error
        SOURCE_RETRIES.labels(self._bucket.kind).inc()
        _log.info("source.retried", place=self._bucket.place, failed=self._tries, error=error.text)
        await asyncio.sleep(min(pause, left - as_long))

    def _ended(self, text: str, away_seconds: float | None = None) -> SourceUnavailable:
        """The failure with what was tried; the endpoint is told that a load ends because of it."""
        self._told()
        if self._tries:
            times = "once" if self._tries == 1 else f"{self._tries} times"
            text += f"; tried {times} in {self._waits.clock() - self._wait.since:.1f} s"
        if away_seconds is not None:
            text += f"; {self._failing.name} has been away for {away_seconds:.0f} s"
        return SourceUnavailable(text, cause=self._cause)

    def _words(self) -> str:
        return self._bucket.words if self._failing is self._store else self._failing.name

    def _told(self) -> None:
        if not self._patience.is_survey:
            self._failing.ended_a_load(self._waits, self._wait.since, self._cause)
