"""
What the shelf has decided, done on the volume: artifacts checked, read, given up, found again at the start.

Blocks; runs in threads.
"""

from __future__ import annotations

import os
import re
import secrets
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import structlog

from adapter.model import Listing
from adapter.storage.bucket import StoredObject
from adapter.storage.cache import meta as records
from adapter.storage.cache.identity import FILES, SCHEMA
from adapter.storage.cache.meta import KeptFile, Meta, Unusable, version_of
from adapter.storage.cache.shelf import Entry, Shelf
from adapter.telemetry.metrics import CACHE_EVICTIONS
from adapter.trees import read_below
from adapter.units import show_bytes
from adapter.volume import Volume, make_plain_directory
from adapter.workers import Stop

_KEY = re.compile(r"[0-9a-f]{64}")
MAX_RECORDS_BYTES = 128 * 1024 * 1024
"""
Of all records that are read at a start: about 290,000 files with long names, which take 14 s and 100 MiB of memory. Where
there are more, the least recently used artifacts go.
"""
_LOOKED_AT = 4
"""Versions of one model in which a file is looked for, the last used ones."""

_log = structlog.stdlib.get_logger(__name__)


class Keeping:
    """All artifacts on the volume. Any thread may ask, but not the event loop's."""

    def __init__(self, volume: Volume, shelf: Shelf) -> None:
        self.volume = volume
        self.shelf = shelf
        self._moving = threading.Lock()
        """What has a name in the folder of artifacts, and what the shelf says of that name, change together."""
        self._recording = threading.Lock()

    def folder(self, entry: Entry) -> Path:
        """Of an artifact."""
        return self.volume.artifacts_dir / entry.name

    def root(self, entry: Entry) -> Path:
        """What holds its files at their listing paths."""
        return self.folder(entry) / FILES

    def read_all(self, stop: Stop) -> None:
        """Find what an earlier process has left; what cannot be used goes, with one line for all of a kind."""
        reasons: Counter[str] = Counter()
        usable: list[tuple[int, Entry]] = []
        left_bytes = MAX_RECORDS_BYTES
        try:
            names = _last_used_first(self.volume.artifacts_dir)
        except OSError as error:
            _log.warning("cache.unreadable", cause=error.strerror)
            return
        for name in names:
            stop.check()
            try:
                left_bytes -= records.length(self.volume.artifacts_dir / name)
                if left_bytes < 0:
                    raise Unusable("more records than are read at a start")
                usable.append(self._found(name, stop))
            except Unusable as unusable:
                reasons[str(unusable)] += 1
                self.volume.discard(self.volume.artifacts_dir / name)
        for _, entry in sorted(usable, key=lambda item: item[0]):
            self.shelf.add(entry, 0)
        for reason, artifacts in reasons.items():
            _log.warning("cache.dropped", reason=reason, artifacts=artifacts)
        if usable:
            _log.info("cache.found", artifacts=len(usable), size=show_bytes(self.shelf.idle_bytes()))

    def publish(self, staged: Path, entry: Entry) -> None:
        """Make the staged directory the artifact's, with one user. Raises OSError, AdapterError."""
        with self._moving:
            self.volume.publish(staged, entry.name)
            self.shelf.add(entry, 1)

    def opened(self, entry: Entry, stop: Stop) -> Meta | None:
        """The record of an artifact that the caller holds, after a look at each file; None: it was damaged, and has gone."""
        folder = self.folder(entry)
        try:
            meta = records.read(folder)
            if meta.origin == entry.origin:
                records.check(folder, meta, stop.check)
                return meta
            reason = "a damaged record"
        except Unusable as unusable:
            reason = str(unusable)
        if self.shelf.drop(entry):
            _log.warning("cache.dropped", reason=reason, artifacts=1, key=entry.key)
            self.remove(entry.name)
        return None

    def let_go(self, name: str) -> None:
        """One user of this artifact less; what nobody shall find any more goes."""
        if self.shelf.let_go(name) is not None:
            self.remove(name)
            return
        with suppress(OSError):  # so that a later process knows what was used last
            os.utime(self.volume.artifacts_dir / name, follow_symlinks=False)

    def remove(self, name: str) -> None:
        """The folder of what the shelf does not have any more. Never raises."""
        gone = self.volume.staging_dir / secrets.token_hex(8)
        with self._moving:
            if self.shelf.has(name):  # published again meanwhile
                return
            try:
                (self.volume.artifacts_dir / name).rename(gone)
            except FileNotFoundError:
                return
            except OSError:
                gone = self.volume.artifacts_dir / name
                self.volume.discard(gone)
        self.volume.discard(gone)

    def give_way(self, wanted_bytes: int) -> int:
        """Remove idle artifacts of at least so many bytes, if there are; returns how many bytes went."""
        gone, freed = self.shelf.give_up(wanted_bytes)
        for entry in gone:
            self.remove(entry.name)
        if gone:
            CACHE_EVICTIONS.inc(len(gone))
            _log.info("cache.evicted", artifacts=len(gone), freed=show_bytes(freed), wanted=show_bytes(wanted_bytes))
        return freed

    def record(self, entry: Entry, listing: Listing | None) -> None:
        """Write down who may have it now, and what the store has now. Without effect where that cannot be written."""
        if entry.key is None:
            return
        with self._recording:
            try:
                meta = records.read(self.folder(entry))
                meta = replace(meta, readers=self.shelf.readers(entry), listing=listing or meta.listing)
                content = records.dump(meta, entry.name)
                if len(content) <= records.MAX_BYTES:
                    records.write(self.folder(entry), content)
                    self.shelf.recorded(entry, len(content))
            except (OSError, Unusable) as error:
                _log.info("cache.not_recorded", key=entry.key, cause=str(error))

    def record_all(self, entries: Iterable[Entry]) -> None:
        """Write down who may have these now, as `record`."""
        for entry in entries:
            self.record(entry, None)

    def content(self, origin: str, stored: StoredObject, reader: str, stop: Stop) -> bytes | None:
        """A small file, from an artifact that this reader may have."""
        for entry in self.shelf.of_origin(origin, reader)[:_LOOKED_AT]:
            with self._held(entry) as is_there:
                meta = self.opened(entry, stop) if is_there else None
                if meta is not None and (file := meta.find(stored)) is not None:
                    content = _read(self.folder(entry), file)
                    if content is not None:
                        return content
        return None

    def read(self, entry: Entry, path: str, stop: Stop) -> bytes | None:
        """A small file of this artifact; None when it is not there (any more)."""
        with self._held(entry) as is_there:
            meta = self.opened(entry, stop) if is_there else None
            file = next((file for file in meta.files if file.path == path), None) if meta else None
            return None if file is None else _read(self.folder(entry), file)

    def listing(self, key: str, reader: str) -> Listing | None:
        """What an unpacked artifact holds, if this reader may have it."""
        entry = self.shelf.find(key)
        if entry is None or reader not in self.shelf.readers(entry):
            return None
        try:
            return records.read(self.folder(entry)).listing
        except Unusable:
            return None

    def link(self, target: Path, origin: str, missing: dict[str, StoredObject], stop: Stop) -> tuple[dict[int, int], set[str]]:
        """
        Give the files that other versions of this model have a name in the target, and take them off `missing`.

        Returns:
            Inode → bytes of them, and whoever may have all artifacts that they are from.
        """
        linked: dict[int, int] = {}
        readers: set[str] | None = None
        for entry in self.shelf.of_origin(origin)[:_LOOKED_AT]:
            if not missing:
                break
            with self._held(entry) as is_there:
                meta = self.opened(entry, stop) if is_there else None
                if meta is None or meta.archive is not None:
                    continue
                known = {version_of(file.stored): file.path for file in meta.files}
                before = len(missing)
                for path, stored in list(missing.items()):
                    stop.check()
                    source = known.get(version_of(stored))
                    if source is not None and (inode := _linked(self.folder(entry) / source, target, path)):
                        linked[inode] = stored.size_bytes
                        del missing[path]
                if len(missing) < before:
                    may = set(self.shelf.readers(entry))
                    readers = may if readers is None else readers & may
        return linked, readers or set()

    @contextmanager
    def _held(self, entry: Entry) -> Iterator[bool]:
        if not self.shelf.hold_entry(entry):
            yield False
            return
        try:
            yield True
        finally:
            if self.shelf.let_go(entry.name) is not None:
                self.remove(entry.name)

    def _found(self, name: str, stop: Stop) -> tuple[int, Entry]:
        if not self.shelf.keeps_idle:
            raise Unusable("nothing idle is kept")
        if not _KEY.fullmatch(name):
            raise Unusable("not of the cache")
        folder = self.volume.artifacts_dir / name
        meta = records.read(folder)
        inodes = records.check(folder, meta, stop.check)
        try:
            used = folder.lstat().st_mtime_ns
            for other in set(os.listdir(folder)) - {FILES, SCHEMA, records.NAME}:  # noqa: PTH208 - plain names
                self.volume.discard(folder / other)
            record_bytes = (folder / records.NAME).lstat().st_size
        except OSError as error:
            raise Unusable("no record") from error
        entry = Entry(name=name, key=name, origin=meta.origin, inodes=inodes, record_bytes=record_bytes, readers=dict(meta.readers))
        return used, entry


def _last_used_first(folder: Path) -> list[str]:
    used: dict[str, int] = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                used[entry.name] = entry.stat(follow_symlinks=False).st_mtime_ns
    return sorted(used, key=lambda name: -used[name])


def _read(folder: Path, file: KeptFile) -> bytes | None:
    try:
        content = read_below(folder, file.path, file.stored.size_bytes)
    except OSError:
        return None
    return content if len(content) == file.stored.size_bytes else None


def _linked(source: Path, target: Path, path: str) -> int | None:
    """The inode; None where it cannot have one more name."""
    made = target
    try:
        for name in path.split("/")[:-1]:
            made = made / name
            with suppress(FileExistsError):
                make_plain_directory(made)
        os.link(source, target / path, follow_symlinks=False)
        return (target / path).lstat().st_ino
    except OSError as error:
        _log.debug("cache.not_linked", cause=error.strerror)
        return None
