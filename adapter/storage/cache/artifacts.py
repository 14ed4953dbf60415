"""
What the table has decided, done on the volume: artifacts checked, read, given up, found again at the start.

Blocks; runs in threads.
"""

from __future__ import annotations

import os
import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import structlog

from adapter.model import Listing
from adapter.storage.bucket import StoredObject
from adapter.storage.cache import record as records
from adapter.storage.cache.identity import DIGEST
from adapter.storage.cache.record import ArtifactRecord, KeptFile, Unusable, version_of
from adapter.storage.cache.table import Entry, Table
from adapter.telemetry.metrics import CACHE_EVICTIONS
from adapter.units import show_bytes
from adapter.volume.trees import read_below
from adapter.volume.volume import Volume
from adapter.workers import Stop

_NAME = re.compile(rf"({DIGEST})\.[0-9a-f]{{16}}")
MAX_RECORDS_BYTES = 128 * 1024 * 1024
"""Of all records that are read at a start: about 290,000 files with long names. Of more, the least recently used artifacts go."""
_LOOKED_AT = 4
"""Versions of one model in which a file is looked for, the last used ones."""

_log = structlog.stdlib.get_logger(__name__)


def new_name(key: str | None) -> str:
    """Of the folder of an artifact. No two have one name, though they may have one key: a damaged one, and its successor."""
    return f"{key}.{secrets.token_hex(8)}" if key else secrets.token_hex(8)


