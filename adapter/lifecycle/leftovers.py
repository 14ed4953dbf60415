"""
Takes down what an earlier process has left half done: a few at a time, until nothing is left.

Nobody asks for these models, so nobody repeats what fails: it is done again here. Calls of ModelMesh go first: a model that
waits for its turn has no operation, so a load or an unload of it begins at once and does the same.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

import structlog

from adapter.backoff import doubling
from adapter.lifecycle.operation import Model, Operation
from adapter.lifecycle.states import State

AT_ONCE = 64
"""Thousands at once would hold up the loop, the folder's threads and Triton's unloads for all others."""
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 10.0, 300.0
"""Before what has failed is tried again."""

log = structlog.stdlib.get_logger(__name__)


class Leftovers:
    """One task in the background, while there are any."""

    def __init__(self, take_down: Callable[[str], Operation]) -> None:
        """`take_down`: begins to take a model down that has no operation."""
        self._take_down = take_down
        self._waiting: deque[Model] = deque()
        self._task: asyncio.Task[None] | None = None

    def begin(self, models: Iterable[Model]) -> None:
        """Take these down, which are FAILED; for once per process."""
        self._waiting.extend(models)
        if self._waiting and self._task is None:
            self._task = asyncio.create_task(self._run(), name="leftovers of an earlier adapter")

    def end(self) -> None:
        """Begin no take-down any more: a purge takes all, or the next process. What is under way goes on."""
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        for pause in doubling(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS):
            models = list(self._waiting)
            await asyncio.gather(*(self._work() for _ in range(AT_ONCE)))
            failed = [model for model in models if model.state is State.FAILED]
            if not failed:
                return
            log.warning("leftovers.left", models=len(failed), again_in_seconds=pause)
            await asyncio.sleep(pause)
            self._waiting.extend(failed)

    async def _work(self) -> None:
        while self._waiting:
            model = self._waiting.popleft()
            if model.state is State.FAILED and model.operation is None:
                await self._take_down(model.model_id).ended.wait()
