"""
All artifacts on the volume: their users, their bytes, the order of removal; found, checked, read, removed.

An artifact is listed (it can be found), or not: it is being made, has no version, was damaged, or is to be removed. An
artifact with users is never removed; one that is not listed goes with its last user. It counts until its folder is
gone: with users as placed, without as idle, and from the decision to remove it on as trash.

Any thread may ask. Where nothing else is said the disk is asked, too: then in a thread.
"""

from __future__ import annotations

import os
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import structlog

from adapter.model import Artifact, Listing
from adapter.storage.bucket import StoredObject
from adapter.storage.cache import record as records
from adapter.storage.cache.record import FILES, ArtifactRecord, Unusable
from adapter.telemetry.metrics import CACHE_EVICTIONS
from adapter.units import show_bytes
from adapter.volume.boot import boot_seconds
from adapter.volume.trees import read_below
from adapter.volume.volume import Volume
from adapter.workers import Stop

MAX_RECORDS_BYTES = 128 * 1024 * 1024
"""Of all records that are read at a start: about 290,000 files with long names. Of more, the least recently used artifacts go."""
LOOKED_AT = 4
"""Versions of one model in which a file is looked for, the last used ones."""

Inodes = Mapping[int, int]
"""Inode of a file → its bytes."""
_log = structlog.stdlib.get_logger(__name__)


@dataclass(eq=False)
class Entry:
    """One artifact, from its first directory on. Only `Artifacts` changes it."""

    origin: str
    users: int = 0
    last_use: int = 0
    folder: Path = Path()
    """No two artifacts have had the same."""
    key: str | None = None
    """None: it cannot be told from another version, or is not whole yet, so it is not listed."""
    inodes: Inodes = field(default_factory=dict)
    """Of every file, the record too. Artifacts share the files that they have in common."""
    confirmed: float = 0.0
    """When its owner has listed it last, in seconds since the boot; 0: the store has refused the owner since."""

    @property
    def artifact(self) -> Artifact:
        """What callers of the cache have of it."""
        return Artifact(root=self.folder / FILES, is_ours=True, key=self.key)


class _Bytes:
    """Of some artifacts, each file once."""

    def __init__(self) -> None:
        self.total = 0
        self._names: Counter[tuple[int, int]] = Counter()
        """Inode and bytes of a file → how many of the artifacts have it."""

    def count(self, entry: Entry, more: int) -> None:
        """This one comes (1), or goes (-1)."""
        for file in entry.inodes.items():
            self._names[file] += more
            if self._names[file] == max(more, 0):  # its first name has come, or its last one has gone
                self.total += more * file[1]
            if not self._names[file]:
                del self._names[file]


