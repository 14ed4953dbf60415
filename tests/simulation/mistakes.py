"""Mistakes that a change of the adapter could make, to be planted: a simulation that finds none of them proves nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from msgspec import structs

from adapter.journal import Journal
from adapter.lifecycle import fetching
from adapter.lifecycle.facts import Facts
from adapter.lifecycle.lifecycle import RuntimeLifecycle
from adapter.lifecycle.looks import Looks
from adapter.lifecycle.operation import Operation
from adapter.lifecycle.reconciler import Reconciler
from adapter.lifecycle.registry import Registry
from adapter.lifecycle.states import State
from adapter.lifecycle.worker import Worker
from adapter.model import ModelSpec, ServerModel
from adapter.ports import Ports
from adapter.records import Crashes, Record
from adapter.storage.cache.cache import Cache
from adapter.storage.cache.record import Identity
from adapter.storage.mounted.reads import VolumeReads
from adapter.triton.index import Index
from adapter.triton.loads import Loads
from adapter.triton.placing import build, identity_of
from adapter.triton.repository import Repository
from adapter.triton.unloads import HELD, Unloads
from adapter.volume.space import Reservation, Space
from adapter.workers import Workers

Plant = Callable[[], Any]


def _slot_kept_on_cancel() -> Any:
    """A load that is cancelled keeps its slot."""
    load = Loads.load

    async def kept(self: Loads, *args: Any, **options: Any) -> None:
        try:
            await load(self, *args, **options)
        except asyncio.CancelledError:
            if not self._slots.locked():
                await self._slots.acquire()
            raise

    return mock.patch.object(Loads, "load", kept)


def _place_of_a_left_load_kept() -> Any:
    """The place of a load without a caller is never free again."""
    end = Loads._end

    def kept(self: Loads, load: Any, cause: BaseException | None) -> None:
        if load.is_left:
            self._loads.remove(load)
        else:
            end(self, load, cause)

    return mock.patch.object(Loads, "_end", kept)


def _left_load_keeps_its_slot() -> Any:
    """A load without a caller counts as one with a caller."""
    load = Loads.load

    async def kept(self: Loads, model_id: str, *args: Any, **options: Any) -> None:
        try:
            await load(self, model_id, *args, **options)
        except asyncio.CancelledError:
            left = [each for each in self._loads if each.is_left and each.model_id == model_id]
            if left and not self._slots.locked():
                await self._slots.acquire()
                left[0].work.add_done_callback(lambda _: self._slots.release())
            raise

    return mock.patch.object(Loads, "load", kept)


def _unload_answered_early() -> Any:
    """An unload is answered when Triton has answered, not when the memory is free."""

    until = Unloads._until

    async def at_once(self: Unloads, asked: Any, name: str, states: frozenset[str]) -> None:
        if states != HELD:
            await until(self, asked, name, states)

    return mock.patch.object(Unloads, "_until", at_once)


def _journal_not_awaited() -> Any:
    """A load is sent before the journal has it."""

    async def at_once(self: Journal) -> None:
        return

    return mock.patch.object(Journal, "written", at_once)


def _renamed_before_whole() -> Any:
    """A model is visible while its directory is being filled."""

    def built(self: Repository, destination: Any, layout: Any, artifact: Any, stop: Any) -> str:
        self._discard([destination])
        self._volume.new_staging().rename(destination)
        build(destination, layout, artifact, stop)
        return identity_of(destination)

    return mock.patch.object(Repository, "_built", built)


def _user_not_released() -> Any:
    """An artifact keeps its user for ever."""

    async def kept(self: Cache, artifact: Any) -> None:
        return

    return mock.patch.object(Cache, "release", kept)


def _old_index_believed() -> Any:
    """An answer of the index is used again for some seconds."""
    ask = Index.ask
    known: dict[Index, tuple[float, list[ServerModel] | None]] = {}

    async def remembered(self: Index) -> list[ServerModel] | None:
        now = asyncio.get_running_loop().time()
        at, listing = known.get(self, (-1.0, None))
        if listing is None or now - at > 3:
            listing = await ask(self)
            known[self] = (now, listing)
        return listing

    return mock.patch.object(Index, "ask", remembered)


def _restore_asks_the_store() -> Any:
    """A restore lists the model again."""
    restore = Worker._restore

    async def listed(self: Worker, operation: Operation) -> None:
        if operation.kind == "restore" and isinstance(operation.model.asked, ModelSpec):
            await self.ports.store.open(operation.model.asked, operation.waits)
        await restore(self, operation)

    return mock.patch.object(Worker, "_restore", listed)


def _too_many_restores() -> Any:
    """All lost models are restored at once."""
    begin = Reconciler.__init__

    def made(self: Reconciler, registry: Registry, ports: Ports, worker: Worker, looks: Looks, _at_once: int) -> None:
        begin(self, registry, ports, worker, looks, 100)

    return mock.patch.object(Reconciler, "__init__", made)


def _other_spec_joined() -> Any:
    """A load joins one of another content."""
    return mock.patch.object(Operation, "can_be_joined_by", lambda self, spec: self.kind == "load" and not self.is_ending)


def _reservation_leaks() -> Any:
    """What a failed pull had reserved stays reserved."""

    @contextmanager
    def reservation(self: Space) -> Iterator[Reservation]:
        reserved = Reservation(self)
        self._reservations.add(reserved)
        yield reserved
        self._reservations.remove(reserved)

    return mock.patch.object(Space, "reservation", reservation)


def _two_operations() -> Any:
    """A load does not look whether something is under way."""

    async def claimed(self: RuntimeLifecycle, spec: Any, *, is_new: bool) -> Operation:
        await self._reconciler.passed()
        return self._worker.load(spec)

    return mock.patch.object(RuntimeLifecycle, "_claimed", claimed)


def _purge_forgets_one() -> Any:
    """A purge passes over one model."""
    held = Unloads._held

    async def fewer(self: Unloads) -> set[str]:
        return set(sorted(await held(self))[1:])

    return mock.patch.object(Unloads, "_held", fewer)


def _directory_left() -> Any:
    """An unload leaves the directory."""

    async def left(self: Repository, model_id: str) -> None:
        return

    return mock.patch.object(Repository, "remove", left)


def _versions_not_compared() -> Any:
    """An artifact is found by its paths alone."""
    key = Identity.__dict__["key"].func

    def blind(self: Identity) -> str:
        objects = {path: replace(stored, etag="e", size_bytes=0) for path, stored in self.objects.items()}
        return str(key(Identity(self.origin, objects)))

    return mock.patch.object(Identity, "key", property(blind))


def _unload_without_bound() -> Any:
    """An unload waits for as long as it takes."""
    begin = RuntimeLifecycle.__init__
    return mock.patch.object(
        RuntimeLifecycle, "__init__", lambda self, **given: begin(self, **{**given, "unload_timeout_seconds": 100_000})
    )


def _too_many_loads() -> Any:
    """There are more slots than Triton has threads."""
    begin = Loads.__init__

    def made(self: Loads, connection: Any, index: Any, repository: Any, limits: Any) -> None:
        begin(self, connection, index, repository, replace(limits, slots=100, places=100))

    return mock.patch.object(Loads, "__init__", made)


def _prediction_waits() -> Any:
    """A prediction waits for a store."""
    return mock.patch.multiple(fetching, SURVEY_SECONDS=20.0, PREDICT_SECONDS=20.0)


def _all_unloads_at_once() -> Any:
    """A purge sends all unloads at once."""
    begin = Unloads.__init__

    def made(self: Unloads, *parts: Any) -> None:
        begin(self, *parts)
        self._calls = asyncio.Semaphore(10_000)

    return mock.patch.object(Unloads, "__init__", made)


def _claim_read_by_others() -> Any:
    """The threads of our own volume look into a claim."""

    async def shared(self: VolumeReads, waits: Any, work: Any) -> Any:
        return await Workers("shared", 4).run(work)

    return mock.patch.object(VolumeReads, "run", shared)


def _left_load_goes_on() -> Any:
    """A load whose last caller has gone goes on."""
    stop = Operation.stop

    def unheard(self: Operation, reason: Any) -> None:
        if type(reason).__name__ != "Abandoned":
            stop(self, reason)

    return mock.patch.object(Operation, "stop", unheard)


def _going_not_booked() -> Any:
    """Only what is loaded, or being loaded, counts for the memory."""
    check = Facts._check

    def fewer(self: Facts, model: Any, size_bytes: int, what: str) -> None:
        going = [(other, other.size_bytes) for other in self._registry if other.state in (State.UNLOADING, State.FAILED, State.LOST)]
        for other, _ in going:
            other.size_bytes = 0
        try:
            check(self, model, size_bytes, what)
        finally:
            for other, size in going:
                other.size_bytes = size

    return mock.patch.object(Facts, "_check", fewer)


def _booked_late() -> Any:
    """A load that waits for its files is not in the book yet."""

    def unbooked(self: Facts, model: Any, spec: Any, file_bytes: int, content: Any, gpus: int) -> None:
        self._check(model, spec.size_hint_bytes or 0, "")

    return mock.patch.object(Facts, "admit", unbooked)


def _name_not_kept() -> Any:
    """The journal does not keep what a front calls a model."""
    note = Journal.note

    def nameless(self: Journal, entry: Record | Crashes) -> None:
        note(self, structs.replace(entry, named=None) if isinstance(entry, Record) else entry)

    return mock.patch.object(Journal, "note", nameless)


MISTAKES: dict[str, Plant] = {
    "a slot is not given back on cancel": _slot_kept_on_cancel,
    "a left load keeps its place for ever": _place_of_a_left_load_kept,
    "a left load keeps its slot": _left_load_keeps_its_slot,
    "an unload is answered before the memory is free": _unload_answered_early,
    "the journal is not awaited": _journal_not_awaited,
    "a directory is renamed before it is whole": _renamed_before_whole,
    "a user of an artifact is not released": _user_not_released,
    "an old answer of the index is used": _old_index_believed,
    "a restore asks the store": _restore_asks_the_store,
    "too many restores at once": _too_many_restores,
    "a load joins another content": _other_spec_joined,
    "a reservation leaks": _reservation_leaks,
    "two operations for one id": _two_operations,
    "a purge forgets a model": _purge_forgets_one,
    "a directory is left": _directory_left,
    "an artifact is found by its path alone": _versions_not_compared,
    "an unload has no bound": _unload_without_bound,
    "more loads than threads": _too_many_loads,
    "a prediction waits for the store": _prediction_waits,
    "a load outlives its callers": _left_load_goes_on,
    "a purge sends all unloads at once": _all_unloads_at_once,
    "a claim is read by the threads of others": _claim_read_by_others,
    "what is being unloaded counts for nothing": _going_not_booked,
    "a load is booked when it has ended": _booked_late,
    "the names of a front are forgotten": _name_not_kept,
}
