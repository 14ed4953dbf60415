"""
The listings of Triton's repository that the adapter has asked for: while Triton is at one, it answers nothing else.

Times are those of the event loop, in seconds.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from adapter.triton.client import TritonSilent


@dataclass(eq=False)
class Listing:
    """One of them."""

    has_hung: bool = False
    """Whether Triton's process did not run meanwhile: the time that the listing took says nothing then."""


class Listings:
    """When they were; one at a time."""

    def __init__(self, time: Callable[[], float]) -> None:
        """`time`: of the event loop."""
        self._time = time
        self._begun = 0
        """The one that runs is the last of these."""
        self._last = Listing()
        self._may_last_until = 0.0
        self.is_quiet = asyncio.Event()
        """Set while none runs."""
        self.is_quiet.set()

    @contextmanager
    def run(self) -> Iterator[Listing]:
        """Inside, Triton is asked for one. Raise TritonSilent through it when the time is over."""
        began = self._time()
        self._begun += 1
        self._last = Listing()
        self.is_quiet.clear()
        self._may_last_until, until = math.inf, began
        try:
            yield self._last
        except TritonSilent:  # Triton may be at it still
            until = self._time() + (self._time() - began)
            raise
        finally:
            self.is_quiet.set()
            self._may_last_until = until

    def over(self) -> int:
        """How many have ended: for `has_run_since`."""
        return self._begun - (not self.is_quiet.is_set())

    def has_run_since(self, over: int) -> bool:
        """Whether one has run, or runs, since so many were over."""
        return self._begun > over

    def may_run(self) -> bool:
        """Whether Triton may be at one: also at one that got no answer in time, for as long again."""
        return self._time() < self._may_last_until

    def hang(self) -> None:
        """Triton's process does not run."""
        self._last.has_hung = True
