"""
Waiting until Triton has loaded a model, or has really freed it, with one shared poller of the repository index.

The index is the only witness, and asking it costs all others: it holds the lock that inference
needs. So there is one poller for all waiters, it runs only while somebody waits, begins at once, and
backs off from 5 ms to 100 ms. The rest that each answer is followed by is the index's own (`index`).

A model is settled when the index lists it and no version is loading, gone when no version holds
memory. A row that is missing proves nothing (the index leaves out models whose directory is
missing), and neither does a failed call. Knows no gRPC: `look` asks the index for some names and
returns None when that failed; `restore` makes an empty directory for a name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from dataclasses import dataclass

from adapter.backoff import doubling
from adapter.errors import AdapterError
from adapter.model import ServerModel

FIRST_PAUSE_SECONDS = 0.005
LONGEST_PAUSE_SECONDS = 0.1
ABSENT_POLLS = 3
"""So often a row may be missing before its directory is made again: a listing races with renames."""


@dataclass(eq=False)
class _Waiter:
    name: str
    waits_for: Callable[[ServerModel], bool]
    """Whether a version, as the index shows it, is waited for."""
    done: asyncio.Future[None]
    absent_polls: int = 0


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
        self._waiters: set[_Waiter] = set()
        self._poller: asyncio.Task[None] | None = None
        self._has_fresh_waiter = asyncio.Event()
        self._sights: dict[str, _Sight] = {}

    async def gone(self, name: str) -> None:
        """
        Return when no version of the model holds memory. Call it after Triton has answered the unload.

        Raises:
            whatever `look` or `restore` raise.
        """
        await self._wait(name, lambda version: version.holds_memory)

    async def settled(self, name: str) -> None:
        """Return when no version of the model is loading, whoever loads it. Raises like `gone`."""
        await self._wait(name, lambda version: version.state == "LOADING")

    async def _wait(self, name: str, waits_for: Callable[[ServerModel], bool]) -> None:
        waiter = _Waiter(name, waits_for, asyncio.get_running_loop().create_future())
        self._sights.pop(name, None)
        self._waiters.add(waiter)
        self._has_fresh_waiter.set()
        if self._poller is None:
            self._poller = asyncio.get_running_loop().create_task(self._poll(), name="unload watch")
        try:
            await waiter.done
        finally:
            self._waiters.remove(waiter)
        self._sights.pop(name, None)

    def sight(self, name: str) -> str | None:
        """What the index said last of a model that was waited for in vain: `version 1 has been UNLOADING for 12 s`."""
        sight = self._sights.get(name)
        if sight is None:
            return None
        return f"{sight.states} for {asyncio.get_running_loop().time() - sight.since:.0f} s"

    async def close(self) -> None:
        """Stop polling; whoever still waits is cancelled."""
        if self._poller is not None:
            self._poller.cancel()
            await asyncio.wait({self._poller})
        for waiter in self._waiters:
            waiter.done.cancel()

    async def _poll(self) -> None:
        pauses = doubling(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        try:
            while any(not waiter.done.done() for waiter in self._waiters):
                is_fresh = self._has_fresh_waiter.is_set()
                self._has_fresh_waiter.clear()
                if await self._ask() or is_fresh:
                    pauses = doubling(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
                await self._pause(next(pauses))
        except Exception as failure:  # noqa: BLE001 - whatever it is, the waiters must hear of it instead of waiting on
            for waiter in self._waiters:
                _fail(waiter, failure)
        finally:
            self._poller = None

    async def _ask(self) -> bool:
        """
        One question, judged for those who waited when it was sent: later ones could see an older state.

        Returns:
            Whether some of them have come since this was called.
        """
        asked: list[_Waiter] = []
        is_fresh = False

        def choose() -> frozenset[str]:
            nonlocal is_fresh
            is_fresh = self._has_fresh_waiter.is_set()
            self._has_fresh_waiter.clear()
            asked[:] = [waiter for waiter in self._waiters if not waiter.done.done()]
            return frozenset(waiter.name for waiter in asked)

        rows = await self._look(choose)
        if rows is None:
            return is_fresh
        found: dict[str, list[ServerModel]] = {}
        for row in rows:
            found.setdefault(row.name, []).append(row)
        for waiter in asked:
            await self._judge(waiter, found.get(waiter.name, []))
        return is_fresh

    async def _judge(self, waiter: _Waiter, versions: list[ServerModel]) -> None:
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
        else:
            waiter.done.set_result(None)

    async def _pause(self, seconds: float) -> None:
        if all(waiter.done.done() for waiter in self._waiters):
            return
        try:
            async with asyncio.timeout(seconds):
                await self._has_fresh_waiter.wait()
        except TimeoutError:
            return

    def _note(self, name: str, states: str) -> None:
        sight = self._sights.get(name)
        if sight is None or sight.states != states:
            self._sights[name] = _Sight(states, asyncio.get_running_loop().time())


def _fail(waiter: _Waiter, failure: Exception) -> None:
    if not waiter.done.done():
        waiter.done.set_exception(copy(failure) if isinstance(failure, AdapterError) else failure)