class Artifacts:
    """No answer takes longer because of other models' artifacts, except at the start and while idle ones are deleted."""

    def __init__(self, volume: Volume, *, keeps_idle: bool) -> None:
        """`keeps_idle`: whether an artifact without users stays."""
        self.volume = volume
        self._keeps_idle = keeps_idle
        self._lock = threading.RLock()
        self._clock = count(1)
        self._by_folder: dict[Path, Entry] = {}
        """All."""
        self._by_key: dict[str | None, Entry] = {}
        """Those that are listed, as in the next one."""
        self._of_origin: defaultdict[str, list[Entry]] = defaultdict(list)
        self._all, self._placed = _Bytes(), _Bytes()
        self._leaving_bytes = 0

    def find(self, key: str) -> Entry | None:
        """The artifact that has this key."""
        return self._by_key.get(key)

    def of_origin(self, origin: str) -> list[Entry]:
        """Artifacts of one model that the store has not refused since, the last used one first."""
        listed = tuple(self._of_origin.get(origin, ()))
        return sorted((entry for entry in listed if entry.confirmed), key=lambda entry: -entry.last_use)

    def held_bytes(self, kind: str) -> int:
        """Of all that are `placed`, `idle` or `trash`; each file once."""
        with self._lock:
            idle_bytes = self._all.total - self._placed.total
            return {"placed": self._placed.total, "idle": idle_bytes, "trash": self._leaving_bytes}[kind]

    def put(self, entry: Entry, folder: Path, inodes: Inodes, key: str | None = None, confirmed: float = 0.0) -> None:
        """The artifact is this from now on, and counts so; it is listed if it has a key that no other one has."""
        with self._lock:
            self._count(entry, -1)
            self._by_folder.pop(entry.folder, None)
            entry.folder, entry.inodes, entry.key, entry.confirmed = folder, inodes, key, confirmed
            self._by_folder[folder] = entry
            self._count(entry, 1)
            if key is not None and self._by_key.setdefault(key, entry) is entry:
                self._of_origin[entry.origin].append(entry)

    def use(self, entry: Entry, more: int) -> None:
        """A number of users more, or fewer."""
        with self._lock:
            if not entry.users:
                self._placed.count(entry, 1)
            entry.users += more
            if not entry.users:
                self._placed.count(entry, -1)
            entry.last_use = next(self._clock)

    def hold(self, entry: Entry) -> bool:
        """One more user of this very artifact, if it is still listed."""
        with self._lock:
            if is_listed := self._is_listed(entry):
                self.use(entry, 1)
            return is_listed

    def let_go(self, folder: Path) -> None:
        """One user less of the artifact there, if there is one. Never raises."""
        with self._lock:
            entry = self._by_folder.get(folder)
            if entry is None:
                return
            self.use(entry, -1)
            is_kept = self._keeps_idle and self._is_listed(entry)
        if not is_kept:
            self._removed(entry)
            return
        with suppress(OSError):  # so that a later process knows what was used last
            os.utime(folder, follow_symlinks=False)

    def give_way(self, wanted_bytes: int) -> int:
        """Remove idle artifacts of at least these bytes, if there are; returns how many bytes went."""
        with self._lock:
            idle = sorted((each for each in self._by_key.values() if not each.users), key=lambda each: each.last_use)
        freed = artifacts = 0
        for entry in idle:
            if freed >= wanted_bytes:
                break
            freed += self._removed(entry)
            artifacts += 1
        if artifacts:
            CACHE_EVICTIONS.inc(artifacts)
            _log.info("cache.evicted", artifacts=artifacts, freed=show_bytes(freed), wanted=show_bytes(wanted_bytes))
        return freed

    def read_all(self, stop: Stop) -> None:
        """Find what an earlier process has left; what cannot be used goes, with one line for all of a kind."""
        reasons: Counter[str] = Counter()
        left_bytes = MAX_RECORDS_BYTES
        try:
            folders = sorted(self.volume.artifacts_dir.iterdir(), key=lambda folder: -folder.lstat().st_mtime_ns)
        except OSError as error:
            _log.warning("cache.unreadable", cause=error.strerror)
            return
        for number, folder in enumerate(folders):
            stop.check()
            try:
                state = os.lstat(folder / records.NAME)
                left_bytes -= state.st_size
                if not self._keeps_idle:
                    raise Unusable("nothing idle is kept")
                if left_bytes < 0:
                    raise Unusable("more records than are read at a start")
                record, inodes = records.read(folder)
            except (Unusable, OSError) as error:
                reasons[str(error) if isinstance(error, Unusable) else "no record"] += 1
                self.volume.discard(folder)
            else:
                inodes[state.st_ino] = state.st_size
                self.put(Entry(record.origin, last_use=-number), folder, inodes, record.key, state.st_mtime)
        for reason, artifacts in reasons.items():
            _log.warning("cache.dropped", reason=reason, artifacts=artifacts)
        if found := len(folders) - reasons.total():
            _log.info("cache.found", artifacts=found, size=show_bytes(self.held_bytes("idle")))

    def opened(self, entry: Entry, *, confirms: bool) -> ArtifactRecord | None:
        """
        The record of an artifact that is held, after a look at each file; None: damaged, and not listed any more.

        `confirms`: its owner has listed it just now.
        """
        try:
            record, _ = records.read(entry.folder)
        except Unusable as unusable:
            with self._lock:
                self._unlist(entry)
            _log.warning("cache.dropped", reason=str(unusable), artifacts=1, key=entry.key)
            return None
        if confirms:
            self.confirm([entry], boot_seconds())
        return record

    def confirm(self, entries: Iterable[Entry], seconds: float) -> None:
        """Their owner has listed them then; 0: it was refused. What cannot be noted is lost with this process."""
        for entry in entries:
            entry.confirmed = seconds
            try:
                records.confirm(entry.folder, seconds)
            except OSError as error:
                _log.info("cache.not_recorded", key=entry.key, cause=str(error))

    def listing(self, key: str) -> Listing | None:
        """What an unpacked artifact holds, unless the store has refused its owner since."""
        entry = self.find(key)
        if entry is not None and entry.confirmed:
            with suppress(Unusable):
                return records.read(entry.folder)[0].listing
        return None

    def content(self, origin: str, stored: StoredObject) -> bytes | None:
        """A small file, of the first version of this model that is whole and has it."""
        for folder, known in self._versions(origin):
            with suppress(OSError, KeyError):
                return read_below(folder, known[_version(stored)], stored.size_bytes)
        return None

    def link(self, target: Path, origin: str, missing: dict[str, StoredObject], stop: Stop) -> dict[int, int]:
        """
        Give the files that other versions of this model have a name in the target, and take them off `missing`.

        The target has their directories.

        Returns:
            Inode → bytes of them.
        """
        linked: dict[int, int] = {}
        for folder, known in self._versions(origin):
            for path in [path for path, stored in missing.items() if _version(stored) in known]:
                stop.check()
                with suppress(OSError):  # it cannot have one more name
                    os.link(folder / known[_version(missing[path])], target / path, follow_symlinks=False)
                    linked[os.lstat(target / path).st_ino] = missing.pop(path).size_bytes
        return linked

    def _versions(self, origin: str) -> Iterator[tuple[Path, dict[tuple[str, str, int], str]]]:
        """Of the last used artifacts of this model that are whole: the folder, and the path of each object in it."""
        for entry in self.of_origin(origin)[:LOOKED_AT]:
            with suppress(Unusable):
                record, _ = records.read(entry.folder)
                yield entry.folder, {(file.key, file.version, file.size_bytes): file.path for file in record.files}

    def _is_listed(self, entry: Entry) -> bool:
        return self._by_key.get(entry.key) is entry

    def _count(self, entry: Entry, more: int) -> None:
        self._all.count(entry, more)
        if entry.users:
            self._placed.count(entry, more)

    def _removed(self, entry: Entry) -> int:
        """The bytes that only this artifact had, which is gone now. It stays if it has got a user."""
        with self._lock:
            if entry.users or self._by_folder.pop(entry.folder, None) is None:
                return 0
            self._unlist(entry)
            before = self._all.total
            self._count(entry, -1)  # now, and not when its files are gone: their inodes may be another artifact's then
            freed = before - self._all.total
            self._leaving_bytes += freed
        self.volume.discard(entry.folder)
        with self._lock:
            self._leaving_bytes -= freed
        return freed

    def _unlist(self, entry: Entry) -> None:
        if self._is_listed(entry):
            del self._by_key[entry.key]
            self._of_origin[entry.origin].remove(entry)
            if not self._of_origin[entry.origin]:
                del self._of_origin[entry.origin]


def _version(stored: StoredObject) -> tuple[str, str, int]:
    return stored.key, stored.etag, stored.size_bytes
