"""
The loads that Triton has.

Triton cannot cancel a load. So a slot (`slots`) belongs to the load, not to its caller: when the caller is
cancelled, the call that Triton works on goes on, keeps the slot until Triton has answered, and
`ended` lets the unload of the same model wait for that. Never more than `slots` loads are in Triton,
however many callers come and go. The models of a bundle are one load, one after the other.

Invariants: a call that Triton has not taken is repeated, in the same slot, for as long as the caller
has patience; a load that Triton died over is not, for the model may be what killed it. A connection that
ends is no death yet: a Triton that lives on has the load, and a second call of it waits for its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import structlog

from adapter.backoff import doubling
from adapter.errors import ModelRefused, ServerDied
from adapter.model import INNER
from adapter.triton.client import AnswerLost, TritonClient, TritonDied
from adapter.triton.index import Index
from adapter.triton.presence import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, Presence
from adapter.triton.reason import one_line
from adapter.triton.repository import Repository
from adapter.triton.slots import Slot, Slots

log = structlog.stdlib.get_logger(__name__)


@dataclass(eq=False)
class _Sent:
    """A load with its slot."""

    slot: Slot
    since: float
    call: asyncio.Task[None] | None = None
    """What Triton works on now, or was asked last."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class Loads:
    """Tells Triton to load, so many models at once and no more."""

    def __init__(self, *, client: TritonClient, presence: Presence, index: Index, repository: Repository, slots: int) -> None:
        self._client = client
        self._presence = presence
        self._index = index
        self._repository = repository
        self._count = slots
        self._slots = Slots(slots)
        self._sent: dict[str, _Sent] = {}
        self._answered: set[str] = set()
        """Models whose last load was ours, and that Triton was not told to unload since."""

    async def load(self, model_id: str, on_sent: Callable[[], None], *, yields: bool = False) -> None:
        """
        Wait for a slot, for Triton, and for an earlier load of the model; then send the load and wait for its end.

        Of a bundle, the inner models that Triton does not load with the top model come first. One that yields also lets
        everybody else have the slots that are free while Triton is away.

        Raises:
            ModelRefused, ServerDied, WrongServer
        """
        if yields:
            await self._presence.wait()
        slot = await self._slots.take(model_id, yields=yields)
        try:
            await self._presence.wait()
            await self.ended(model_id)
        except BaseException:
            self._slots.give_back(slot)
            raise
        sent = self._sent[model_id] = _Sent(slot, _now())
        self.forget(model_id)
        try:
            on_sent()
            await self._load(model_id, sent)
        finally:
            if sent.call is None or sent.call.done():
                self._end(model_id, sent)
            else:
                sent.call.add_done_callback(partial(self._end_unwanted, model_id, sent))

    async def ended(self, model_id: str) -> None:
        """Wait until no load of this model, or of its bundle, is in Triton."""
        while sent := self._sent.get(model_id):
            await sent.ended.wait()

    def is_answered(self, model_id: str) -> bool:
        """Whether the last load of the model was ours and Triton has answered it: then no load of the model is in Triton."""
        return model_id in self._answered

    def forget(self, model_id: str) -> None:
        """Triton is asked for something new: an answer that came earlier proves nothing any more."""
        self._answered.discard(model_id)

    def names(self) -> set[str]:
        """Models whose load is in Triton."""
        return set(self._sent)

    def seconds_since_sent(self, model_id: str) -> float | None:
        """Age of the model's load in Triton, or None."""
        sent = self._sent.get(model_id)
        return None if sent is None else _now() - sent.since

    def queue(self) -> str | None:
        """Which models hold the loading slots, and since when; None when one is free."""
        holders = self._slots.holders()
        if holders is None:
            return None
        now = _now()
        if self._count == 1:
            return f"model {holders[0].model_id} has held the only loading slot for {now - holders[0].since:.0f} s"
        *most, last = (f"{slot.model_id} ({now - slot.since:.0f} s)" for slot in holders)
        return f"models {', '.join(most)} and {last} hold {'both' if self._count == 2 else 'all'} loading slots"

    async def close(self) -> None:
        """Give up on what is left; Triton goes on with it."""
        calls = {sent.call for sent in self._sent.values() if sent.call is not None}
        for call in calls:
            call.cancel()
        if calls:
            await asyncio.wait(calls)

    async def _load(self, model_id: str, sent: _Sent) -> None:
        for name in self._repository.loaded_first(model_id):
            try:
                await self._presence.until_taken(partial(self._call, name, sent))
            except ModelRefused as refused:
                raise ModelRefused(f"{_shown_inner(name)}: {refused.text}") from refused
        try:
            await self._presence.until_taken(partial(self._call, model_id, sent))
        except ModelRefused as refused:
            raise ModelRefused(await self._reason_inside(model_id) or refused.text) from refused

    async def _call(self, name: str, sent: _Sent) -> None:
        while True:
            restarts = self._presence.restarts
            sent.call = asyncio.create_task(self._client.load(name), name=f"load {name}")
            try:
                return await asyncio.shield(sent.call)
            except TritonDied as died:
                self._presence.lost(died)
                if await self._has_died(name, restarts):
                    raise ServerDied(
                        f"Triton died while it was loading the model ({died}); the load is not repeated, for the model may be the cause"
                    ) from died
                log.info("load.followed", model_id=name, cause=str(died))
            except AnswerLost as lost:
                raise ModelRefused(await self._index.reason(name)) from lost

    async def _has_died(self, name: str, restarts: int) -> bool:
        """Whether the Triton that had the load is gone; waits until that can be known."""
        for pause in doubling(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS):
            is_live = await self._presence.look()
            if self._presence.restarts != restarts:
                break
            if is_live and (rows := await self._index.look(frozenset({name}))) is not None:
                return not any(row.state for row in rows)
            await asyncio.sleep(pause)
        return True

    async def _reason_inside(self, model_id: str) -> str | None:
        """Why an inner model could not be loaded: of the top model Triton then says only that it depends on it."""
        for name in self._repository.inner_names(model_id):
            rows = [row for row in await self._index.rows() if row.name == name and row.reason and not row.holds_memory]
            if rows and not any(row.reason == "unloaded" for row in rows):
                return f"{_shown_inner(name)}: {one_line(rows[0].reason)}"
        return None

    def _end(self, model_id: str, sent: _Sent) -> None:
        del self._sent[model_id]
        if sent.call is not None and not sent.call.cancelled() and isinstance(sent.call.exception(), ModelRefused | None):
            self._answered.add(model_id)
        self._slots.give_back(sent.slot)
        sent.ended.set()

    def _end_unwanted(self, model_id: str, sent: _Sent, call: asyncio.Task[None]) -> None:
        self._end(model_id, sent)
        if not call.cancelled():
            cause = call.exception()
            log.info("load.ended_unwanted", model_id=model_id, seconds=round(_now() - sent.since, 1), cause=cause and str(cause))


def _shown_inner(name: str) -> str:
    return f"inner model {name.partition(INNER)[2]}"


def _now() -> float:
    return asyncio.get_running_loop().time()