class Artifacts:
    """All artifacts on the volume. Any thread may ask, but not the event loop's."""

    def __init__(self, volume: Volume, table: Table) -> None:
        self.volume = volume
        self.table = table

    def folder(self, entry: Entry) -> Path:
        """Of an artifact."""
        return self.volume.artifacts_dir / entry.name

    def read_all(self, stop: Stop) -> None:
        """Find what an earlier process has left; what cannot be used goes, with one line for all of a kind."""
        reasons: Counter[str] = Counter()
        usable: list[Entry] = []
        left_bytes = MAX_RECORDS_BYTES
        try:
            names = _last_used_first(self.volume.artifacts_dir)
        except OSError as error:
            _log.warning("cache.unreadable", cause=error.strerror)
            return
        for name in names:
            stop.check()
            try:
                left_bytes -= records.state_of(self.volume.artifacts_dir / name)[0]
                if left_bytes < 0:
                    raise Unusable("more records than are read at a start")
                usable.append(self._found(name, stop))
            except Unusable as unusable:
                reasons[str(unusable)] += 1
                self.volume.discard(self.volume.artifacts_dir / name)
        for entry in reversed(usable):
            self.table.add(entry, 0)
        for reason, artifacts in reasons.items():
            _log.warning("cache.dropped", reason=reason, artifacts=artifacts)
        if usable:
            _log.info("cache.found", artifacts=len(usable), size=show_bytes(self.table.idle_bytes()))

    def opened(self, entry: Entry, stop: Stop) -> ArtifactRecord | None:
        """The record of an artifact that the caller holds, after a look at each file; None: it was damaged, and is not listed any more."""
        try:
            record = records.read(self.folder(entry), str(entry.key))
            records.check(self.folder(entry), record, stop.check)
        except Unusable as unusable:
            if self.table.drop(entry):
                _log.warning("cache.dropped", reason=str(unusable), artifacts=1, key=entry.key)
            return None
        return record

    def let_go(self, entry: Entry) -> None:
        """One user of this artifact less."""
        if self.table.use(entry, -1):
            self.remove(entry)
            return
        with suppress(OSError):  # so that a later process knows what was used last
            os.utime(self.folder(entry), follow_symlinks=False)

    def remove(self, entry: Entry) -> int:
        """The folder of what was taken off the table, which counts it until then; returns how many bytes that frees. Never raises."""
        self.volume.trash.discard(self.folder(entry), is_counted_elsewhere=True)
        return self.table.gone(entry)

    def give_way(self, wanted_bytes: int) -> int:
        """Remove idle artifacts of at least these bytes, if there are; returns how many bytes went."""
        freed = artifacts = 0
        while freed < wanted_bytes and (entry := self.table.give_up()) is not None:
            freed += self.remove(entry)
            artifacts += 1
        if artifacts:
            CACHE_EVICTIONS.inc(artifacts)
            _log.info("cache.evicted", artifacts=artifacts, freed=show_bytes(freed), wanted=show_bytes(wanted_bytes))
        return freed

    def confirm(self, entries: Iterable[Entry], seconds: float) -> None:
        """Their owner has listed them then; 0: it was refused. What cannot be written down is lost with this process."""
        for entry in entries:
            entry.confirmed = seconds
            if entry.key is not None:
                try:
                    records.confirm(self.folder(entry), seconds)
                except OSError as error:
                    _log.info("cache.not_recorded", key=entry.key, cause=str(error))

    def content(self, origin: str, stored: StoredObject, stop: Stop) -> bytes | None:
        """A small file, from an artifact of this origin."""
        entries = self.table.of_origin(origin)[:_LOOKED_AT]
        return next((found for entry in entries if (found := self.read(entry, lambda record: record.find(stored), stop)) is not None), None)

    def read(self, entry: Entry, find: Callable[[ArtifactRecord], KeptFile | None], stop: Stop) -> bytes | None:
        """A small file of this artifact; None when it is not there (any more)."""
        with self._held(entry, stop) as record:
            file = find(record) if record else None
            return None if file is None else _read(self.folder(entry), file)

    def listing(self, key: str) -> Listing | None:
        """What an unpacked artifact holds, unless the store has refused its owner since."""
        entry = self.table.find(key)
        if entry is None or not entry.confirmed:
            return None
        try:
            return records.read(self.folder(entry), key).listing
        except Unusable:
            return None

    def link(self, target: Path, origin: str, missing: dict[str, StoredObject], stop: Stop) -> dict[int, int]:
        """
        Give the files that other versions of this model have a name in the target, and take them off `missing`.

        The target has their directories.

        Returns:
            Inode → bytes of them.
        """
        linked: dict[int, int] = {}
        for entry in self.table.of_origin(origin)[:_LOOKED_AT] if missing else ():
            with self._held(entry, stop) as record:
                if record is None or record.archive is not None:
                    continue
                known = {file.stored: file.path for file in record.files}
                for path, stored in list(missing.items()):
                    stop.check()
                    source = known.get(version_of(stored))
                    if source is not None and (inode := _linked(self.folder(entry) / source, target / path)):
                        linked[inode] = stored.size_bytes
                        del missing[path]
        return linked

    @contextmanager
    def _held(self, entry: Entry, stop: Stop) -> Iterator[ArtifactRecord | None]:
        """Its record, while it has one user more; None where it is not there any more."""
        if not self.table.hold(entry):
            yield None
            return
        try:
            yield self.opened(entry, stop)
        finally:
            self.let_go(entry)

    def _found(self, name: str, stop: Stop) -> Entry:
        if not self.table.keeps_idle:
            raise Unusable("nothing idle is kept")
        if not (match := _NAME.fullmatch(name)):
            raise Unusable("not of the cache")
        folder, key = self.volume.artifacts_dir / name, match[1]
        record = records.read(folder, key)
        inodes = records.check(folder, record, stop.check)
        size, confirmed = records.state_of(folder)
        return Entry(name=name, key=key, origin=record.origin, inodes=inodes, record_bytes=size, confirmed=confirmed)


def _last_used_first(folder: Path) -> list[str]:
    used: dict[str, int] = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                used[entry.name] = entry.stat(follow_symlinks=False).st_mtime_ns
    return sorted(used, key=lambda name: -used[name])


def _read(folder: Path, file: KeptFile) -> bytes | None:
    try:
        content = read_below(folder, file.path, file.size_bytes)
    except OSError:
        return None
    return content if len(content) == file.size_bytes else None


def _linked(source: Path, target: Path) -> int | None:
    """The inode; None where it cannot have one more name."""
    try:
        os.link(source, target, follow_symlinks=False)
        return target.lstat().st_ino
    except OSError as error:
        _log.debug("cache.not_linked", cause=error.strerror)
        return None
