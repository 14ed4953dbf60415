"""
The loads that Triton has.

Triton cannot cancel a load. When the caller is cancelled, the load goes on in Triton: it is *left*. A load that is left
keeps its place (`slots`) until it ends, for it may keep one of Triton's load threads, and gives its slot to the next
one. `ended` lets the unload of the same model wait for it. The models of a bundle are one load, one after the other.

Invariants: a call that Triton has not taken is repeated, in the same slot, for as long as the caller
has patience; a load that Triton died over is not, for the model may be what killed it. A connection that
ends is no death yet: a Triton that lives on has the load. A caller's load is then called again, which waits for the
end; a load that is left is looked for in the index until the index no longer shows it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

import structlog

from adapter.errors import BudgetExceeded, ModelRefused, ServerDied
from adapter.model import INNER, Overrides, owner_of
from adapter.triton.client import AnswerLost, TritonClient, TritonDied
from adapter.triton.connection import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, Connection
from adapter.triton.index import Index
from adapter.triton.reason import one_line
from adapter.triton.repository import Repository
from adapter.triton.slots import Slot, Slots
from adapter.waits import doubling

LONGEST_PAUSE_BETWEEN_LOOKS_SECONDS = 5.0
"""For a load without a caller, of which only the index can tell."""

log = structlog.stdlib.get_logger(__name__)


@dataclass(eq=False)
class _Sent:
    """A load with its slot."""

    slot: Slot
    since: float
    name: str = ""
    """What Triton loads now: the model, or an inner model of its bundle."""
    call: asyncio.Task[None] | None = None
    """What Triton works on now, or was asked last."""
    overrides: Overrides | None = None
    restarts: int = 0
    """Of Triton, when it was asked."""
    has_died: bool = False
    """Triton is known to have ended with it."""
    following: asyncio.Task[None] | None = None
    """Waits for the end, when no caller does."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def may_go_on(self) -> bool:
        """Triton has not answered: the call is under way, or its connection has ended."""
        call = self.call
        if call is None or self.has_died:
            return False
        return not call.done() or (not call.cancelled() and isinstance(call.exception(), TritonDied))


