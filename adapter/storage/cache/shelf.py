"""
The table of all artifacts on the volume: who uses which, what they take, who goes first. Pure, under one lock.

Decisions only: whoever asks does the work on disk. An artifact with users is never given up. One that turned out to be
damaged is not found any more, and counts for as long as models that were placed from it are there.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count

from adapter.storage.cache.inodes import Inodes


@dataclass(eq=False, kw_only=True)
class Entry:
    """One artifact."""

    name: str
    """Of its folder."""
    key: str | None
    """None: cannot be told from another version, or is not whole yet, so nobody finds it."""
    origin: str
    inodes: Mapping[int, int]
    """Inode → bytes of every file. Artifacts share the files that they have in common."""
    record_bytes: int = 0
    """Of what is its own in any case."""
    readers: dict[str, float] = field(default_factory=dict)
    """Who may have it → when that was confirmed last, in seconds since the boot."""
    users: int = 0
    last_use: int = 0

    @property
    def size_bytes(self) -> int:
        """Of its files."""
        return sum(self.inodes.values())


class Shelf:
    """All artifacts of this process. May be asked from any thread. No answer takes longer because of other models' artifacts."""

    def __init__(self, *, keeps_idle: bool) -> None:
        """`keeps_idle`: whether an artifact without users stays."""
        self.keeps_idle = keeps_idle
        self._lock = threading.Lock()
        self._clock = count(1)
        self._entries: dict[str, Entry] = {}
        """By name."""
        self._of_origin: dict[str, dict[str, Entry]] = {}
        """By origin and name, those that can be found."""
        self._of_reader: dict[str, dict[str, Entry]] = {}
        """By reader and name."""
        self._idle: dict[str, Entry] = {}
        """By name, the least recently used one first."""
        self._dropped: list[Entry] = []
        """Each has users."""
        self._inodes = Inodes()

    def add(self, entry: Entry, users: int) -> None:
        """From now on it counts, and can be found if it has a key."""
        with self._lock:
            if entry.name in self._entries:
                self._take_off(entry.name)
            entry.users = users
            entry.last_use = next(self._clock)
            self._entries[entry.name] = entry
            if entry.key is not None:
                self._of_origin.setdefault(entry.origin, {})[entry.name] = entry
            for reader in entry.readers:
                self._of_reader.setdefault(reader, {})[entry.name] = entry
            self._count(entry)

    def settle(self, entry: Entry, users: int) -> bool:
        """One that was added with one user has so many. Returns whether nobody shall find it any more, as `let_go`."""
        with self._lock:
            entry.users += users - 1
            if self._entries.get(entry.name) is not entry:
                return False
            return self._used(entry)

    def has(self, name: str) -> bool:
        """Whether there is an artifact in the folder of this name."""
        with self._lock:
            return name in self._entries

    def hold(self, key: str) -> Entry | None:
        """One more user of the artifact that has this key; None when there is none."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or entry.key is None:
                return None
            entry.users += 1
            entry.last_use = next(self._clock)
            self._count(entry)
            return entry

    def hold_entry(self, entry: Entry) -> bool:
        """One more user of this very artifact, if it is still there."""
        with self._lock:
            if self._entries.get(entry.name) is not entry:
                return False
            entry.users += 1
            self._count(entry)
            return True

    def let_go(self, name: str) -> Entry | None:
        """One user less. Returns the artifact if nobody shall find it any more: whoever asked removes its folder."""
        with self._lock:
            dropped = next((entry for entry in self._dropped if entry.name == name), None)
            if dropped is not None:  # its folder has gone before
                dropped.users -= 1
                if dropped.users <= 0:
                    self._dropped.remove(dropped)
                    self._inodes.leave(dropped)
                return None
            entry = self._entries.get(name)
            if entry is None:
                return None
            entry.users -= 1
            entry.last_use = next(self._clock)
            return entry if self._used(entry) else None

    def drop(self, entry: Entry) -> bool:
        """Nobody finds it any more. True for the first who says so: he removes its folder."""
        with self._lock:
            if self._entries.get(entry.name) is not entry:
                return False
            self._take_off(entry.name)
            if entry.users:
                self._dropped.append(entry)
                self._inodes.place(entry)
            return True

    def recorded(self, entry: Entry, record_bytes: int) -> None:
        """Its record has so many bytes now. That is no use of it."""
        with self._lock:
            is_counted = self._inodes.leave(entry)
            entry.record_bytes = record_bytes
            if is_counted:
                self._weigh(entry)

    def of_origin(self, origin: str, reader: str | None = None) -> list[Entry]:
        """Artifacts of one model, the last used one first; only those that this reader may have, if one is named."""
        with self._lock:
            found = [entry for entry in self._of_origin.get(origin, {}).values() if reader is None or reader in entry.readers]
        return sorted(found, key=lambda entry: -entry.last_use)

    def find(self, key: str) -> Entry | None:
        """The artifact that has this key."""
        with self._lock:
            entry = self._entries.get(key)
            return entry if entry is not None and entry.key is not None else None

    def last_of(self, reader: str) -> Entry | None:
        """The artifact that this reader was confirmed for last."""
        with self._lock:
            found = [entry for entry in self._of_reader.get(reader, {}).values() if entry.key]
        return max(found, key=lambda entry: entry.readers.get(reader, 0.0), default=None)

    def confirm(self, entry: Entry, reader: str, now: float, most: int) -> bool:
        """
        The reader may have the artifact, and the listing of now leads to it.

        Returns:
            Whether the record on disk must be told: without it a later process would give another one, or ask again.
        """
        with self._lock:
            others = [each.readers[reader] for each in self._of_reader.get(reader, {}).values() if each is not entry]
            is_news = reader not in entry.readers or max(others, default=-1.0) >= entry.readers[reader]
            entry.readers[reader] = now
            is_there = self._entries.get(entry.name) is entry
            if is_there:
                self._of_reader.setdefault(reader, {})[entry.name] = entry
            while len(entry.readers) > most:
                oldest = min(entry.readers, key=entry.readers.__getitem__)
                del entry.readers[oldest]
                if is_there:
                    _leave(self._of_reader, oldest, entry.name)
            return is_news

    def forget(self, reader: str) -> list[Entry]:
        """The reader may have nothing any more. Returns the artifacts whose records on disk must be told."""
        with self._lock:
            entries = self._of_reader.pop(reader, {}).values()
            for entry in entries:
                del entry.readers[reader]
            return [entry for entry in entries if entry.key]

    def readers(self, entry: Entry) -> dict[str, float]:
        """A copy of its readers."""
        with self._lock:
            return dict(entry.readers)

    def give_up(self, wanted_bytes: int) -> tuple[list[Entry], int]:
        """
        Idle artifacts that go, the least recently used ones first, and how many bytes that frees.

        A file that another artifact has too frees nothing, so one whose files are all placed from another artifact stays.
        """
        with self._lock:
            gone, before = [], self._inodes.bytes
            for entry in list(self._idle.values()):
                if before - self._inodes.bytes >= wanted_bytes:
                    break
                if entry.inodes and all(map(self._inodes.is_placed, entry.inodes)):
                    continue
                self._take_off(entry.name)
                gone.append(entry)
            return gone, before - self._inodes.bytes

    def placed_bytes(self) -> int:
        """Of artifacts that have users, each file once."""
        with self._lock:
            return self._inodes.placed_bytes

    def idle_bytes(self) -> int:
        """Of what only artifacts without users have, each file once."""
        with self._lock:
            return self._inodes.idle_bytes

    def _used(self, entry: Entry) -> bool:
        """Its users have become fewer. Returns whether it has left."""
        is_useless = not entry.users and (entry.key is None or not self.keeps_idle)
        if is_useless:
            self._take_off(entry.name)
        else:
            self._count(entry)
        return is_useless

    def _count(self, entry: Entry) -> None:
        self._idle.pop(entry.name, None)
        self._weigh(entry)
        if not entry.users:
            self._idle[entry.name] = entry

    def _weigh(self, entry: Entry) -> None:
        if entry.users:
            self._inodes.place(entry)
        else:
            self._inodes.idle(entry)

    def _take_off(self, name: str) -> None:
        entry = self._entries.pop(name)
        self._idle.pop(name, None)
        self._inodes.leave(entry)
        _leave(self._of_origin, entry.origin, name)
        for reader in entry.readers:
            _leave(self._of_reader, reader, name)


def _leave(table: dict[str, dict[str, Entry]], at: str, name: str) -> None:
    entries = table.get(at)
    if entries is not None:
        entries.pop(name, None)
        if not entries:
            del table[at]
