"""One call of ModelMesh, as whoever looks on keeps it."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass

from adapter.model import ModelSpec
from tests.simulation.adapter_life import Adapter


@dataclass(eq=False)
class Call:
    """One call of ModelMesh."""

    number: int
    kind: str
    model_id: str
    spec: ModelSpec | None
    adapter: Adapter
    began_at: float
    ended_at: float = math.inf
    is_cancelled: bool = False
    outcome: str = ""
    task: asyncio.Task[None] | None = None

    def cancel(self) -> None:
        """The caller goes."""
        if self.task is not None and not self.task.done():
            self.is_cancelled = True
            self.task.cancel()

    def is_over(self) -> bool:
        """Whether it was answered, or given up."""
        return self.task is not None and self.task.done()

    def __str__(self) -> str:
        what = f" {self.spec.storage_key}/{self.spec.path}" if self.spec else ""
        return f"call {self.number}: {self.kind} {self.model_id}{what}".strip()
