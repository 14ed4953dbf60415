"""
How many bytes of ours the volume holds, how many it may hold, and what is deleted when more are needed.

All that is ours counts, a file with several names once: what is placed, idle artifacts, staging, trash. A writer
reserves first, and two that fit alone but not together are not both told that they fit. Idle artifacts are
deleted before anything is refused, also in the middle of a write. Asked from any thread; blocks while files are deleted.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

from adapter.errors import DiskFull
from adapter.telemetry.metrics import VOLUME_BUDGET_BYTES, VOLUME_BYTES
from adapter.units import show_bytes
from adapter.volume.volume import FULL

T = TypeVar("T")
SPARE_PART = 5
"""This part of the file system stays free of idle artifacts, where no budget was set."""


class Space:
    """The budget of the volume."""

    def __init__(self, folder: Path, max_bytes: int, *, refuses: bool) -> None:
        """
        Args:
            folder: on the volume.
            max_bytes: that may be held in all; 0 keeps nothing idle, and bounds nothing.
            refuses: whether what cannot fit is refused, or only makes idle artifacts go.
        """
        self.max_bytes = max_bytes
        self.refuses = refuses
        self.give_way: Callable[[int], int] = lambda _: 0
        """Removes idle artifacts of at least these bytes, if there are; returns how many bytes went. The cache sets it."""
        self.folder = folder
        self._reservations: set[Reservation] = set()
        self._counters: dict[str, list[Callable[[], int]]] = {
            "staging": [lambda: sum(reserved.size_bytes for reserved in self._reservations.copy())],
            "placed": [], "idle": [], "trash": [],
        }  # fmt: skip
        """Of bytes, by kind. Staging is what is reserved: written, or about to be."""
        self.deciding = threading.Lock()
        """Held while bytes go for whom some are missing, and from the question whether something fits until it is reserved."""

    def counted_by(self, kind: str, counter: Callable[[], int]) -> None:
        """One more counter of bytes of this kind. It is asked from any thread, and must not reserve."""
        self._counters[kind].append(counter)

    def show_metrics(self) -> None:
        """Tell the metrics, which ask whenever they are read."""
        VOLUME_BUDGET_BYTES.set(self.max_bytes)
        for kind in self._counters:
            VOLUME_BYTES.labels(kind).set_function(partial(self.counted_bytes, kind))

    def held_bytes(self) -> int:
        """All bytes of ours."""
        return sum(map(self.counted_bytes, self._counters))

    def counted_bytes(self, kind: str) -> int:
        """Bytes of this kind."""
        return sum(counter() for counter in self._counters[kind])

    @contextmanager
    def reservation(self) -> Iterator[Reservation]:
        """While inside, what was reserved counts as staging. Hand what was written over to its next counter before leaving."""
        reserved = Reservation(self)
        self._reservations.add(reserved)
        try:
            yield reserved
        finally:
            self._reservations.remove(reserved)

    def gave_way(self, missing_bytes: int, least_bytes: int = 0) -> bool:
        """Whether idle artifacts have gone; none go if fewer than the least are idle."""
        return self.counted_bytes("idle") >= least_bytes and self.give_way(max(missing_bytes, 1)) > 0

    def excess_bytes(self, more_bytes: int) -> int:
        """
        How many bytes too many the volume would hold. Where no budget was set, only idle artifacts can be too many, and all files of
        the volume count, those of others too.

        Source: Kubernetes evicts pods of a node whose file system has less than 10 % (of images: 15 %) free.
        """
        excess = self.held_bytes() + more_bytes - self.max_bytes
        if self.refuses:
            return excess
        if not self.counted_bytes("idle"):
            return 0
        state = os.statvfs(self.folder)
        return max(excess, more_bytes + state.f_blocks * state.f_frsize // SPARE_PART - self.free_bytes())

    def refusal(self, more_bytes: int) -> str:
        """In words; without what is idle: that would be deleted."""
        placed, pulls, trash = (show_bytes(self.counted_bytes(kind)) for kind in ("placed", "staging", "trash"))
        held = f"placed models hold {placed}, running pulls {pulls} and files that are not deleted yet {trash}"
        needed, allowed = show_bytes(more_bytes), show_bytes(self.max_bytes)
        return f"CACHE_MAX_BYTES is reached: the files need {needed}, and of the {allowed} that it allows {held}"

    def free_bytes(self) -> int:
        """Of the file system, without what is reserved and has no place yet."""
        state = os.statvfs(self.folder)
        promised = sum(max(reserved.size_bytes - reserved.written_bytes, 0) for reserved in self._reservations.copy())
        return state.f_bavail * state.f_frsize - promised


class Reservation:
    """Bytes that are about to be written, or lie in staging. Asked from any thread."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._lock = threading.Lock()
        self.size_bytes = 0
        self.written_bytes = 0

    def grow(self, more_bytes: int) -> None:
        """
        Reserve more.

        Raises:
            DiskFull: it does not fit, though all that is idle has given way; with the arithmetic.
            OSError: the volume cannot be asked; see `Volume.writing`.
        """
        space = self._space
        with space.deciding:
            while space.max_bytes and more_bytes and (missing := space.excess_bytes(more_bytes)) > 0:
                if not space.gave_way(missing, least_bytes=missing if space.refuses else 0):
                    if space.refuses:
                        raise DiskFull(space.refusal(more_bytes))
                    break
            while (free := space.free_bytes()) < more_bytes:
                if not space.gave_way(more_bytes - free, least_bytes=more_bytes - free):
                    raise DiskFull(f"the volume has no room: the files need {show_bytes(more_bytes)}, free are {show_bytes(max(free, 0))}")
            self.change(more_bytes)

    def change(self, size_bytes: int) -> None:
        """Count more or less without asking: a file was deleted, or turned out smaller."""
        with self._lock:
            self.size_bytes += size_bytes

    def wrote(self, size_bytes: int) -> None:
        """These of the reserved bytes have their place on the volume."""
        with self._lock:
            self.written_bytes += size_bytes

    def insist(self, action: Callable[[], T]) -> T:
        """
        Do something that writes; where the volume is full, idle artifacts are deleted, and it is done again.

        Raises:
            OSError: nothing that is idle is left; see `Volume.writing`.
        """
        try:
            return action()
        except OSError as error:
            if error.errno not in FULL:
                raise
        with self._space.deciding:
            while True:  # first again: another thread may have met the full volume, too
                try:
                    return action()
                except OSError as error:
                    if error.errno not in FULL or not self._space.gave_way(self.size_bytes - self.written_bytes):
                        raise

    def write(self, file: int, content: bytes | memoryview, offset: int) -> None:
        """Write all of it at this place of an open file, as `insist` and `wrote`. Raises OSError."""
        view = memoryview(content)
        while view:
            written = self.insist(partial(os.pwrite, file, view, offset))
            self.wrote(written)
            offset += written
            view = view[written:]
