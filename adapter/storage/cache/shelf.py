"""
The table of all artifacts on the volume: who uses which, what they take, who goes first. Pure, under one lock.

Decisions only: whoever asks does the work on disk. An artifact with users is never given up. One that turned out to be
damaged is not found any more, and counts for as long as models that were placed from it are there.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count


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
    """All artifacts of this process. May be asked from any thread."""

    def __init__(self, *, keeps_idle: bool) -> None:
        """`keeps_idle`: whether an artifact without users stays."""
        self.keeps_idle = keeps_idle
        self._lock = threading.Lock()
        self._clock = count(1)
        self._entries: dict[str, Entry] = {}
        """By name."""
        self._dropped: list[Entry] = []
        self._counted: tuple[int, int] | None = None

    def add(self, entry: Entry, users: int) -> None:
        """From now on it counts, and can be found if it has a key."""
        with self._lock:
            entry.users = users
            self._touch(entry)
            self._entries[entry.name] = entry

    def settle(self, entry: Entry, users: int) -> bool:
        """One that was added with one user has so many. Returns whether nobody shall find it any more, as `let_go`."""
        with self._lock:
            self._counted = None
            entry.users += users - 1
            if self._entries.get(entry.name) is not entry or not self._is_useless(entry):
                return False
            del self._entries[entry.name]
            return True

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
            self._touch(entry)
            return entry

    def hold_entry(self, entry: Entry) -> bool:
        """One more user of this very artifact, if it is still there."""
        with self._lock:
            if self._entries.get(entry.name) is not entry:
                return False
            entry.users += 1
            self._counted = None
            return True

    def let_go(self, name: str) -> Entry | None:
        """One user less. Returns the artifact if nobody shall find it any more: whoever asked removes its folder."""
        with self._lock:
            self._counted = None
            dropped = next((entry for entry in self._dropped if entry.name == name), None)
            if dropped is not None:  # its folder has gone before
                dropped.users -= 1
                if dropped.users <= 0:
                    self._dropped.remove(dropped)
                return None
            entry = self._entries.get(name)
            if entry is None:
                return None
            entry.users -= 1
            self._touch(entry)
            return self._entries.pop(name) if self._is_useless(entry) else None

    def drop(self, entry: Entry) -> bool:
        """Nobody finds it any more. True for the first who says so: he removes its folder."""
        with self._lock:
            if self._entries.get(entry.name) is not entry:
                return False
            self._counted = None
            del self._entries[entry.name]
            if entry.users:
                self._dropped.append(entry)
            return True

    def of_origin(self, origin: str, reader: str | None = None) -> list[Entry]:
        """Artifacts of one model, the last used one first; only those that this reader may have, if one is named."""
        with self._lock:
            found = [
                entry
                for entry in self._entries.values()
                if entry.key and entry.origin == origin and (reader is None or reader in entry.readers)
            ]
        return sorted(found, key=lambda entry: -entry.last_use)

    def find(self, key: str) -> Entry | None:
        """The artifact that has this key."""
        with self._lock:
            entry = self._entries.get(key)
            return entry if entry is not None and entry.key is not None else None

    def last_of(self, reader: str) -> Entry | None:
        """The artifact that this reader was confirmed for last."""
        with self._lock:
            found = [entry for entry in self._entries.values() if entry.key and reader in entry.readers]
        return max(found, key=lambda entry: entry.readers.get(reader, 0.0), default=None)

    def confirm(self, entry: Entry, reader: str, now: float, most: int) -> bool:
        """
        The reader may have the artifact, and the listing of now leads to it.

        Returns:
            Whether the record on disk must be told: without it a later process would give another one, or ask again.
        """
        with self._lock:
            others = [each.readers[reader] for each in self._entries.values() if each is not entry and reader in each.readers]
            is_news = reader not in entry.readers or max(others, default=-1.0) >= entry.readers[reader]
            entry.readers[reader] = now
            while len(entry.readers) > most:
                del entry.readers[min(entry.readers, key=entry.readers.__getitem__)]
            return is_news

    def forget(self, reader: str) -> list[Entry]:
        """The reader may have nothing any more. Returns the artifacts whose records on disk must be told."""
        with self._lock:
            return [entry for entry in self._entries.values() if entry.readers.pop(reader, None) is not None and entry.key]

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
            self._counted = None
            entries = (*self._entries.values(), *self._dropped)
            placed = _inodes(entry for entry in entries if entry.users)
            names = Counter(inode for entry in entries for inode in entry.inodes)
            gone, freed = [], 0
            for entry in sorted((entry for entry in self._entries.values() if not entry.users), key=lambda entry: entry.last_use):
                if freed >= wanted_bytes:
                    break
                if entry.inodes and entry.inodes.keys() <= placed.keys():
                    continue
                freed += entry.record_bytes + sum(size_bytes for inode, size_bytes in entry.inodes.items() if names[inode] == 1)
                names.subtract(entry.inodes.keys())
                gone.append(self._entries.pop(entry.name))
            return gone, freed

    def placed_bytes(self) -> int:
        """Of artifacts that have users, each file once."""
        return self._count()[0]

    def idle_bytes(self) -> int:
        """Of what only artifacts without users have, each file once."""
        return self._count()[1]

    def _count(self) -> tuple[int, int]:
        with self._lock:
            if self._counted is None:
                entries = (*self._entries.values(), *self._dropped)
                placed = _inodes(entry for entry in entries if entry.users)
                idle = _inodes(entry for entry in entries if not entry.users)
                records = [0, 0]
                for entry in entries:
                    records[not entry.users] += entry.record_bytes
                shared = idle.keys() - placed.keys()
                self._counted = records[0] + sum(placed.values()), records[1] + sum(idle[inode] for inode in shared)
            return self._counted

    def _is_useless(self, entry: Entry) -> bool:
        return not entry.users and (entry.key is None or not self.keeps_idle)

    def _touch(self, entry: Entry) -> None:
        entry.last_use = next(self._clock)
        self._counted = None


def _inodes(entries: Iterable[Entry]) -> dict[int, int]:
    found: dict[int, int] = {}
    for entry in entries:
        found.update(entry.inodes)
    return found
