"""What every part of one ModelMesh process stands on, and a copy of a model in it."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from tests.mesh.accounts import Accounts, Entry
from tests.mesh.announced import Announced
from tests.mesh.runtime import GrpcRuntime, Model
from tests.mesh.times import Times
from tests.mesh.watch import Watch


class State(enum.IntEnum):
    """Of a copy, in ModelMesh's order."""

    NEW = 0
    QUEUED = 1
    WAITING = 2
    """For space."""
    LOADING = 3
    ACTIVE = 4
    FAILED = 5
    REMOVED = 6


class LoadError(Exception):
    """The model is not here: the load has failed, or was given up. The text is what a user reads."""


REMOVED = "the model was removed while it was being loaded"
"""Why a load fails that ModelMesh itself has ended."""


@dataclass(eq=False)
class Copy:
    """One model in the cache, from the first request until it is removed."""

    model: Model
    ended: asyncio.Future[str | None]
    """Its load: None, or why it has failed."""
    state: State = State.NEW
    in_flight: int = 0
    task: asyncio.Task[None] | None = None
    failed_at: float = 0.0
    loaded_at: float = 0.0
    failing_since: float | None = None
    """Since when inference has failed, though the model is called loaded."""
    is_lost: bool = False
    """The runtime has said that it does not have the model, though it was called loaded."""

    @property
    def model_id(self) -> str:
        """Of its model."""
        return self.model.model_id

    def conclude(self, error: str | None = None) -> None:
        """Those who wait are told; the first word counts."""
        if not self.ended.done():
            self.ended.set_result(error)

    async def arrival(self) -> None:
        """Wait for the end of its load. Raises LoadError; being cancelled here changes nothing for others."""
        if error := await asyncio.shield(self.ended):
            raise LoadError(error)


@dataclass
class Ground:
    """Of one process: gone with it."""

    runtime: GrpcRuntime
    announced: Announced
    times: Times
    watch: Watch
    accounts: Accounts
    on_evicted: Callable[[list[Entry]], None]
    """What left the cache for others."""
    copies: dict[str, Copy] = field(default_factory=dict)
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    """Space may have become free."""
    guessed: set[str] = field(default_factory=set)
    """Models that have the default weight, because nobody knew theirs in time, until they are measured."""
    unaccounted_at: dict[str, float] = field(default_factory=dict)
    """Model → when it was last told to hold nothing."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Until the process ends. An exception is a defect of the simulator, and told."""
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def ring(self) -> None:
        """Wake those who wait for space."""
        async with self.changed:
            self.changed.notify_all()

    def now(self) -> float:
        """Seconds."""
        return self.watch.now()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self.watch.tell("the simulator itself is sound", f"{type(error).__name__}: {error}")
