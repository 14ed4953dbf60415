"""
A bucket in memory that keeps the contract of `Bucket`, and fails or hangs when told.

Faults are queued with `fail` and `hang`; each is used once, by the next call of its kind.
"""

from __future__ import annotations

import functools
import hashlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from adapter.errors import SourceChanged, SourceNotFound, SourceUnavailable
from adapter.storage.bucket import PAGE_OBJECTS, Page, Read, StoredObject
from adapter.storage.secret.merging import StorageConfig
from adapter.workers import Stop, Workers


@functools.cache
def _threads() -> Workers:
    """Where calls run, as an engine's threads are others than the caller's."""
    return Workers("memory", 64)


Fault = BaseException | None
"""None: hang until stopped."""


class MemoryBucket:
    """One bucket. Its methods may be called from any thread."""

    kind = "memory"

    def __init__(self, objects: Mapping[str, bytes] | None = None, *, bucket: str = "b", page_objects: int = PAGE_OBJECTS) -> None:
        self.place = f"memory://{bucket}"
        self.endpoint = "memory"
        self.words = f"bucket {bucket!r} in memory"
        self.calls: list[str] = []
        """`list prefix` and `read key start+length`, in order."""
        self.hanging = threading.Event()
        """Set once a call hangs."""
        self._is_there = True
        self._page_objects = page_objects
        self._objects = dict(objects or {})
        self._faults: dict[str, list[Fault]] = {"list": [], "read": []}
        self._lock = threading.Lock()

    def put(self, key: str, content: bytes) -> None:
        """Store an object, or replace it."""
        self._objects[key] = content

    def remove(self, key: str) -> None:
        """Take an object away."""
        del self._objects[key]

    def remove_bucket(self) -> None:
        """Take everything away."""
        self._is_there = False

    def fail(self, call: str, error: BaseException, *, times: int = 1) -> None:
        """The next calls (`list` or `read`) fail."""
        self._faults[call] += [error] * times

    def hang(self, call: str) -> None:
        """The next call hangs until it is stopped."""
        self._faults[call].append(None)

    def etag(self, key: str) -> str:
        """Of the object as it is now."""
        return hashlib.sha256(self._objects[key]).hexdigest()[:16]

    def stored(self, key: str) -> StoredObject:
        """The object as a listing would show it now."""
        return StoredObject(key, len(self._objects[key]), self.etag(key))

    async def list_page(self, prefix: str, *, token: str | None = None, limit: int = PAGE_OBJECTS, by_folder: bool = False) -> Page:
        """As the Protocol says."""
        with self._called("list", f"list {prefix}") as faults:
            return await _threads().run(lambda stop: self._page(faults, prefix, stop, token, limit, by_folder))

    async def read(self, reads: Sequence[Read]) -> None:
        """As the Protocol says."""
        for read in reads:
            if not read.is_done:
                start, length = read.start + read.taken, read.length - read.taken
                with self._called("read", f"read {read.wanted.key} {start}+{length}") as faults:
                    await _threads().run(partial(self._read, faults, read))

    def _page(self, faults: list[Fault], prefix: str, stop: Stop, token: str | None, limit: int, by_folder: bool) -> Page:
        self._play(faults, stop)
        if not self._is_there:
            raise SourceNotFound(f"there is no {self.place}")
        names = dict.fromkeys(_shown(key, prefix, by_folder) for key in sorted(self._objects) if key.startswith(prefix))
        rest = [name for name in names if token is None or name > token]
        shown = rest[: min(limit, self._page_objects)]
        return Page(
            objects=tuple(self.stored(name) for name in shown if name in self._objects),
            folders=tuple(name for name in shown if name not in self._objects),
            next_token=shown[-1] if len(shown) < len(rest) else None,
        )

    def _read(self, faults: list[Fault], read: Read, stop: Stop) -> None:
        self._play(faults, stop)
        wanted, start, length = read.wanted, read.start + read.taken, read.length - read.taken
        if not length:
            return
        if wanted.key not in self._objects:
            raise SourceChanged(f"{wanted.key!r} has gone after the listing")
        if self.etag(wanted.key) != wanted.etag:
            raise SourceChanged(f"{wanted.key!r} was replaced after the listing")
        content = self._objects[wanted.key][start : start + length]
        read.give(content)
        if len(content) < length:
            raise SourceUnavailable(f"the body of {wanted.key!r} ended early")
        read.end()

    @contextmanager
    def _called(self, call: str, trace: str) -> Iterator[list[Fault]]:
        with self._lock:
            self.calls.append(trace)
            faults, self._faults[call] = self._faults[call][:1], self._faults[call][1:]
        yield faults

    def _play(self, faults: list[Fault], stop: Stop) -> None:
        stop.check()
        for fault in faults:
            if fault is not None:
                raise fault
            woken = threading.Event()
            with stop.waking(woken.set):
                self.hanging.set()
                woken.wait()
            stop.check()


def _shown(key: str, prefix: str, by_folder: bool) -> str:
    """The key, or its first folder below the prefix."""
    end = key.find("/", len(prefix))
    return key[: end + 1] if by_folder and end >= 0 else key


@dataclass
class MemoryClients:
    """Every config leads to the same bucket in memory."""

    only: MemoryBucket

    async def bucket(self, config: StorageConfig) -> MemoryBucket:
        """The one."""
        return self.only
