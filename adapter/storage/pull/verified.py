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
        self._chosen: Checksum | None = None
        """Of the algorithm that is computed."""
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
        is_one = length == self.stored.size_bytes
        with self._lock:
            for each in told:
                if self._chosen is not None and each.algorithm != self._chosen.algorithm:
                    continue
                if not each.is_combined and not (is_one and length <= MOST_HASHED_BYTES):
                    continue
                if (found := running(each.algorithm)) is not None:
                    self._chosen = each
                    return found
        return None

    def note(self, told: Sequence[Checksum]) -> None:
        """Remember what an answer tells."""
        with self._lock:
            self._told.update(
                each.value for each in told if each.value is not None and self._chosen and each.algorithm == self._chosen.algorithm
            )

    def ran(self, start: int, length: int, checksum: bytes) -> None:
        """
        A run is there. Of each byte this is told once.

        Raises:
            SourceUnavailable: the last run, and the bytes are not what the store says of them. They may have been damaged
                on their way, so another load may help; the bytes that have come do not get better.
        """
        with self._lock:
            self._runs.append((start, length, checksum))
            if self._chosen is None or not self._told or sum(length for _, length, _ in self._runs) != self.stored.size_bytes:
                return
            runs = sorted(self._runs)
        _, _, found = runs[0]
        for _, next_bytes, following in runs[1:]:
            found = combined(self._chosen.algorithm, found, following, next_bytes)
        if wrong := self._told - {found}:
            text = f"their {self._chosen.name} is {_text(found)}, and the store tells {_text(min(wrong))}"
            text = f"the bytes of {shown(self.stored.key)} from {self._place} are not those that were stored: {text}"
            raise SourceUnavailable(text, can_pass=False)


class Run:
    """Bytes of an object, in their order. Belongs to one thread."""

    def __init__(self, whole: Whole, start: int, length: int) -> None:
        self._whole = whole
        self._start = start
        self._length = length
        self._came = 0
        self._running: Running | None = None

    @property
    def is_computed(self) -> bool:
        """Bytes have to pass through `add`."""
        return self._running is not None

    @property
    def is_asking(self) -> bool:
        """What the checksum has to be is worth a request: one for each object that comes in several runs."""
        is_first_of_many = self._start == 0 and self._length < self._whole.stored.size_bytes
        return self.is_computed and is_first_of_many and not self._whole.is_told

    def expect(self, told: Sequence[Checksum]) -> None:
        """What an answer tells. Bytes that have passed by before cannot be verified any more."""
        if self._running is None and not self._came:
            self._running = self._whole.choose(told, self._length)
        if self._running is not None:
            self._whole.note(told)

    def add(self, chunk: bytes | memoryview) -> None:
        """The next bytes."""
        self._came += len(chunk)
        if self._running is not None:
            self._running.add(chunk)

    def end(self) -> None:
        """All are there. Raises SourceUnavailable, as `Whole.ran`."""
        if self._running is not None and self._came == self._length:
            self._whole.ran(self._start, self._length, self._running.value)


class Content(FileSink):
    """The first bytes of an object, in memory, verified when they are all of it."""

    writes = False

    def __init__(self, stored: StoredObject, length: int, place: str) -> None:
        """As `Whole`."""
        self.content = bytearray()
        self._run = Run(Whole(stored, place), 0, length)
        self._is_whole = length == stored.size_bytes

    def __call__(self, chunk: bytes | memoryview) -> None:
        """As `FileSink`."""
        self._run.add(chunk)
        self.content += chunk

    def expect(self, told: Sequence[Checksum]) -> None:
        """As `FileSink`."""
        if self._is_whole:
            self._run.expect(told)

    def end(self) -> None:
        """As `FileSink`. Raises SourceUnavailable, as `Whole.ran`."""
        self._run.end()


def _text(checksum: bytes) -> str:
    """As stores write them."""
    return base64.b64encode(checksum).decode()
