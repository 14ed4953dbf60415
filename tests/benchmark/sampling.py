"""
Where the CPU of a process goes, by sampling: every few milliseconds each thread's CPU since the last look is put down to what it does.

Reads clocks of threads, so a thread that waits counts nothing, and one in a system call or a C library counts for its caller.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

PERIOD_SECONDS = 0.003
_DEPTH = 40
TOP = str(Path(__file__).resolve().parents[2]) + "/"


class Sampled:
    """CPU seconds by function."""

    def __init__(self) -> None:
        self.leaves: Counter[str] = Counter()
        """By the innermost function."""
        self.own: Counter[str] = Counter()
        """By the innermost function of the adapter."""

    def shares(self, count: int) -> dict[str, list[tuple[str, float]]]:
        """The largest, as parts of all that was seen."""
        total = sum(self.leaves.values()) or 1.0
        return {
            name: [(where, seconds / total) for where, seconds in found.most_common(count)]
            for name, found in (("innermost", self.leaves), ("of the adapter", self.own))
        }

    def look(self, clocks: dict[int, float], own_thread: int | None) -> None:
        """Once over all threads."""
        for thread, frame in sys._current_frames().items():
            try:
                now = time.clock_gettime(time.pthread_getcpuclockid(thread))
            except OSError:  # it has just ended
                continue
            used = now - clocks.get(thread, now)
            clocks[thread] = now
            if thread == own_thread or used <= 0:
                continue
            self.leaves[_words(frame)] += used  # type: ignore[assignment] # seconds
            self.own[_ours(frame)] += used  # type: ignore[assignment] # seconds


@contextmanager
def sampled() -> Iterator[Sampled]:
    """While inside."""
    found, over, clocks = Sampled(), threading.Event(), dict[int, float]()

    def watch() -> None:
        while not over.wait(PERIOD_SECONDS):
            found.look(clocks, threading.get_ident())

    thread = threading.Thread(target=watch, name="sampling", daemon=True)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


def shown(path: str, function: str) -> str:
    """A function by its file: below the repository, or in a library."""
    if "/site-packages/" in path:
        path = path.rpartition("/site-packages/")[2]
    elif path.startswith(TOP):
        path = path.removeprefix(TOP)
    else:
        path = "/".join(path.rsplit("/", 2)[-2:])
    return f"{path}:{function}"


def _words(frame: FrameType) -> str:
    return shown(frame.f_code.co_filename, frame.f_code.co_name)


def _ours(frame: FrameType) -> str:
    each: FrameType | None = frame
    for _ in range(_DEPTH):
        if each is None:
            break
        if each.f_code.co_filename.startswith(f"{TOP}adapter/"):
            return _words(each)
        each = each.f_back
    return "outside of the adapter (gRPC, the loop)"
