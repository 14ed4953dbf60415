"""
Waiting until Triton has ended something with a model: a load, an unload, its hold on memory.

The index alone shows it. Each waiter takes the answers that others have asked for, and asks when its own look is due. The first
look for a model comes when its memory is probably free: after the time that models of its kind took before. Where nothing is
known, at once. Further looks follow after pauses that begin at a twentieth of that time and are doubled, from 5 ms to 100 ms
(1 s after a long wait). `index` bounds the share of Triton's time that all looks take.

A row that is missing proves nothing (the index leaves out models whose directory is missing), and neither does a failed call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from adapter.triton.expected import Expected
from adapter.triton.index import Index
from adapter.waits import doubling

LOADING = frozenset({"LOADING"})
UNLOADING = frozenset({"UNLOADING"})
BUSY = LOADING | UNLOADING
HELD = BUSY | {"READY", "UNKNOWN"}
"""States in which a version holds memory."""

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.005, 0.1
PAUSE_SHARE = 0.05
"""Of the time that was expected: the first pause, after a look that came too early."""
WAITED_SHARE, LONGEST_WAITED_PAUSE_SECONDS = 0.02, 1.0
"""After a long wait the pause is a fiftieth of it: for inferences that do not end a second more or less is nothing."""
LATE = 1.5
"""A look that came so much later than it was due tells nothing about how long the unload took."""
ABSENT_LOOKS = 3
"""So often a row may be missing before its directory is made again: a listing races with renames."""


class FreedWatch:
    """Waits for states to end."""

    def __init__(self, index: Index, make_directory: Callable[[str], Awaitable[None]]) -> None:
        """`make_directory`: makes an empty directory for a name, where there is none."""
        self._index = index
        self._make_directory = make_directory
        self._expected = Expected()
        self._time = asyncio.get_running_loop().time
        self._sights: dict[str, tuple[str, float]] = {}
        """Name → what the index said of it last, and since when."""

    async def until(self, name: str, states: frozenset[str], told_at: float | None = None, kind: str | None = None) -> None:
        """
        Return when no version of the model is in one of the states.

        Args:
            name: of the model.
            states: that are waited for.
            told_at: when Triton answered the unload, by the clock of the loop; None: there was none.
            kind: models of the same kind (`kind_of`) take about as long; None: it has probably ended, and tells nothing of others.

        Raises:
            whatever the index, or `make_directory`, raises.
        """
        since = self._time() if told_at is None else told_at
        expected = self._expected.seconds(kind) if kind is not None else 0.0
        due = since + expected
        pauses = doubling(min(max(PAUSE_SHARE * expected, FIRST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)
        moment, held_at, absent, pause = self._time(), 0.0, 0, 0.0
        self._sights.pop(name, None)
        while True:
            listing = await self._index.after(moment, due)
            is_due = self._time() >= due
            if listing is not None:
                moment = listing.sent_at
                rows = listing.named(name)
                awaited = [row for row in rows if row.state in states]
                if rows and not awaited:
                    break
                if awaited:
                    absent, held_at = 0, moment
                    self._note(name, " and ".join(f"version {row.version} has been {row.state}" for row in awaited))
                else:
                    absent += 1
                    self._note(name, "the model has been missing from Triton's index")
                    if absent % ABSENT_LOOKS == 0:
                        await self._make_directory(name)
            if is_due:
                pause = next(pauses)
            if pause:
                now = self._time()
                due = now + max(pause, min(WAITED_SHARE * (now - since), LONGEST_WAITED_PAUSE_SECONDS))
        self._sights.pop(name, None)
        if kind is None:
            return
        if pause and held_at:
            self._expected.found_held(kind, held_at - since, moment - since)
        elif moment < since + LATE * expected + FIRST_PAUSE_SECONDS:
            self._expected.found_free(kind)

    def sight(self, name: str) -> str | None:
        """What the index said last of a model that is waited for: `version 1 has been UNLOADING for 12 s`."""
        states, since = self._sights.get(name, ("", 0.0))
        return f"{states} for {self._time() - since:.0f} s" if states else None

    def _note(self, name: str, states: str) -> None:
        if self._sights.get(name, ("",))[0] != states:
            self._sights[name] = states, self._time()
