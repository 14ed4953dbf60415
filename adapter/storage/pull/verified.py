"""
Whether what came of an object is what its store says of it: checksums of the spans, made one when the last of them is there.

Computed while the bytes are in memory anyway. A span that breaks off and goes on is one run of bytes, so nothing is counted
twice. Objects of whom nothing is told, or nothing that can be computed, are as they came.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Sequence

from adapter.errors import SourceUnavailable
from adapter.storage.bucket import FileSink, StoredObject
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
        self._told: set[bytes] = set()
        """By all answers: a store that contradicts itself is not believed."""
        self._runs: list[tuple[int, int, bytes]] = []
        """Start, length, checksum."""

    @property
    def is_told(self) -> bool:
        """What it has to be is known."""
        return bool(self._told)

    def choose(self, told: Sequence[Checksum], length: int) -> Running | None:
        """What is computed of a run: the first that can be, the same for all runs. None: nothing."""
        is_hashed = length == self.stored.size_bytes <= MOST_HASHED_BYTES
        with self._lock:
            for each in told:
                is_possible = each.algorithm == (self._algorithm or each.algorithm) and (each.is_combined or is_hashed)
                if is_possible and (found := running(each.algorithm)) is not None:
                    self._algorithm = each.algorithm
                    return found
        return None

    def note(self, told: Sequence[Checksum]) -> None:
        """Remember what an answer tells."""
        with self._lock:
            self._told.update(each.value for each in told if each.value is not None and each.algorithm == self._algorithm)

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
            if not self._told or sum(length for _, length, _ in runs) != self.stored.size_bytes:
                return
        _, _, found = runs[0]
        for _, next_bytes, following in runs[1:]:
            found = combined(self._algorithm, found, following, next_bytes)
        if wrong := self._told - {found}:
            told, came = (base64.b64encode(each).decode() for each in (min(wrong), found))
            text = f"their {self._algorithm.upper()} is {came}, and the store tells {told}"
            text = f"the bytes of {shown(self.stored.key)} from {self._place} are not those that were stored: {text}"
            raise SourceUnavailable(text, can_pass=False)


class Run(FileSink):
    """Bytes of an object, in their order. Belongs to one thread. A subclass keeps them."""

    def __init__(self, whole: Whole, start: int, length: int) -> None:
        self._whole = whole
        self._start = start
        self._length = length
        self._came = 0
        self._running: Running | None = None

    @property
    def is_asking(self) -> bool:
        """As `FileSink`: one request for each object that comes in several runs."""
        is_first_of_many = self._start == 0 and self._length < self._whole.stored.size_bytes
        return self._running is not None and is_first_of_many and not self._whole.is_told

    def expect(self, told: Sequence[Checksum]) -> None:
        """As `FileSink`. Bytes that have passed by before cannot be verified any more."""
        if self._running is None and not self._came:
            self._running = self._whole.choose(told, self._length)
        if self._running is not None:
            self._whole.note(told)

    def __call__(self, chunk: bytes | memoryview) -> None:
        """As `FileSink`."""
        if self._running is not None:
            self._running.update(chunk)
        self.keep(chunk)
        self._came += len(chunk)

    def keep(self, chunk: bytes | memoryview) -> None:
        """Bytes that have come, behind `_came` others. Raises what `__call__` may."""
        raise NotImplementedError

    def end(self) -> None:
        """As `FileSink`. Raises SourceUnavailable, as `Whole.ran`."""
        if self._running is not None and self._came == self._length:
            self._whole.ran(self._start, self._length, self._running.digest())


class Content(Run):
    """A whole object, in memory."""

    writes = False

    def __init__(self, stored: StoredObject, place: str) -> None:
        """As `Whole`."""
        super().__init__(Whole(stored, place), 0, stored.size_bytes)
        self.content = bytearray()

    def keep(self, chunk: bytes | memoryview) -> None:
        """As `Run`."""
        self.content += chunk
