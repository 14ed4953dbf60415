"""
How often Triton is asked for its index: a tenth of the time at most, or as often as an unload needs.

The index holds the lock that inference needs, and keeps Triton from answering anything else. After an answer Triton is
owed a rest that is ten times as long as the quicker of the last two answers. A part of it may be taken later, so that ten
unloads in a row need not wait: never more than CREDIT_SECONDS are owed to Triton when it is asked. Between any two
questions, however many there were in between, Triton was therefore left alone for ten times as long as it had listed, less
that.

A caller that waits for an unload must still see the index about three times within its time, so for it the rest ends after
40 s. Beyond that the share is told.
"""

from __future__ import annotations

import structlog

REST_FACTOR = 10
CREDIT_SECONDS = 0.5
"""Of rest: it stands for 50 ms of listing, ten answers of a Triton with 1,000 models."""
LONGEST_REST_SECONDS = 40.0
"""With answers of 10 s that is three looks within UNLOAD_TIMEOUT_SECONDS (170 s by default)."""
SLOW_SECONDS = 10.0
"""An answer that takes longer is called slow while it is waited for."""

log = structlog.stdlib.get_logger(__name__)


class IndexThrottle:
    """When the next question may be sent. Times are those of the loop, in seconds."""

    def __init__(self) -> None:
        self._ended_at = 0.0
        self.seconds = 0.0
        """The newest answer took so long; 0 before the first one of this Triton. From any thread."""
        self._counted = 0.0
        """The quicker of the last two: one answer alone may be late because this process was busy."""
        self._owed_until = 0.0
        """When Triton will have had the rest for all its answers."""
        self.notice: str | None = None
        """How slow the index is, when that costs Triton more than a tenth of its time. From any thread."""

    def due(self, *, can_wait: bool) -> float:
        """Time of the next question; `can_wait`: for callers that need no answer soon."""
        if can_wait:
            return self._owed_until
        return min(max(self._owed_until - CREDIT_SECONDS, self._ended_at), self._ended_at + LONGEST_REST_SECONDS)

    def ended(self, began: float, now: float) -> None:
        """A question was under way in this time, answered or not."""
        self._ended_at = now
        before, self.seconds = self.seconds, now - began
        self._counted = min(before, self.seconds) if before else self.seconds
        self._tell()
        rest = REST_FACTOR * self._counted
        owed_until = max(self._owed_until, now - self._counted) + self._counted + rest
        self._owed_until = min(owed_until, now + rest + CREDIT_SECONDS)  # else the rests that were cut at 40 s would add up

    def forget(self) -> None:
        """Triton is another process: it has listed nothing yet."""
        self.seconds = self._counted = self._owed_until = 0.0

    def _tell(self) -> None:
        share = self.seconds / (self.seconds + LONGEST_REST_SECONDS)
        was_slow, is_slow = self.notice is not None, REST_FACTOR * self.seconds > LONGEST_REST_SECONDS
        self.notice = (
            f"Triton is slow: it has needed {self.seconds:.0f} s to list its model repository, "
            f"which takes {share:.0%} of its time while unloads wait for it"
            if is_slow
            else None
        )
        if is_slow and not was_slow:
            log.warning("index.slow", seconds=round(self.seconds, 1), share=f"{share:.0%}", rest_seconds=LONGEST_REST_SECONDS)
        elif was_slow and not is_slow:
            log.info("index.quick", seconds=round(self.seconds, 1))
