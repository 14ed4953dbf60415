"""
What Triton has lost: whenever Triton has returned, its index is asked, and what should be LOADED and was never asked of this
Triton is lost.

Finds, and hands over; what becomes of the models is decided elsewhere (`restoring`). However often Triton comes and goes, one
look at all is under way, and another one follows. What an operation holds is looked at once more when that has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any

import structlog

from adapter.backoff import doubling
from adapter.errors import AdapterError
from adapter.inventory import by_owner, is_untouched
from adapter.lifecycle.operation import Model, Operation
from adapter.lifecycle.registry import Registry
from adapter.lifecycle.states import State
from adapter.model import ServerModel
from adapter.ports import Neighbours

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 10.0
"""Between questions that fail, for the index or the folder."""
LOST_AT_ONCE = 100
"""After so many models that were found lost, others have their turn on the loop."""

WATCH = "watch for returns of Triton"
"""Name of the task that runs as long as the adapter does."""

log = structlog.stdlib.get_logger(__name__)


class Losses:
    """Watches for returns of Triton, and finds lost models."""

    def __init__(
        self,
        *,
        registry: Registry,
        neighbours: Neighbours,
        is_wanted: Callable[[], bool],
        lose: Callable[[Sequence[Model], Mapping[str, str]], None],
        on_looked: Callable[[], None],
    ) -> None:
        """
        Args:
            registry: of all models.
            neighbours: of which Triton and its folder are asked.
            is_wanted: whether lost models may be handed over now; else they are looked for again at `resume`.
            lose: takes models that Triton has lost, and the identities of the directories that are there, by model id.
            on_looked: called after each look.
        """
        self._registry = registry
        self._repository = neighbours.repository
        self._server = neighbours.server
        self._is_wanted = is_wanted
        self._lose = lose
        self._on_looked = on_looked
        self.is_over = False
        """No look begins any more."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._watch: asyncio.Task[None] | None = None
        self._looking = 0
        self._look_for_all: asyncio.Task[None] | None = None
        self._is_to_look = self._is_another = False
        """Whether Triton has returned since that look began, and was certainly another process in one of these returns."""
        self._has_returned = asyncio.Event()
        """For a look that pauses."""
        self._looked_after: dict[Operation, tuple[bool, float]] = {}
        """Operations whose models are looked at when they have ended; likewise, and when the last look began that met them."""
        self._has_missed = False
        """Triton has returned while nothing could be handed over."""

    @property
    def is_looking(self) -> bool:
        """Whether more may be found."""
        return self._looking > 0

    def resume(self) -> None:
        """Begin to watch, and look at what was missed."""
        if self._watch is None:
            self._watch = self._spawn(self._until_cancelled(), WATCH)
        if self._has_missed:
            self._has_missed = False
            self.look_at_all()

    def look_at_all(self, *, is_another: bool = False) -> None:
        """Look now, or once more when the look has ended that is under way. `is_another`: it is certainly another process."""
        self._is_another |= is_another
        self._has_returned.set()
        self._is_to_look = self._look_for_all is not None
        if not self._is_to_look:
            is_another, self._is_another = self._is_another, False
            self._look_for_all = self._begin_look(list(self._registry), is_another=is_another)

    def end(self) -> None:
        """Begin no look any more."""
        self.is_over = True

    async def close(self) -> None:
        """End what runs in the background."""
        self.end()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _until_cancelled(self) -> None:
        while True:
            is_another = await self._server.returned()
            log.info("triton.returned", is_another_process=is_another)
            self.look_at_all(is_another=is_another)

    def _begin_look(self, models: Sequence[Model], *, is_another: bool = False) -> asyncio.Task[None] | None:
        if self.is_over:
            return None
        self._looking += 1
        task = self._spawn(self._look(models, is_another=is_another))
        task.add_done_callback(self._looked)
        return task

    def _looked(self, task: asyncio.Task[None]) -> None:
        self._looking -= 1
        if task is self._look_for_all:
            self._look_for_all = None
            if self._is_to_look:
                self.look_at_all()
        self._on_looked()

    async def _look(self, models: Sequence[Model], *, is_another: bool) -> None:
        """
        Find what Triton has lost. Certain is a model that was LOADED, and nothing else, from before the question on, and of which
        this Triton has only the directory. One that an operation holds is looked at once more when that has ended.
        """
        began = _now()
        held = {model.operation for model in models if model.operation is not None}
        asked = {model.model_id: (model, model.changes) for model in models if model.state is State.LOADED and model.operation is None}
        if asked:
            rows, placed = await self._seen(asked, is_another)
            held |= {model.operation for model, _ in asked.values() if model.operation is not None}
            lost = [model for model, _ in asked.values() if _is_lost(rows.get(model.model_id, []), is_another)]
            lost = [model for model in lost if model.operation is None and model.changes == asked[model.model_id][1]]
            if lost and not is_another:
                self._server.confirm_restart()
            lost.sort(key=lambda model: -model.confirmed)
            for start in range(0, len(lost), LOST_AT_ONCE):
                if start:
                    await asyncio.sleep(0)
                some = lost[start : start + LOST_AT_ONCE]
                held |= {model.operation for model in some if model.operation is not None}
                if self._is_wanted():
                    still = [model for model in some if model.operation is None and model.changes == asked[model.model_id][1]]
                    self._lose(still, placed)
            self._has_missed |= not self._is_wanted()
            if lost and self._is_wanted():
                log.warning("restore.begun", models=len(lost))
        for operation in held:
            self._look_after(operation, began, is_another=is_another)

    def _look_after(self, operation: Operation, began: float, *, is_another: bool) -> None:
        """One look for all looks that have met the operation."""
        if operation not in self._looked_after:
            self._spawn(self._look_at_its_end(operation))
        was_another, latest = self._looked_after.get(operation, (False, began))
        self._looked_after[operation] = (was_another or is_another, max(latest, began))

    async def _look_at_its_end(self, operation: Operation) -> None:
        """What was sent to Triton since the last look began cannot have been lost before it."""
        await operation.ended.wait()
        is_another, began = self._looked_after.pop(operation)
        if operation.model.state is State.LOADED and (operation.sent_at is None or operation.sent_at < began):
            self._begin_look([operation.model], is_another=is_another)

    async def _seen(self, model_ids: Collection[str], is_another: bool) -> tuple[Mapping[str, Sequence[ServerModel]], Mapping[str, str]]:
        """
        What Triton's index holds, and, unless that is all that should be there, which directories the models are.

        Asked until both can be told, and of a Triton that is ours: one with another repository has lost nothing, and can be
        given nothing.
        """
        told = None
        for pause in doubling(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS):
            self._has_returned.clear()
            try:
                rows = by_owner(await self._server.index(model_ids))
                if not is_another and all(any(row.state for row in rows.get(model_id, ())) for model_id in model_ids):
                    return rows, {}
                await self._server.verify()
                return rows, await self._repository.identities(model_ids)
            except Exception as error:
                if str(error) != told:
                    told = str(error)
                    log.warning("restore.blind", cause=told, exc_info=not isinstance(error, AdapterError))
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._has_returned.wait()
        raise AssertionError("the pauses are endless")

    def _spawn(self, work: Coroutine[Any, Any, None], name: str = "look for lost models") -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _is_lost(rows: Sequence[ServerModel], is_another: bool) -> bool:
    """Triton has only the directory; or not even that, and is certainly another process."""
    return is_untouched(rows) or (is_another and not rows)


def _now() -> float:
    return asyncio.get_running_loop().time()