class Loads:
    """Tells Triton to load, a bounded number of models at once."""

    def __init__(
        self,
        *,
        client: TritonClient,
        connection: Connection,
        index: Index,
        repository: Repository,
        slots: int,
        places: int,
        patience_seconds: float,
    ) -> None:
        """
        Args:
            client: calls Triton.
            connection: waits for a Triton that is away.
            index: tells what became of a load whose answer was lost.
            repository: knows the bundles.
            slots: most loads with callers at once.
            places: most loads at once, those without callers included.
            patience_seconds: so long a load that yields may be in Triton; callers have a bound of their own.
        """
        self._client = client
        self._connection = connection
        self._index = index
        self._repository = repository
        self._patience_seconds = patience_seconds
        self._places = places
        self._slots = Slots(slots, places)
        self._sent: dict[str, _Sent] = {}
        self._answered: dict[str, bool] = {}
        """Models whose last load was ours, and that Triton was not told to unload since: whether it was refused."""

    async def load(self, model_id: str, on_sent: Callable[[], None], *, yields: bool = False, overrides: Overrides | None = None) -> None:
        """
        Wait for an earlier load of the model, for a slot, and for Triton; then send the load and wait for its end.

        Of a bundle, the inner models that Triton does not load with the top model come first. One that yields also lets
        everybody else have the slots that are free while Triton is away.

        Raises:
            BudgetExceeded: it yields, and has been in Triton for too long; Triton goes on with it.
            ModelRefused, ServerDied, WrongServer
        """
        if yields:
            await self._connection.wait()
        slot = await self._slot(model_id, yields=yields)
        sent = self._sent[model_id] = _Sent(slot, _now(), overrides=overrides)
        self.forget(model_id)
        try:
            on_sent()
            await self._load(model_id, sent, self._patience_seconds if yields else None)
        finally:
            if sent.may_go_on:
                self._slots.leave(slot)
                sent.following = asyncio.create_task(self._follow(model_id, sent, sent.call), name=f"end of the load of {model_id}")
            else:
                self._end(model_id, sent)

    def found(self, names: Iterable[str]) -> None:
        """
        Triton has loads of these names that another client has sent, such as an earlier adapter: they are as if left.

        No more are followed than there are places: further ones wait in Triton.
        """
        for name in names:
            model_id = owner_of(name)
            if model_id not in self._sent and len(self._sent) < self._places:
                sent = self._sent[model_id] = _Sent(self._slots.occupy(model_id), _now(), name, restarts=self._connection.restarts)
                self.forget(model_id)
                sent.following = asyncio.create_task(self._follow(model_id, sent, None), name=f"end of the load of {model_id}")

    async def ended(self, model_id: str) -> None:
        """Wait until no load of this model, or of its bundle, is in Triton."""
        while sent := self._sent.get(model_id):
            await sent.ended.wait()

    def is_answered(self, model_id: str) -> bool:
        """Whether the last load of the model was ours and Triton has answered it: then no load of the model is in Triton."""
        return model_id in self._answered

    def is_refused(self, model_id: str) -> bool:
        """Whether Triton has answered that load by a refusal: then it holds nothing of the model, or soon nothing more."""
        return self._answered.get(model_id, False)

    def forget(self, model_id: str) -> None:
        """Triton is asked for something new: an answer that came earlier proves nothing any more."""
        self._answered.pop(model_id, None)

    def names(self) -> set[str]:
        """Models whose load is in Triton."""
        return set(self._sent)

    def sent_at(self) -> dict[str, float]:
        """Of the loads that Triton has, by model id: when they were sent, by the clock of the loop. From any thread."""
        return {model_id: sent.since for model_id, sent in self._sent.copy().items()}

    def seconds_since_sent(self, model_id: str) -> float | None:
        """Age of the model's load in Triton, or None."""
        sent = self._sent.get(model_id)
        return None if sent is None else _now() - sent.since

    def queue(self) -> str | None:
        """Which models hold the places for loads, and since when; None when the next one has its turn."""
        return self._slots.queue()

    async def close(self) -> None:
        """Give up on what is left; Triton goes on with it."""
        sent = list(self._sent.values())
        tasks = {task for each in sent for task in (each.following, each.call) if task is not None}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _slot(self, model_id: str, *, yields: bool) -> Slot:
        """For a model that Triton has no load of, and when Triton is there. What waits for an earlier load has no slot."""
        while True:
            await self.ended(model_id)
            slot = await self._slots.take(model_id, yields=yields)
            try:
                await self._connection.wait()
            except BaseException:
                self._slots.give_back(slot)
                raise
            if model_id not in self._sent:
                return slot
            self._slots.give_back(slot)

    async def _load(self, model_id: str, sent: _Sent, patience_seconds: float | None) -> None:
        for name in self._repository.loaded_first(model_id):
            try:
                await self._connection.retry_while_away(partial(self._call, name, sent, patience_seconds))
            except ModelRefused as refused:
                raise ModelRefused(f"{_shown_inner(name)}: {refused.text}") from refused
        try:
            await self._connection.retry_while_away(partial(self._call, model_id, sent, patience_seconds))
        except ModelRefused as refused:
            raise ModelRefused(await self._reason_inside(model_id) or refused.text) from refused

    async def _call(self, name: str, sent: _Sent, patience_seconds: float | None) -> None:
        sent.name = name
        while True:
            sent.restarts = self._connection.restarts
            sent.call = asyncio.create_task(self._client.load(name, sent.overrides), name=f"load {name}")
            try:
                return await self._answer(sent.call, patience_seconds)
            except TritonDied as died:
                self._connection.lost(died)
                sent.has_died = await self._has_died(sent)
                if sent.has_died:
                    raise ServerDied(
                        f"Triton died while it was loading the model ({died}); the load is not repeated, for the model may be the cause"
                    ) from died
                log.info("load.followed", model_id=name, cause=str(died))
            except AnswerLost as lost:
                raise ModelRefused(await self._index.reason(name)) from lost

    async def _answer(self, call: asyncio.Task[None], patience_seconds: float | None) -> None:
        """Of the call, which a cancel leaves as it is. Silence of a Triton that is away costs no patience."""
        while patience_seconds is not None:
            done, _ = await asyncio.wait({call}, timeout=patience_seconds)
            if done:
                break
            if self._connection.is_live:
                raise BudgetExceeded(f"Triton has not loaded the model within {patience_seconds:g} s")
        await asyncio.shield(call)

    async def _follow(self, model_id: str, sent: _Sent, call: asyncio.Task[None] | None) -> None:
        """Wait for the end of a load without a caller, whatever happens to its connection; None: another client has sent it."""
        cause: BaseException | None = None
        try:
            if call is not None:
                await asyncio.wait({call})
                cause = None if call.cancelled() else call.exception()
            if isinstance(cause, TritonDied):
                self._connection.lost(cause)
            if call is None or isinstance(cause, TritonDied):
                await self._gone(sent)
        finally:
            self._end(model_id, sent)
        log.info("load.ended_unwanted", model_id=model_id, seconds=round(_now() - sent.since, 1), cause=cause and str(cause))

    async def _gone(self, sent: _Sent) -> None:
        """Return when Triton's index no longer shows the load, or Triton is another one. Whatever goes wrong, it is asked again."""
        for pause in doubling(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_BETWEEN_LOOKS_SECONDS):
            await self._connection.wait()
            if self._connection.restarts != sent.restarts:
                return
            try:
                listing = await self._index.ask()
            except Exception as failure:  # noqa: BLE001 - a load that is forgotten keeps a thread of Triton unseen
                log.warning("load.not_followed", model_id=sent.name, cause=str(failure))
            else:
                if listing is not None and not any(row.state == "LOADING" for row in listing.named(sent.name)):
                    return
            await asyncio.sleep(pause)

    async def _has_died(self, sent: _Sent) -> bool:
        """Whether the Triton that had the load is gone; waits until that can be known."""
        for pause in doubling(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS):
            is_live = await self._connection.look()
            if self._connection.restarts != sent.restarts:
                break
            if is_live and (listing := await self._index.ask()) is not None:
                return not any(row.state for row in listing.named(sent.name))
            await asyncio.sleep(pause)
        return True

    async def _reason_inside(self, model_id: str) -> str | None:
        """Why an inner model could not be loaded: of the top model Triton then says only that it depends on it."""
        inner_names = self._repository.inner_names(model_id)
        if not inner_names:
            return None
        listing = await self._index.listing()
        for name in inner_names:
            rows = [row for row in listing.named(name) if row.reason and not row.holds_memory]
            if rows and not any(row.reason == "unloaded" for row in rows):
                return f"{_shown_inner(name)}: {one_line(rows[0].reason)}"
        return None

    def _end(self, model_id: str, sent: _Sent) -> None:
        del self._sent[model_id]
        call = sent.call
        if call is not None and call.done() and not call.cancelled() and isinstance(call.exception(), ModelRefused | None):
            self._answered[model_id] = call.exception() is not None
        self._slots.give_back(sent.slot)
        sent.ended.set()


def _shown_inner(name: str) -> str:
    return f"inner model {name.partition(INNER)[2]}"


def _now() -> float:
    return asyncio.get_running_loop().time()
