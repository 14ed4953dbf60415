"""
Waiting until Triton has loaded a model, or has really freed it, with one shared poller of the repository index.

The index is the only witness, and asking it costs all others: it holds the lock that inference
needs. So there is one poller for all waiters, and it runs only while somebody waits. The first look for a model comes when its
memory is probably free (`expected`); where nothing is known, at once. Further ones follow after pauses that begin at a
twentieth of that time and are doubled, 5 ms at least and 100 ms at most (1 s for one who waits for long). Each look serves all
who wait. The rest that
each answer is followed by is the index's own (`index`).

A model is settled when the index lists it and no version is loading, gone when no version holds
memory. A row that is missing proves nothing (the index leaves out models whose directory is
missing), and neither does a failed call. Knows no gRPC: `look` asks the index for some names and
returns None when that failed; `restore` makes an empty directory for a name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field

from adapter.backoff import doubling
from adapter.errors import AdapterError
from adapter.model import ServerModel
from adapter.triton.expected import Expected

FIRST_PAUSE_SECONDS = 0.005
LONGEST_PAUSE_SECONDS = 0.1
PAUSE_SHARE = 0.05
"""Of the time that was expected: the first pause, after a look that came too early."""
WAITED_SHARE, LONGEST_WAITED_PAUSE_SECONDS = 0.02, 1.0
"""One who has waited for long waits a fiftieth of that longer: for inferences that do not end a second more or less is nothing."""
CLOCK_SECONDS = 1e-6
"""A clock may not tell less."""
LATE = 1.5
"""A look that came so much later than it was due tells nothing about how long the unload took."""
ABSENT_POLLS = 3
"""So often a row may be missing before its directory is made again: a listing races with renames."""


@dataclass(eq=False)
class _Waiter:
    name: str
    waits_for: Callable[[ServerModel], bool]
    """Whether a version, as the index shows it, is waited for."""
    due: float
    """When to look next for this one, by the clock of the loop."""
    pauses: Iterator[float] = field(default_factory=lambda: doubling(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS))
    done: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    absent_polls: int = 0
    pause: float = 0.0
    """After the last look that was due; 0 before the first one."""
    is_early: bool = False
    """Whether a look that was due has found it held."""
    held_at: float = 0.0
    """When the last look was sent that found it held."""
    gone_at: float = 0.0
    """When the look was sent that found it no longer waited for."""

    def __post_init__(self) -> None:
        self.since = asyncio.get_running_loop().time()

    def looked_at(self, now: float) -> None:
        """Choose when to look next. One who looks again and again is served by the looks for others too."""
        if self.due <= now + CLOCK_SECONDS:
            self.pause = next(self.pauses)
        if self.pause:
            self.due = now + max(self.pause, min(WAITED_SHARE * (now - self.since), LONGEST_WAITED_PAUSE_SECONDS))


@dataclass
class _Sight:
    states: str
    since: float


class UnloadWatch:
    """Waits for models to be loaded, or gone from Triton's memory."""

    def __init__(
        self,
        *,
        look: Callable[[Callable[[], frozenset[str]]], Awaitable[Sequence[ServerModel] | None]],
        restore: Callable[[str], Awaitable[None]],
    ) -> None:
        self._look = look
        self._restore = restore
        self._expected = Expected()
        self._time = asyncio.get_running_loop().time
        self._waiters: set[_Waiter] = set()
        self._poller: asyncio.Task[None] | None = None
        self._has_news = asyncio.Event()
        self._sights: dict[str, _Sight] = {}

    async def gone(self, name: str, kind: str | None = "", told_at: float | None = None) -> None:
        """
        Return when no version of the model holds memory. Call it after Triton has answered the unload.

        Args:
            name: of the model.
            kind: models of the same kind (`expected.kind_of`) take about as long; None: it is probably gone, and tells nothing of others.
            told_at: when Triton answered, by the clock of the loop; None: just now.

        Raises:
            whatever `look` or `restore` raise.
        """
        told_at = self._time() if told_at is None else told_at
        expected = 0.0 if kind is None else self._expected.seconds(kind)
        pauses = doubling(min(max(PAUSE_SHARE * expected, FIRST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)
        waiter = _Waiter(name, lambda version: version.holds_memory, told_at + expected, pauses)
        await self._wait(waiter)
        if kind is None:
            return
        if waiter.is_early:
            self._expected.found_held(kind, waiter.held_at - told_at, waiter.gone_at - told_at)
        elif waiter.gone_at < told_at + LATE * expected + FIRST_PAUSE_SECONDS:
            self._expected.found_free(kind)

    async def settled(self, name: str) -> None:
        """Return when no version of the model is loading, whoever loads it. Raises like `gone`."""
        await self._wait(_Waiter(name, lambda version: version.state == "LOADING", self._time()))

    async def unloaded(self, name: str) -> None:
        """Return when no version of the model is being unloaded: it is gone, or serves on. Raises like `gone`."""
        await self._wait(_Waiter(name, lambda version: version.state == "UNLOADING", self._time()))

    async def _wait(self, waiter: _Waiter) -> None:
        self._sights.pop(waiter.name, None)
        self._waiters.add(waiter)
        self._has_news.set()
        if self._poller is None:
            self._poller = asyncio.get_running_loop().create_task(self._poll(), name="unload watch")
        try:
            await waiter.done
        finally:
            self._waiters.remove(waiter)
            self._has_news.set()
        self._sights.pop(waiter.name, None)

    def sight(self, name: str) -> str | None:
        """What the index said last of a model that was waited for in vain: `version 1 has been UNLOADING for 12 s`."""
        sight = self._sights.get(name)
        if sight is None:
            return None
        return f"{sight.states} for {self._time() - sight.since:.0f} s"

    async def close(self) -> None:
        """Stop polling; whoever still waits is cancelled."""
        if self._poller is not None:
            self._poller.cancel()
            await asyncio.wait({self._poller})
        for waiter in self._waiters:
            waiter.done.cancel()

    async def _poll(self) -> None:
        try:
            while waiting := self._waiting():
                self._has_news.clear()
                left = min(waiter.due for waiter in waiting) - self._time()
                if left > CLOCK_SECONDS:
                    await self._pause(left)
                else:
                    await self._ask()
        except Exception as failure:  # noqa: BLE001 - whatever it is, the waiters must hear of it instead of waiting on
            for waiter in self._waiters:
                _fail(waiter, failure)
        finally:
            self._poller = None

    async def _ask(self) -> None:
        """One question, judged for those who waited when it was sent: later ones could see an older state."""
        asked: list[_Waiter] = []
        sent_at = 0.0

        def choose() -> frozenset[str]:
            nonlocal sent_at
            sent_at = self._time()
            asked[:] = self._waiting()
            return frozenset(waiter.name for waiter in asked)

        rows = await self._look(choose)
        found: dict[str, list[ServerModel]] = {}
        for row in rows or ():
            found.setdefault(row.name, []).append(row)
        for waiter in asked or self._waiting():  # none was asked for: nothing was sent
            if asked and rows is not None:
                await self._judge(waiter, found.get(waiter.name, []), sent_at)
            waiter.looked_at(self._time())

    async def _judge(self, waiter: _Waiter, versions: list[ServerModel], sent_at: float) -> None:
        if waiter.done.done():  # given up while the index was asked
            return
        if not versions:
            self._note(waiter.name, "the model has been missing from Triton's index")
            waiter.absent_polls += 1
            if waiter.absent_polls % ABSENT_POLLS == 0:
                try:
                    await self._restore(waiter.name)
                except Exception as failure:  # noqa: BLE001 - this waiter's trouble, not that of all
                    _fail(waiter, failure)
            return
        waiter.absent_polls = 0
        if awaited := [row for row in versions if waiter.waits_for(row)]:
            self._note(waiter.name, " and ".join(f"version {row.version} has been {row.state}" for row in awaited))
            waiter.held_at = sent_at
            waiter.is_early |= waiter.due <= sent_at + CLOCK_SECONDS
        else:
            waiter.gone_at = sent_at
            waiter.done.set_result(None)

    def _waiting(self) -> list[_Waiter]:
        return [waiter for waiter in self._waiters if not waiter.done.done()]

    async def _pause(self, seconds: float) -> None:
        """For so long; who comes meanwhile may be due earlier, and who goes may have been the last."""
        try:
            async with asyncio.timeout(seconds):
                await self._has_news.wait()
        except TimeoutError:
            return

    def _note(self, name: str, states: str) -> None:
        sight = self._sights.get(name)
        if sight is None or sight.states != states:
            self._sights[name] = _Sight(states, self._time())


def _fail(waiter: _Waiter, failure: Exception) -> None:
    if not waiter.done.done():
        waiter.done.set_exception(copy(failure) if isinstance(failure, AdapterError) else failure)
