"""Unloads: delayed, repeated, and in the end given up together with their space."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from tests.mesh.ground import Copy, Ground
from tests.mesh.runtime import CallError

MOST_TRIES = 90
BUSY_LOOKS = 8


@dataclass(eq=False)
class Unload:
    """One unload under way, its repetitions included."""

    model_id: str
    weight: int
    ended: asyncio.Future[bool]
    """Whether the space is free again."""
    tries: int = 0


class Unloads:
    """All unloads of one process."""

    def __init__(self, ground: Ground, bound_seconds: float) -> None:
        """`bound_seconds`: each call must be answered by then."""
        self._ground = ground
        self._bound = bound_seconds
        self._queue: deque[Unload] = deque()
        """Failed ones, for their next repetition."""
        self.pending: dict[str, Unload] = {}
        """By model; a failure for good stays here."""

    def begin(self, copy: Copy, weight: int, delay: float, *, waits_for_requests: bool = False) -> None:
        """Its weight is among what leaves already."""
        if copy.model_id in self.pending:  # its load still waited for that unload: nothing was sent
            self._ground.on_evicted(self._ground.accounts.end_unload(weight, is_free=True))
            self._ground.spawn(self._ground.ring())
            return
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.pending[copy.model_id] = unload = Unload(copy.model_id, weight, future)
        self._ground.spawn(self._run(copy, unload, delay, waits_for_requests))

    async def end_of(self, model_id: str) -> None:
        """
        Wait for an unload of this model; none is fine.

        Raises:
            CallError: FAILED_PRECONDITION, as ModelMesh says it: the unload has failed for good.
        """
        unload = self.pending.get(model_id)
        if unload and not await asyncio.shield(unload.ended):
            raise CallError("FAILED_PRECONDITION", "an earlier unload of this model has failed for good")

    async def tick(self) -> None:
        """One queued unload each time, as long as the process lives."""
        while True:
            await asyncio.sleep(self._ground.times.next_retry)
            self.nudge()

    def nudge(self) -> None:
        """Repeat one queued unload now: before each load, after each unload that succeeded, and with each tick."""
        if self._queue:
            self._ground.spawn(self._try(self._queue.popleft()))

    async def _run(self, copy: Copy, unload: Unload, delay: float, waits_for_requests: bool) -> None:
        await asyncio.sleep(delay)
        if waits_for_requests:
            for look in range(1, BUSY_LOOKS):
                if not copy.in_flight:
                    break
                await asyncio.sleep(self._ground.times.busy * 2**look)
        await self._try(unload)

    async def _try(self, unload: Unload) -> None:
        """One call."""
        ground = self._ground
        unload.tries += 1
        began = ground.now()
        ground.watch.note(unload.model_id, f"unloadModel, call {unload.tries}")
        try:
            await self._call(unload.model_id)
        except CallError as error:
            ground.watch.figures.failed("unload", str(error))
            ground.watch.note(unload.model_id, f"unloadModel failed: {error}")
            self._judge(unload, began)
            await self._again(unload)
            return
        ground.watch.figures.took("unload", ground.now() - began)
        self._judge(unload, began)
        ground.watch.note(unload.model_id, "unloadModel answered")
        await self._end(unload, is_free=True)
        ground.watch.answered.set()
        self.nudge()

    async def _call(self, model_id: str) -> None:
        try:
            await self._ground.runtime.unload(model_id)
        except CallError as error:
            if error.code != "NOT_FOUND":
                raise

    def _judge(self, unload: Unload, began: float) -> None:
        seconds = self._ground.now() - began
        if seconds > self._bound:
            words = f"unloadModel of {unload.model_id} took {seconds:.1f} s; the bound is {self._bound:g} s"
            self._ground.watch.tell("each call is answered within its bound", words, unload.model_id)

    async def _again(self, unload: Unload) -> None:
        if unload.tries > MOST_TRIES:
            self._ground.watch.figures.count("unloads given up, with their space")
            await self._end(unload, is_free=False)
        elif unload.tries == 1:
            await asyncio.sleep(self._ground.times.first_retry)
            await self._try(unload)
        else:
            self._queue.append(unload)

    async def _end(self, unload: Unload, *, is_free: bool) -> None:
        evicted = self._ground.accounts.end_unload(unload.weight, is_free=is_free)
        if is_free:
            del self.pending[unload.model_id]
            self._ground.unaccounted_at[unload.model_id] = self._ground.now()
        self._ground.on_evicted(evicted)
        unload.ended.set_result(is_free)
        await self._ground.ring()
