"""
The load calls that Triton has, and the slots that bound them.

Triton cannot cancel a load. So a call that was sent runs in a task of its own: when its caller is
cancelled it goes on, keeps the slot until it ends, and `ended` lets the unload of the same model
wait for it. Never more than `slots` calls are in Triton, however many callers come and go.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

log = logging.getLogger(__name__)


@dataclass(eq=False)
class _Sent:
    task: asyncio.Task[None]
    sent_at: float
    is_left_behind: bool = False


class SentLoads:
    """Loads by model id, from the moment of sending to Triton's answer."""

    def __init__(self, *, load: Callable[[str], Awaitable[None]], slots: int) -> None:
        self._load = load
        self._slots = asyncio.Semaphore(slots)
        self._owed_slots = 0
        """Slots whose holder left a load behind: the first to end of the two does not give it back, the second does."""
        self._sent: dict[str, _Sent] = {}

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Hold a slot; first come, first served."""
        await self._slots.acquire()
        try:
            yield
        finally:
            self._give_back()

    async def send(self, model_id: str) -> None:
        """Load, after an earlier load of the same model has ended. Raises what the call raises."""
        await self.ended(model_id)
        loop = asyncio.get_running_loop()
        sent = _Sent(loop.create_task(self._run(model_id), name=f"load {model_id}"), loop.time())
        self._sent[model_id] = sent
        sent.task.add_done_callback(lambda _: self._end(model_id, sent))
        try:
            await asyncio.shield(sent.task)
        finally:
            if not sent.task.done():
                sent.is_left_behind = True
                self._owed_slots += 1

    async def ended(self, model_id: str) -> None:
        """Wait until no load of this model is in Triton."""
        while sent := self._sent.get(model_id):
            await asyncio.wait({sent.task})

    def names(self) -> set[str]:
        """Models whose load is in Triton."""
        return set(self._sent)

    def seconds_since_sent(self, model_id: str) -> float | None:
        """Age of the model's load in Triton, or None."""
        sent = self._sent.get(model_id)
        return asyncio.get_running_loop().time() - sent.sent_at if sent else None

    async def close(self) -> None:
        """Give up on what is left; Triton goes on with it."""
        tasks = {sent.task for sent in self._sent.values()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _run(self, model_id: str) -> None:
        await self._load(model_id)

    def _end(self, model_id: str, sent: _Sent) -> None:
        del self._sent[model_id]
        failure = None if sent.task.cancelled() else sent.task.exception()
        if not sent.is_left_behind:
            return
        self._give_back()
        if not sent.task.cancelled():
            outcome = f"failed: {failure}" if failure else "succeeded"
            seconds = asyncio.get_running_loop().time() - sent.sent_at
            log.info("The load of model %s, given up by its caller, %s after %.1f s in Triton", model_id, outcome, seconds)

    def _give_back(self) -> None:
        if self._owed_slots:
            self._owed_slots -= 1
        else:
            self._slots.release()
