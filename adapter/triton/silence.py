"""
For how long Triton has answered nothing although it accepts connections: what tells a hang from a start.

Told from any thread; noted in that of the event loop.
"""

from __future__ import annotations

from collections.abc import Callable

from adapter.triton.client import NobodyListens, TritonAway, TritonDied, TritonStopping


class Silence:
    """Since when there was no answer to anything."""

    def __init__(self, time: Callable[[], float]) -> None:
        """`time`: of the event loop, in seconds; may be asked from any thread."""
        self._time = time
        self._since: float | None = None
        """Of the last answer, or of the first question that got none; None while nobody listens."""

    def seconds(self) -> float:
        """0 while nobody listens."""
        since = self._since
        return 0.0 if since is None else max(0.0, self._time() - since)

    def end(self) -> None:
        """Triton has answered something."""
        self._since = self._time()

    def note(self, failure: Exception) -> None:
        """How a question has failed now."""
        if isinstance(failure, TritonStopping) or not isinstance(failure, TritonAway):
            self.end()
        elif isinstance(failure, NobodyListens):
            self._since = None
        elif self._since is None and not isinstance(failure, TritonDied):
            self._since = self._time()
