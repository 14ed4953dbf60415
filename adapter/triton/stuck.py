"""
What in Triton does not end, and whether nothing but a restart of Triton can help: for the probe of Triton's
container.

Nothing of before counts after a restart: a Triton that was killed for what is told here must not be killed for it
again. One load that does not end is told of and is no reason for a restart: the other models are served. Everything
here may be asked from any thread.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial

from adapter.errors import some
from adapter.telemetry.metrics import STUCK
from adapter.triton.connection import Connection
from adapter.triton.loads import Limits, Loads
from adapter.triton.unloads import Unloads

FORMAT = 1
PATIENCE_FACTOR = 2
"""Announced timeouts after which a load is stuck: ModelMesh has given it up after one."""
UNLOAD_SECONDS = 15 * 60.0
"""
From the first time that an unload was asked for. ModelMesh then gives up, and takes the memory out of its capacity
for good.
"""
SHOWN = 16
NAMED = 5


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
        fields = {"format": FORMAT, "live": self.is_live, **asdict(self), "silent_seconds": round(self.silent_seconds, 1)}
        del fields["is_live"]
        return json.dumps(fields, separators=(",", ":"))


@dataclass(frozen=True)
class RestartAdvice:
    """Looks at all that Triton was asked for."""

    connection: Connection
    loads: Loads
    unloads: Unloads
    limits: Limits
    clock: Callable[[], float]
    """Of the loop."""

    def __post_init__(self) -> None:
        """Show the metric."""
        for kind in ("load", "unload"):
            STUCK.labels(kind).set_function(partial(self._count, kind))

    def health(self) -> Health:
        """What can be told now."""
        is_live, silent = self.connection.is_live, self.connection.silent_seconds()
        stuck = self._stuck()
        why = None
        if not is_live and silent >= self.limits.silent_seconds:
            why = f"Triton accepts connections and has answered nothing for {silent:.0f} s"
        return Health(is_live, silent, self.limits.places, tuple(stuck[:SHOWN]), why or self._why(stuck))

    def _why(self, stuck: list[Stuck]) -> str | None:
        loads = [each for each in stuck if each.kind == "load"]
        unloads = [each for each in stuck if each.kind == "unload"]
        if len(loads) >= self.limits.places:
            names = _named(loads)
            return f"Triton can load nothing more: the loads of {names} do not end, and keep all its load threads"
        if unloads:
            held = f"Triton does not free {_named(unloads)}, counted from the first unload"
            return f"{held}; ModelMesh no longer uses that memory"
        return None

    def _stuck(self) -> list[Stuck]:
        """The oldest first."""
        if (start := self.connection.began_at) is None:
            return []
        now = self.clock()
        kinds = (
            ("load", self.loads.sent_at(), PATIENCE_FACTOR * self.limits.load_seconds),
            ("unload", self.unloads.asked_at(), UNLOAD_SECONDS),
        )
        stuck = [
            Stuck(kind, model_id, int(now - max(at, start)))
            for kind, began, seconds in kinds
            for model_id, at in began.items()
            if now - max(at, start) > seconds
        ]
        return sorted(stuck, key=lambda each: -each.seconds)

    def _count(self, kind: str) -> int:
        return sum(each.kind == kind for each in self._stuck())


def _named(stuck: list[Stuck]) -> str:
    names = some([f"{each.model_id} ({each.seconds} s)" for each in stuck], NAMED)
    return f"model {names}" if len(stuck) == 1 else f"models {names}"
