"""
The table of all artifacts on the volume: who uses which, what they take, which goes first. Pure, under one lock.

An artifact is listed (it can be found), or not: it has no version, was damaged, or is to be removed. An artifact with
users is never removed. It counts until its folder is gone: with users as placed, without as idle, and from the decision
to remove it on as leaving.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count


@dataclass(eq=False, kw_only=True)
class Entry:
    """One artifact."""

    name: str
    """Of its folder; never used twice."""
    key: str | None
    """None: cannot be told from another version, or is not whole yet, so it is not listed."""
    origin: str
    inodes: Mapping[int, int]
    """Inode → bytes of every file. Artifacts share the files that they have in common."""
    record_bytes: int = 0
    confirmed: float = 0.0
    """When its owner has listed it last, in seconds since the boot; 0: the store has refused the owner since."""
    users: int = 0
    last_use: int = 0
    is_listed: bool = False
    leaving_bytes: int = 0
    """That its removal frees: none of a file that another artifact has too."""

    @property
    def size_bytes(self) -> int:
        """Of its files."""
        return sum(self.inodes.values())


class _Bytes:
    """Of some artifacts, each file once."""

    def __init__(self) -> None:
        self.total = 0
        self._files: dict[int, list[int]] = {}
        """Inode → bytes, and how many of the artifacts have it."""

    def count(self, entry: Entry, more: int) -> None:
        """This one comes (1), or goes (-1)."""
        self.total += more * entry.record_bytes
        for inode, size_bytes in entry.inodes.items():
            file = self._files.setdefault(inode, [size_bytes, 0])
            if not file[1]:
                self.total += file[0]
            file[1] += more
            if not file[1]:
                self.total -= self._files.pop(inode)[0]


class Table:
    """All artifacts of this process. May be asked from any thread. No answer takes longer because of other models' artifacts."""

    def __init__(self, *, keeps_idle: bool) -> None:
        """`keeps_idle`: whether an artifact without users stays."""
        self.keeps_idle = keeps_idle
        self._lock = threading.Lock()
        self._clock = count(1)
        self._by_name: dict[str, Entry] = {}
        self._by_key: dict[str | None, Entry] = {}
        """Those that are listed, as in the next one."""
        self._of_origin: dict[str, dict[str, Entry]] = {}
        self._idle: dict[str, Entry] = {}
        """By name, the least recently used one first."""
        self._all, self._placed = _Bytes(), _Bytes()
        self._leaving_bytes = 0

    def add(self, entry: Entry, users: int) -> None:
        """From now on it counts, and is listed if it has a key that no other one has."""
        with self._lock:
            self._by_name[entry.name] = entry
            self._all.count(entry, 1)
            if entry.key is not None and entry.key not in self._by_key:
                entry.is_listed = True
                self._by_key[entry.key] = entry
                self._of_origin.setdefault(entry.origin, {})[entry.name] = entry
            self._use(entry, users)

    def use(self, entry: Entry, more: int) -> bool:
        """A number of users more, or fewer. True: neither users nor the list have it any more, so the caller removes its folder."""
        with self._lock:
            self._use(entry, more)
            if entry.users or (entry.is_listed and self.keeps_idle):
                return False
            self._take_off(entry)
            return True

    def hold(self, entry: Entry) -> bool:
        """One more user of this very artifact, if it is still listed."""
        with self._lock:
            if entry.is_listed:
                self._use(entry, 1)
            return entry.is_listed

    def named(self, name: str) -> Entry | None:
        """The artifact in the folder of this name."""
        with self._lock:
            return self._by_name.get(name)

    def find(self, key: str) -> Entry | None:
        """The artifact that has this key."""
        with self._lock:
            return self._by_key.get(key)

    def drop(self, entry: Entry) -> bool:
        """It is not listed any more. Returns whether it was. It goes with its last user."""
        with self._lock:
            was_listed = entry.is_listed
            self._unlist(entry)
            return was_listed

    def gone(self, entry: Entry) -> None:
        """The folder of what was taken off is removed, or counted by the trash."""
        with self._lock:
            self._leaving_bytes -= entry.leaving_bytes

    def give_up(self) -> Entry | None:
        """The least recently used idle artifact, whose folder the caller removes."""
        with self._lock:
            entry = next(iter(self._idle.values()), None)
            if entry is not None:
                self._take_off(entry)
            return entry

    def of_origin(self, origin: str) -> list[Entry]:
        """Artifacts of one model that the store has not refused since, the last used one first."""
        with self._lock:
            found = [entry for entry in self._of_origin.get(origin, {}).values() if entry.confirmed]
        return sorted(found, key=lambda entry: -entry.last_use)

    def placed_bytes(self) -> int:
        """Of artifacts that have users, each file once."""
        with self._lock:
            return self._placed.total

    def idle_bytes(self) -> int:
        """Of what only artifacts without users have, each file once."""
        with self._lock:
            return self._all.total - self._placed.total

    def leaving_bytes(self) -> int:
        """Of artifacts whose folders are being removed."""
        with self._lock:
            return self._leaving_bytes

    def _use(self, entry: Entry, more: int) -> None:
        had_users = bool(entry.users)
        entry.users += more
        entry.last_use = next(self._clock)
        self._idle.pop(entry.name, None)
        if had_users != bool(entry.users):
            self._placed.count(entry, -1 if had_users else 1)
        if not entry.users and entry.is_listed:
            self._idle[entry.name] = entry

    def _take_off(self, entry: Entry) -> None:
        self._unlist(entry)
        self._idle.pop(entry.name, None)
        del self._by_name[entry.name]
        before = self._all.total
        self._all.count(entry, -1)  # now, and not when its files are gone: their inodes may be another artifact's then
        entry.leaving_bytes = before - self._all.total
        self._leaving_bytes += entry.leaving_bytes

    def _unlist(self, entry: Entry) -> None:
        if entry.is_listed:
            entry.is_listed = False
            del self._by_key[entry.key]
            entries = self._of_origin[entry.origin]
            del entries[entry.name]
            if not entries:
                del self._of_origin[entry.origin]
