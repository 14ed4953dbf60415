"""
How often Triton died while it was loading one content, and when that content is not sent to it any more.

Counted by `Content.crash` (type, path, storage key and parameters, listing), in the journal: over all ids, and over restarts
of the adapter.
A success forgets the count. Decides synchronously, and writes nothing itself.
"""

from __future__ import annotations

from adapter.errors import CrashesTriton, ServerDied
from adapter.model import Content, Crashes
from adapter.ports import Journal

MOST_CRASHES = 3
"""Deaths after which Triton is not asked again: a restart of Triton takes every other model with it."""
REMEMBERED_SECONDS = 24 * 3600.0
"""A death counts until so long after the last one."""
MOST_CONTENTS = 1000
"""Contents whose counts the journal keeps; those that have died longest ago are forgotten first."""


class CrashCounts:
    """The deaths of Triton, by content."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def check(self, content: Content) -> None:
        """
        Refuse what kills Triton, before anything is pulled.

        Raises:
            CrashesTriton: with the count, the time, and what ends it.
        """
        known = self._journal.crashes.get(content.crash)
        if known is None or known.count < MOST_CRASHES or not self._counts(known):
            return
        since = self._journal.now() - known.last
        raise CrashesTriton(
            f"Triton has died {known.count} times while it was loading this model, the last time {_minutes(since)} ago, so Triton is not "
            "asked again: not before the model's files, type, path, storage key or parameters change, or "
            f"{_minutes(REMEMBERED_SECONDS - since)} pass"
        )

    def count(self, digest: str) -> int:
        """Triton has died over the content with this `Content.crash`; returns how often by now."""
        known = self._journal.crashes.get(digest)
        others = sorted((each for each in self._journal.crashes.values() if each.digest != digest), key=lambda each: -each.last)
        for place, other in enumerate(others):  # a content that has changed is never asked for again: who else would forget it?
            if place >= MOST_CONTENTS - 1 or not self._counts(other):
                self._journal.forget(other)
        count = known.count + 1 if known and self._counts(known) else 1
        self._journal.note(Crashes(digest=digest, count=count, last=self._journal.now()))
        return count

    def died(self, content: Content | None, death: ServerDied) -> None:
        """Triton has died over the content, which is counted where it is known. Raises CrashesTriton: once too often."""
        if content is None:
            return
        self.count(content.crash)
        try:
            self.check(content)
        except CrashesTriton as often:
            raise often from death

    def succeeded(self, content: Content) -> None:
        """Triton has loaded it: earlier deaths had another cause."""
        if known := self._journal.crashes.get(content.crash):
            self._journal.forget(known)

    def _counts(self, known: Crashes) -> bool:
        """Not what is to come: the journal is anybody's who can write the volume."""
        return 0 <= self._journal.now() - known.last < REMEMBERED_SECONDS


def _minutes(seconds: float) -> str:
    hours, minutes = divmod(int(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
