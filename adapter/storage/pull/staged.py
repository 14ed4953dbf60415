"""
Whether the bytes of objects are what their store says of them: checksums of the spans, made one when the last of them is there, and
computed while the bytes are in memory anyway.

A span that breaks off and goes on is one run of bytes, so nothing is counted twice. Objects without a checksum, or with one
that cannot be computed, are not compared. Runs in threads.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Sequence

from adapter.errors import SourceUnavailable
from adapter.storage.bucket import Read, StoredObject
from adapter.storage.checksums import MOST_HASHED_BYTES, Checksum, Running, combined, running
from adapter.storage.search import shown


class Whole:
    """One object, of which any number of runs come. Used from any thread."""

    def __init__(self, stored: StoredObject, place: str) -> None:
        """`place`: where it is, for people."""
        self.stored = stored
        self._place = place
        self._lock = threading.Lock()
        self._algorithm = ""
        """That is computed; empty: not chosen yet."""
        self.told: set[bytes] = set()
        """By all answers: a store that contradicts itself is not believed."""
        self._runs: list[tuple[int, int, bytes]] = []
        """Start, length, checksum."""

    def heard(self, told: Sequence[Checksum], length: int) -> Running | None:
        """Remember what an answer tells. Returns what computes it of a run: the first that can be, the same for all runs."""
        is_hashed = length == self.stored.size_bytes <= MOST_HASHED_BYTES
        with self._lock:
            for each in told:
                is_possible = each.algorithm == (self._algorithm or each.algorithm) and (each.is_combined or is_hashed)
                if is_possible and (found := running(each.algorithm)) is not None:
                    self._algorithm = each.algorithm
                    self.told |= {other.value for other in told if other.value is not None and other.algorithm == each.algorithm}
                    return found
        return None

    def ran(self, start: int, length: int, checksum: bytes) -> None:
        """
        A run is there. Of each byte this is told once.

        Raises:
            SourceUnavailable: the last run, and the bytes are not what the store says of them. They may have been damaged
                on their way, so another load may help; the bytes that have come do not get better.
        """
        with self._lock:
            self._runs.append((start, length, checksum))
            runs = sorted(self._runs)
            if not self.told or sum(length for _, length, _ in runs) != self.stored.size_bytes:
                return
        _, _, found = runs[0]
        for _, next_bytes, following in runs[1:]:
            found = combined(self._algorithm, found, following, next_bytes)
        if wrong := self.told - {found}:
            told, came = (base64.b64encode(each).decode() for each in (min(wrong), found))
            text = f"their {self._algorithm.upper()} is {came}, and the store tells {told}"
            text = f"the bytes of {shown(self.stored.key)} from {self._place} are not those that were stored: {text}"
            raise SourceUnavailable(text, can_pass=False)


class Run(Read):
    """Bytes of an object, compared with what its store says of it. Belongs to one thread at a time."""

    def __init__(self, whole: Whole, start: int, length: int) -> None:
        super().__init__(whole.stored, start, length)
        self._whole = whole
        self._running: Running | None = None

    def expect(self, told: Sequence[Checksum]) -> bool:
        """As `Read`: one request for each object that comes in several runs. What has come before cannot be verified any more."""
        if self._running is not None or not self.taken:
            found = self._whole.heard(told, self.length)
            self._running = self._running or found
        is_first_of_many = self.start == 0 and self.length < self.wanted.size_bytes
        return self._running is not None and is_first_of_many and not self._whole.told

    def give(self, chunk: bytes | memoryview) -> None:
        """As `Read`."""
        if self._running is not None:
            self._running.update(chunk)
        super().give(chunk)

    def end(self) -> None:
        """As `Read`. Raises SourceUnavailable, as `Whole.ran`."""
        if self._running is not None:
            self._whole.ran(self.start, self.length, self._running.digest())
        super().end()
