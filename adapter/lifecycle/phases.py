"""Where the time of one operation went. The clock is the event loop's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from adapter.telemetry.metrics import PHASE_SECONDS

Phase = Literal["check", "list", "pull", "place", "queue", "triton", "measure", "undo", "unload"]
WORTH_TELLING_SECONDS = 0.05


class Phases:
    """Seconds per phase, in order, the running one included."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds: dict[str, float] = {}
        self._running: tuple[str, float] | None = None

    @contextmanager
    def phase(self, name: Phase) -> Iterator[None]:
        """Count the time inside as this phase's; a phase may come more than once."""
        started = self._loop.time()
        self._running = (name, started)
        try:
            yield
        finally:
            self._running = None
            seconds = self._loop.time() - started
            self._seconds[name] = self._seconds.get(name, 0.0) + seconds
            PHASE_SECONDS.labels(name).observe(seconds)

    def seconds(self) -> dict[str, float]:
        """Seconds by phase, rounded to 0.1 ms."""
        found = dict(self._seconds)
        if self._running is not None:
            name, started = self._running
            found[name] = found.get(name, 0.0) + self._loop.time() - started
        return {name: round(seconds, 4) for name, seconds in found.items()}

    def __str__(self) -> str:
        """For error texts: `list 0.1 s, pull 26.8 s`; the last one is where it ended, earlier ones are told if they took time."""
        found = list(self.seconds().items())
        told = [(name, seconds) for name, seconds in found[:-1] if seconds >= WORTH_TELLING_SECONDS] + found[-1:]
        return ", ".join(f"{name} {seconds:.1f} s" for name, seconds in told)
