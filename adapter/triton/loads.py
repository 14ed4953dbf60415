"""
The loads that Triton has, and which one it gets next.

A load has a slot while it has a caller, and a place while Triton has it. Triton cannot cancel a load: when the caller
goes, the load goes on in Triton. It is *left*: it gives its slot to the next one, and keeps its place until it ends,
for it may keep one of Triton's load threads. `ended` lets the unload of the same model wait for it. The models of a
bundle are one load, one after the other. First come, first served: the lifecycle begins restores only for slots that no
load with a call needs.

Invariants: a call that Triton has not taken is repeated, in the same slot, for as long as the caller has patience; a
load that Triton died over is not, for the model may be what killed it. A connection that ends is no death yet: a
Triton that lives on has the load, and the index tells how it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

import structlog

from adapter.errors import BudgetExceeded, ModelRefused, ServerDied, some
from adapter.model import INNER, Overrides
from adapter.triton.client import TritonDied
from adapter.triton.connection import Connection
from adapter.triton.index import Index
from adapter.triton.reason import one_line
from adapter.triton.repository import Repository
from adapter.waits import end

NAMED = 16

log = structlog.stdlib.get_logger(__name__)


@dataclass(eq=False)
class _Load:
    """A load with its slot, until Triton has ended it. Times are those of the loop."""

    model_id: str
    since: float
    """When it had its slot, then when Triton was asked for what it loads now."""
    may_go_on: bool = False
    """Triton has been asked, and may be loading still."""
    is_left: bool = False
    work: asyncio.Task[None] = field(init=False)


@dataclass(frozen=True)
class Limits:
    """What Triton can bear."""

    slots: int
    """Most loads with callers at once."""
    places: int
    """Most loads at once, those without callers included: as many as Triton has load threads."""
    load_seconds: float
    """The timeout that is announced to ModelMesh: so long a load with a limit may be in Triton."""
    silent_seconds: float = 60.0
    """So long a Triton that accepts connections may be silent."""


class Loads:
    """Tells Triton to load, a bounded number of models at once."""

    def __init__(self, connection: Connection, index: Index, repository: Repository, limits: Limits) -> None:
        self._connection = connection
        self._index = index
        self._repository = repository
        self._limits = limits
        self._loads: list[_Load] = []
        """Those with a place, the oldest first."""
        self._slots, self._places = asyncio.Semaphore(limits.slots), asyncio.Semaphore(limits.places)
        self.answered: set[str] = set()
        """
        Model ids of which no load is in Triton; none of others' models.

        The last one was ours, it has its answer, and nothing else was asked of Triton since.
        """

    async def load(
        self, model_id: str, on_sent: Callable[[], Awaitable[None]], *, has_limit: bool = False, overrides: Overrides | None = None
    ) -> None:
        """
        Wait for an earlier load of the model, for a slot, and for Triton; then send the load and wait for its end.

        Of a bundle, the inner models that Triton does not load with the top model come first.

        Raises:
            BudgetExceeded: it has a limit, and has been in Triton for too long; Triton goes on with it.
            ModelRefused, ServerDied, WrongServer
        """
        patience = self._limits.load_seconds if has_limit else None
        await self.ended(model_id)  # without a slot: it holds up no other
        async with self._slots:
            await self._places.acquire()
            load = _Load(model_id, _now())
            load.work = asyncio.create_task(self._work(load, on_sent, overrides), name=f"load of {model_id}")
            load.work.add_done_callback(lambda task: self._end(load, None if task.cancelled() else task.exception()))
            self._loads.append(load)
            try:
                while not (await asyncio.wait({load.work}, timeout=patience))[0]:
                    # a load that waits for another one of its bundle, or for a Triton that is away, costs no patience
                    is_late = load.may_go_on and _now() - load.since > self._limits.load_seconds / 2
                    if is_late and self._connection.problem is None:
                        raise BudgetExceeded(f"Triton has not loaded the model within {patience:g} s")
                load.work.result()
            finally:
                load.is_left = load.may_go_on
                if not load.is_left:
                    load.work.cancel()

    async def ended(self, model_id: str) -> None:
        """Wait until no load of this model, or of its bundle, is in Triton."""
        while works := [load.work for load in self._loads if load.model_id == model_id]:
            await asyncio.wait(works)

    def sent_at(self) -> dict[str, float]:
        """Of the loads that Triton has, by model id: when they were sent, by the clock of the loop. From any thread."""
        return {load.model_id: load.since for load in self._loads.copy() if load.may_go_on}

    def queue(self) -> str | None:
        """Which models hold the slots, or the places, and since when; None when the next one has its turn."""
        if not self._slots.locked() and not self._places.locked():
            return None
        left, held = [load for load in self._loads if load.is_left], [load for load in self._loads if not load.is_left]
        words = [f"{_named(left)} still in Triton, though no call waits for the end any more"] if left else []
        words += [f"{_named(held)} under way"] if held else []
        full = f"Triton has no free load thread (TRITON_LOAD_THREADS is {self._limits.places})"
        return f"{'; '.join(words)}: {'there is no free loading slot' if len(held) >= self._limits.slots else full}"

    async def close(self) -> None:
        """Give up on what is left; Triton goes on with it."""
        await end(*(load.work for load in self._loads))

    # ---- one load

    def _end(self, load: _Load, cause: BaseException | None) -> None:
        """The next one that waits may have its place."""
        if load.is_left:
            seconds = round(_now() - load.since, 1)
            log.info("load.ended_unwanted", model_id=load.model_id, seconds=seconds, cause=cause and str(cause))
        self._loads.remove(load)
        self._places.release()

    async def _work(self, load: _Load, on_sent: Callable[[], Awaitable[None]], overrides: Overrides | None) -> None:
        """Load the parts of a bundle, then the model. Of a load that is left, what Triton has then is the last one."""
        model_id = load.model_id
        await self._connection.wait()
        self.answered.discard(model_id)
        await on_sent()
        try:
            for name in (*self._repository.loaded_first(model_id), model_id):
                await self._connection.retry_while_away(partial(self._call, load, name, overrides))
        except ModelRefused as refused:
            self._mark_answered(model_id)
            inside = f"{_shown_inner(name)}: {refused.text}" if name != model_id else await self._reason_inside(model_id)
            raise ModelRefused(inside or refused.text) from refused
        self._mark_answered(model_id)

    def _mark_answered(self, model_id: str) -> None:
        if not self._repository.is_of_others(model_id):  # they may have any number of names, and need no unload
            self.answered.add(model_id)

    async def _call(self, load: _Load, name: str, overrides: Overrides | None) -> None:
        if load.is_left:
            return
        load.since, load.may_go_on, began_at = _now(), True, self._connection.began_at
        try:
            await self._connection.client.load(name, overrides)
        except TritonDied as died:
            self._connection.lost(died)
            log.info("load.followed", model_id=name, cause=str(died))
            await self._follow(name, began_at, str(died))
        finally:
            load.may_go_on = False

    async def _follow(self, name: str, began_at: float, cause: str) -> None:
        """
        Return when the load of the name has ended well, as the index tells.

        Args:
            name: of the model, or of an inner model of its bundle.
            began_at: of the Triton that was asked.
            cause: why there is no answer.

        Raises:
            ServerDied: the Triton that had the load is gone.
            WrongServer: Triton restricts the index.
            ModelRefused: it has failed.
        """
        since = _now()
        while self._connection.began_at == began_at:
            if (rows := await self._index.rows(name)) is not None:
                states = {row.state for row in rows if row.state}
                if not states:
                    break
                if "LOADING" not in states:
                    if "READY" in states:
                        return
                    reasons = dict.fromkeys(one_line(row.reason) for row in rows if row.reason)
                    raise ModelRefused("; ".join(reasons) or one_line(""))
            await self._index.pause(since)
        told = f"Triton died while it was loading the model ({cause})"
        raise ServerDied(f"{told}; the load is not repeated, for the model may be the cause")

    async def _reason_inside(self, model_id: str) -> str | None:
        """Why an inner model could not be loaded: of the top model Triton then says only that it depends on it."""
        inner_names = self._repository.inner_names(model_id)
        for row in await self._index.listing() if inner_names else ():
            if row.name in inner_names and row.reason not in ("", "unloaded") and not row.holds_memory:
                return f"{_shown_inner(row.name)}: {one_line(row.reason)}"
        return None


def _shown_inner(name: str) -> str:
    return f"inner model {name.partition(INNER)[2]}"


def _named(loads: list[_Load]) -> str:
    names = some([f"{load.model_id} ({_now() - load.since:.0f} s)" for load in loads], NAMED)
    return f"the load of model {names} is" if len(loads) == 1 else f"the loads of models {names} are"


def _now() -> float:
    return asyncio.get_running_loop().time()
