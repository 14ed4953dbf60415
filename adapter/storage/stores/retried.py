"""
A bucket that repeats what can pass for as long as the load may wait, and tells what it waits for.

Knows nothing of any one store. Pauses end at once when the work is stopped; whether a call may try, or
another one's try is awaited, is decided by `health`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

import structlog

from adapter.backoff import doubling
from adapter.errors import SourceChanged, SourceDenied, SourceNotFound, SourceUnavailable
from adapter.storage.bucket import PAGE_OBJECTS, Bucket, FileSink, Page, Sink, StoredObject
from adapter.storage.checksums import Checksum
from adapter.storage.search import shown
from adapter.storage.stores.alarms import Bound
from adapter.storage.stores.health import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, Endpoint, Health, NoTurnError, Turn
from adapter.storage.wire.calls import telling
from adapter.storage.wire.network import CONNECT_TIMEOUT_SECONDS
from adapter.telemetry.metrics import SOURCE_RETRIES
from adapter.waits import Wait, Waits
from adapter.workers import Stop, Stopped

T = TypeVar("T")

_log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class Patience:
    """With what a load repeats."""

    waits: Waits
    """Of the load: what it waits for is told there, and how long it may wait is asked there."""
    health: Health
    jitter: Callable[[], float]
    """A number from 0 to 1 for each pause; a pause is shortened by up to half of that."""
    is_survey: bool = False
    """Proves nothing, and is no probe: others do not wait for it."""


@dataclass(frozen=True)
class _Asked:
    """Who is asked, for people and for metrics."""

    kind: str
    place: str
    words: str


def made(make: Callable[[Stop], T], patience: Patience, *, kind: str, label: str, stop: Stop) -> T:
    """
    A client, which is made again when what can pass was in the way: a credential chain may ask the network.

    Who gives out credentials is nobody's endpoint here, so nothing is concluded for other loads.

    Raises:
        whatever `make` raises; SourceUnavailable with what was tried when no other try fits.
    """
    with patience.waits.on(f"a client for {label}") as wait:
        call = _Call(_Asked(kind, label, label), Endpoint(label), replace(patience, is_survey=True), wait, stop)
        return call.repeated(make)


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
        self.is_encrypted = bucket.is_encrypted

    def list_page(self, prefix: str, stop: Stop, *, token: str | None = None, limit: int = PAGE_OBJECTS, by_folder: bool = False) -> Page:
        """One page, asked for again when the store was away."""
        with self._patience.waits.on(f"an answer of {self.words} to a listing") as wait, telling(wait):
            call = self._call(wait, stop)
            page = call.repeated(lambda bound: self._bucket.list_page(prefix, bound, token=token, limit=limit, by_folder=by_folder))
            if page.is_answer:
                call.answered()
            return page

    def read(self, wanted: StoredObject, start: int, length: int, sink: Sink, stop: Stop) -> None:
        """The range, resumed as long as there is progress."""
        if not length:
            return
        taken = 0

        def took(count: int) -> None:
            nonlocal taken
            taken += count
            call.progressed()

        counted = _counted(sink, took)

        def rest(bound: Stop) -> None:
            try:
                self._bucket.read(wanted, start + taken, length - taken, counted, bound)
            except SourceUnavailable as error:
                if taken and taken < length and not wanted.is_versioned:  # the rest might be of another version
                    raise _BrokenOffError from error
                if taken < length:
                    raise

        what = f"bytes {start}-{start + length - 1} of {shown(wanted.key)}"
        with self._patience.waits.on(what) as wait, telling(wait):
            call = self._call(wait, stop)
            try:
                call.repeated(rest)
            except _BrokenOffError as broken:
                text = f"the body of {shown(wanted.key)} broke off, and {self.words} names no version to go on with"
                raise SourceChanged(text) from broken.__cause__

    def _call(self, wait: Wait, stop: Stop) -> _Call:
        asked = _Asked(self.kind, self.place, self.words)
        return _Call(asked, self._patience.health.of(self._bucket), self._patience, wait, stop)


class _CountedFile(FileSink):
    """A file that tells how many bytes it has taken."""

    def __init__(self, file: FileSink, took: Callable[[int], None]) -> None:
        self._file = file
        self._took = took

    @property
    def sees_bytes(self) -> bool:
        return self._file.sees_bytes

    @property
    def is_asking(self) -> bool:
        return self._file.is_asking

    def expect(self, told: Sequence[Checksum]) -> None:
        self._file.expect(told)

    def __call__(self, chunk: bytes | memoryview) -> None:
        self._file(chunk)
        self._took(len(chunk))

    def take(self, pipe: int, most_bytes: int) -> int:
        count = self._file.take(pipe, most_bytes)
        self._took(count)
        return count


def _counted(sink: Sink, took: Callable[[int], None]) -> Sink:
    if isinstance(sink, FileSink):
        return _CountedFile(sink, took)

    def counted(chunk: bytes) -> None:
        sink(chunk)
        took(len(chunk))

    return counted


class _BrokenOffError(Exception):
    """What came last is no answer, and is not repeated."""


class _Call:
    """One call of a load, and its tries."""

    def __init__(self, asked: _Asked, endpoint: Endpoint, patience: Patience, wait: Wait, stop: Stop) -> None:
        self._asked = asked
        self._patience = patience
        self._waits = patience.waits
        self._endpoint = endpoint
        self._wait = wait
        self._stop = stop
        self._bound: Bound | None = None
        self._cause = "no answer"
        self._begin()

    def repeated(self, work: Callable[[Stop], T]) -> T:
        """What the work gives. Raises as the work; SourceUnavailable when it cannot pass, or no other try fits."""
        while True:
            turn = self._turn()
            try:
                with self._bounded(turn) as stop:
                    result = work(stop)
            except SourceUnavailable as error:
                self._failed(turn, error)
            except (SourceNotFound, SourceDenied, SourceChanged):
                self.answered()
                raise
            except Stopped:
                self._check_stop()
                cause = f"no answer within {turn.probe_seconds:.3g} s"
                self._failed(turn, SourceUnavailable(f"{self._asked.words} cannot be reached: {cause}", cause=cause))
            else:
                return result
            finally:
                self._endpoint.left(turn)

    def answered(self) -> None:
        """The endpoint has said something with a meaning."""
        self._endpoint.answered(self._waits.clock())

    def progressed(self) -> None:
        """Bytes have come."""
        self.answered()
        self._wait.progressed()
        if self._bound is not None:
            self._bound.lift()
            self._bound = None
        if self._tries:
            self._begin()

    def _begin(self) -> None:
        self._tries = 0
        self._pauses: Iterator[float] = doubling(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)

    def _turn(self) -> Turn:
        try:
            turn = self._endpoint.look(self._waits) if self._patience.is_survey else self._endpoint.turn(self._waits, self._stop)
        except NoTurnError as none:
            self._tries += none.others
            self._cause = none.cause
            raise self._ended(self._wait.trouble or f"{self._asked.words} is away: {none.cause}", none.away_seconds) from None
        self._tries += turn.others
        return turn

    @contextmanager
    def _bounded(self, turn: Turn) -> Iterator[Stop]:
        if turn.probe_seconds is None:
            yield self._stop
            return
        with self._patience.health.alarms.within(self._stop, turn.probe_seconds) as self._bound:
            yield self._bound
        self._bound = None

    def _failed(self, turn: Turn, error: SourceUnavailable) -> None:
        """Pause before the next try. Raises the failure when it cannot pass, or no other try fits."""
        if not error.can_pass:
            raise error
        now, asked = self._waits.clock(), error.retry_after_seconds
        self._tries += 1
        self._wait.trouble, self._cause = error.text, error.cause
        if not self._patience.is_survey:
            self._endpoint.failed(turn, error.cause, now, asked)
        if turn.is_last:
            raise self._ended(error.text, self._endpoint.away_seconds(now)) from error
        pause = max(next(self._pauses) * (1 - self._patience.jitter() / 2), asked or 0)
        as_long = min(now - max(turn.began, self._wait.since), CONNECT_TIMEOUT_SECONDS)
        left = self._waits.left_seconds()
        if pause + as_long > left:
            too_long = f"; it asks for a pause of {asked:.0f} s, and {left:.1f} s are left" if asked and pause == asked else ""
            raise self._ended(error.text + too_long) from error
        SOURCE_RETRIES.labels(self._asked.kind).inc()
        _log.info("source.retried", place=self._asked.place, failed=self._tries, error=error.text)
        self._stop.pause(pause)

    def _ended(self, text: str, away_seconds: float | None = None) -> SourceUnavailable:
        """The failure with what was tried; the endpoint is told that a load ends because of it."""
        self._told()
        if self._tries:
            times = "once" if self._tries == 1 else f"{self._tries} times"
            text += f"; tried {times} in {self._waits.clock() - self._wait.since:.1f} s"
        if away_seconds is not None:
            text += f"; {self._endpoint.name} has been away for {away_seconds:.0f} s"
        return SourceUnavailable(text, cause=self._cause)

    def _check_stop(self) -> None:
        """Raises Stopped when the work is no longer wanted. By the load's budget, it proves what the silence was; by a user, nothing."""
        try:
            self._stop.check()
        except Stopped:
            if self._waits.left_seconds() <= 0:
                self._told()
            raise

    def _told(self) -> None:
        if not self._patience.is_survey:
            self._endpoint.ended_a_load(self._waits, self._wait.since, self._cause)
