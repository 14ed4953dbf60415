"""
Whether Triton answers, and waiting until it does.

Owns the one view of Triton's presence: its change is logged once and counted in a metric. A Triton
that is stopped, starting, exiting or hung (it accepts connections and never answers) is *away*.
Knows nothing of models.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from adapter.backoff import doubling
from adapter.errors import WrongServer
from adapter.telemetry.metrics import TRITON_UP
from adapter.triton.client import CallError, TritonAway

ASK_SECONDS = 1.0
"""Deadline of one question: a Triton that needs longer for ServerLive (0.15 ms) hangs."""
FRESH_SECONDS = 0.25
"""So long an answer counts without asking again: a load asks no more than once."""
FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 1.0
WATCH_SECONDS = 2.0

T = TypeVar("T")
log = structlog.stdlib.get_logger(__name__)


class Presence:
    """Asks Triton whether it is live, and remembers the answer."""

    def __init__(self, *, ask: Callable[[float], Awaitable[None]], target: str) -> None:
        self._ask = ask
        self._target = target
        self._answered_at: float | None = None
        self._is_told = False
        """Whether the log has that Triton is away."""
        self.problem: str | None = f"Triton at {target} was not asked yet"

    async def wait(self) -> None:
        """Return as soon as Triton answers; at once if it just did."""
        if self._is_fresh():
            return
        for pause in doubling(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS):
            if await self.look():
                return
            await asyncio.sleep(pause)

    async def until_taken(self, call: Callable[[], Awaitable[T]]) -> T:
        """Wait for Triton, call, and begin again when it was away after all. Raises everything but TritonAway."""
        pauses = doubling(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        while True:
            await self.wait()
            try:
                return await call()
            except TritonAway as away:
                self.lost(away)
            await asyncio.sleep(next(pauses))

    async def look(self) -> bool:
        """Ask once. Never raises."""
        try:
            await self._ask(ASK_SECONDS)
        except (CallError, WrongServer) as failure:
            self.lost(failure)
            return False
        self._answered_at = asyncio.get_running_loop().time()
        if self.problem is not None:
            log.info("triton.answered", target=self._target)
        self._is_told = False
        self.problem = None
        TRITON_UP.set(1)
        return True

    async def watch(self) -> None:
        """Ask for ever, so that a Triton that goes is noticed without a call from ModelMesh."""
        while True:
            await self.look()
            await asyncio.sleep(WATCH_SECONDS)

    def lost(self, failure: Exception) -> None:
        """A call found Triton away, or something else in its place."""
        if not self._is_told:
            log.warning("triton.away", target=self._target, cause=str(failure))
        self._is_told = True
        self.problem = f"Triton does not answer at {self._target}: {failure}"
        self._answered_at = None
        TRITON_UP.set(0)

    def _is_fresh(self) -> bool:
        now = asyncio.get_running_loop().time()
        return self._answered_at is not None and now - self._answered_at < FRESH_SECONDS
