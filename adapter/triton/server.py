"""
Triton as the lifecycle sees it: loads, unloads that are really done, a purge, and what in it does not end.

Puts the parts together: `client` calls, `Connection` waits for a Triton that is away, `Loads` keeps what cannot be
cancelled, `Unloads` waits for the memory, `Index` and `Repository` belong to the folder that both sides see. Triton's
own words never come out as they are, nor do gRPC's codes.

`health` is for the probe of Triton's container. Nothing of before counts after a restart: a Triton that was killed for
what is told there must not be killed for it again. One load that does not end is told of and is no reason for a
restart: the other models are served.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import TypeVar

from adapter.errors import ModelRefused, ServerError, WrongServer, some
from adapter.model import Overrides, Rows, by_owner
from adapter.telemetry.metrics import STUCK
from adapter.triton.client import CallError, TritonClient
from adapter.triton.connection import Connection
from adapter.triton.index import Index
from adapter.triton.loads import Limits, Loads
from adapter.triton.repository import Repository
from adapter.triton.unloads import Unloads

HEALTH_FORMAT = 1
PATIENCE_FACTOR = 2
"""Announced timeouts after which a load is stuck: ModelMesh has given it up after one."""
UNLOAD_SECONDS = 15 * 60.0
"""
From the first time that an unload was asked for. ModelMesh then gives up, and takes the memory out of its capacity
for good.
"""
SHOWN = 16
NAMED = 5

T = TypeVar("T")


@dataclass(frozen=True)
class Stuck:
    """Something that does not end."""

    kind: str
    """`load` or `unload`."""
    model_id: str
    seconds: int


@dataclass(frozen=True)
class Health:
    """Of Triton, as the adapter sees it."""

    is_live: bool
    silent_seconds: float
    load_threads: int
    stuck: tuple[Stuck, ...]
    """The oldest ones, the oldest first."""
    why: str | None
    """Why nothing but a restart can help; None where that is not so."""

    def as_json(self) -> str:
        """One line, for `/healthz/triton`."""
        fields = asdict(self)
        told = {"format": HEALTH_FORMAT, "live": fields.pop("is_live"), **fields, "silent_seconds": round(self.silent_seconds, 1)}
        return json.dumps(told, separators=(",", ":"))


class TritonServer:
    """The `ModelServer` of `adapter.ports`, where the contract of each call is written."""

    def __init__(self, client: TritonClient, repository: Repository, limits: Limits) -> None:
        self._client = client
        self._repository = repository
        self._limits = limits
        self._connection = connection = Connection(client)
        self._index = Index(connection, repository)
        self._loads = Loads(connection, self._index, repository, self._limits)
        self._unloads = Unloads(connection, self._index, repository, self._loads)
        self._time = asyncio.get_running_loop().time
        self._wrong: str | None = None
        # what the parts do for the lifecycle as it is
        self.watch = connection.watch
        self.returned, self.confirm_restart = connection.returns.get, connection.confirm_restart
        self.queue = self._loads.queue
        self.unload = self._unloads.free
        self.purge = self._unloads.purge
        STUCK.labels("load").set_function(lambda: len(self._stuck("load")))
        STUCK.labels("unload").set_function(lambda: len(self._stuck("unload")))

    @property
    def problem(self) -> str | None:
        """Why Triton cannot be used now, in words; None when it answers and is ours."""
        return self._connection.problem or self._wrong or self._index.problem

    @property
    def notice(self) -> str | None:
        """What is told of a Triton that can be used: that its index is slow. From any thread."""
        return self._index.notice

    async def close(self) -> None:
        """Give up on every call; Triton goes on with what it has."""
        await self._loads.close()
        await self._index.close()
        await self._connection.close()
        await self._client.close()

    # ---- models

    async def load(self, model_id: str, on_sent: Callable[[], Awaitable[None]], *, has_limit: bool = False) -> None:
        """
        Load the placed model, when there is a slot. A cancel gives the slot back, and leaves what was sent to Triton.
        """
        self._unloads.forget(model_id)
        try:
            await self._loads.load(model_id, on_sent, has_limit=has_limit)
        except ModelRefused as refused:
            if self._wrong is None:
                raise
            raise WrongServer(self._wrong) from refused

    async def load_other(self, name: str, overrides: Overrides) -> None:
        """As `ModelServer`: it shares Triton's load threads with the adapter's own models."""
        await self._loads.load(name, _nothing, overrides=overrides)

    def obstacle(self, model_id: str) -> str:
        """What an unload of the model is waiting for, in words."""
        return self._connection.problem or self._wrong or self._unloads.obstacle(model_id)

    # ---- questions

    async def is_ready(self, model_id: str) -> bool:
        """Whether Triton serves the model now, and was not told to unload it, as by a purge that failed."""
        return model_id not in self._unloads.asked_at() and all(await self._answers(model_id, self._client.ready) or [False])

    async def index(self) -> Rows:
        """The repository index, waiting for a Triton that is away or cannot list its folder."""
        return by_owner(await self._index.listing())

    async def reported_bytes(self, model_id: str) -> int | None:
        """
        Memory that Triton's backends report for the model; 0 when they report none.

        None: Triton has no statistics of it. It has some of each model that is READY, and refuses the question for any
        other.
        """
        answers = await self._answers(model_id, self._client.reported_bytes)
        return None if answers is None else sum(answers)

    async def _answers(self, model_id: str, ask: Callable[[str], Awaitable[T]]) -> list[T] | None:
        """For the model, and each inner model of a bundle; None: Triton refuses."""
        names = (*self._repository.inner_names(model_id), model_id)
        try:
            return [await self._connection.retry_while_away(partial(ask, name)) for name in names]
        except CallError:
            return None

    # ---- whether Triton is ours to control

    async def verify(self) -> str:
        """Wait until Triton answers, make sure that it is ours to control, and return its version."""
        await self._connection.wait()
        try:
            async with self._repository.probe() as probe:
                await self._unloads.tell(probe)
                if not any(row.name == probe for row in await self._index.listing()):
                    wrong = f"Triton's --model-repository is not {self._repository.folder}"
                    raise WrongServer(f"{wrong}: a directory made there is not in Triton's index")
        except (WrongServer, ServerError) as failure:
            self._wrong = failure.text
            raise
        self._wrong = None
        return self._connection.version

    # ---- what does not end

    def health(self) -> Health:
        """What in Triton does not end, and whether nothing but a restart can help. From any thread."""
        is_live, silent = self._connection.problem is None, self._connection.silent_seconds()
        threads = self._limits.places
        loads, unloads, why = self._stuck("load"), self._stuck("unload"), None
        if not is_live and silent >= self._limits.silent_seconds:
            why = f"Triton accepts connections and has answered nothing for {silent:.0f} s"
        elif len(loads) >= threads:
            why = f"Triton can load nothing more: the loads of {_named(loads)} do not end, and keep all its load threads"
        elif unloads:
            held = f"Triton does not free {_named(unloads)}, counted from the first unload"
            why = f"{held}; ModelMesh no longer uses that memory"
        oldest = sorted(loads + unloads, key=lambda each: -each.seconds)[:SHOWN]
        return Health(is_live, silent, threads, tuple(oldest), why)

    def _stuck(self, kind: str) -> list[Stuck]:
        """The oldest first. What was sent to an earlier Triton does not count."""
        patience, began = UNLOAD_SECONDS, self._unloads.asked_at()
        if kind == "load":
            patience, began = PATIENCE_FACTOR * self._limits.load_seconds, self._loads.sent_at()
        ages = ((model_id, self._time() - max(at, self._connection.began_at)) for model_id, at in began.items())
        stuck = (Stuck(kind, model_id, int(age)) for model_id, age in ages if age > patience)
        return sorted(stuck, key=lambda each: -each.seconds)


async def _nothing() -> None:
    """No record is kept of a load of others' models."""


def _named(stuck: list[Stuck]) -> str:
    names = some([f"{each.model_id} ({each.seconds} s)" for each in stuck], NAMED)
    return f"model {names}" if len(stuck) == 1 else f"models {names}"
