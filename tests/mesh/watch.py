"""What has happened, what must never happen, and whether anything was wrong at the time."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.mesh.figures import Figures

KEPT_EVENTS = 5000
SHOWN_EVENTS = 15
MOST_BROKEN = 20


@dataclass(frozen=True)
class Broken:
    """A rule that did not hold."""

    rule: str
    words: str
    trace: tuple[str, ...]
    """The last events of that model, or of all."""

    def __str__(self) -> str:
        return f"BROKEN: {self.rule}: {self.words}" + "".join(f"\n    {line}" for line in self.trace)


@dataclass
class Watch:
    """One for a run: everything that the parts of the simulator tell."""

    figures: Figures = field(default_factory=Figures)
    now: Callable[[], float] = time.monotonic
    broken: list[Broken] = field(default_factory=list)
    is_broken: asyncio.Event = field(default_factory=asyncio.Event)
    faults: Counter[str] = field(default_factory=Counter)
    """Kinds that go on."""
    heal_seconds: float = 60.0
    """A model that is called loaded may fail so long after the last fault has ended."""
    healthy: set[str] = field(default_factory=set)
    """Models whose loads may fail in and just after a fault, and never else."""
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    """Set with each unload that is answered, and with READY: a good moment to look whether that is true."""
    knows_faults: bool = False
    """Whether every fault is told here. Else another program may restart Triton, and its effects cannot be told apart."""

    def __post_init__(self) -> None:
        self.began = self.now()
        self.calm_since = -math.inf
        """End of the last fault."""
        self._events: deque[tuple[float, str, str]] = deque(maxlen=KEPT_EVENTS)

    def note(self, model_id: str, words: str) -> None:
        """An event."""
        self._events.append((self.now() - self.began, model_id, words))

    def tell(self, rule: str, words: str, model_id: str = "") -> None:
        """A rule is broken."""
        lines = [f"{at:9.3f} {who} {what}" for at, who, what in self._events if not model_id or who in (model_id, "")]
        if len(self.broken) < MOST_BROKEN:
            self.broken.append(Broken(rule, words, tuple(lines[-SHOWN_EVENTS:])))
        self.is_broken.set()

    @contextmanager
    def fault(self, kind: str) -> Iterator[None]:
        """It goes on as long as the context; what it has done may be seen a while longer (`was_calm`)."""
        self.faults[kind] += 1
        self.note("", f"fault begins: {kind}")
        try:
            yield
        finally:
            self.faults -= Counter([kind])
            self.calm_since = self.now()
            self.note("", f"fault ends: {kind}")

    def calm_seconds(self) -> float:
        """Since the last fault has ended; 0 while one goes on."""
        return 0.0 if self.faults else self.now() - self.calm_since

    def was_calm(self, since: float, *, grace: float = 0.0) -> bool:
        """Whether nothing was wrong from then until now, nor in the time of grace before."""
        return self.knows_faults and not self.faults and self.calm_since + grace <= since
