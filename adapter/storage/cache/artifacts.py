"""
What the table has decided, done on the volume: artifacts made, checked, read, given up, found again at the start.

Blocks; runs in threads, and what they have made is known whenever they end.
"""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

import structlog

from adapter.model import Listing
from adapter.paths import directories_of
from adapter.storage.bucket import StoredObject
from adapter.storage.cache import record as records
from adapter.storage.cache.identity import ARCHIVE, FILES, Identity
from adapter.storage.cache.record import ArtifactRecord, KeptFile, Unusable, version_of
from adapter.storage.cache.table import Entry, Table
from adapter.telemetry.metrics import CACHE_EVICTIONS
from adapter.units import show_bytes
from adapter.volume.boot import boot_id, boot_seconds
from adapter.volume.space import Reservation
from adapter.volume.trees import read_below
from adapter.volume.volume import FILE_MODE, Volume, make_plain_directory
from adapter.workers import Stop

MAX_RECORDS_BYTES = 128 * 1024 * 1024
"""Of all records that are read at a start: about 290,000 files with long names. Of more, the least recently used artifacts go."""
LOOKED_AT = 4
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

    def opened(self, entry: Entry, confirms: bool, stop: Stop) -> ArtifactRecord | None:
        """
        The record of an artifact that the caller holds, after a look at each file; None: it was damaged, and is not listed any more.

        `confirms`: its owner has listed it just now.
        """
        try:
            record = records.whole(self.folder(entry), str(entry.key), stop.check)[0]
        except Unusable as unusable:
            if self.table.drop(entry):
                _log.warning("cache.dropped", reason=str(unusable), artifacts=1, key=entry.key)
            return None
        if confirms:
            self.confirm([entry], boot_seconds())
        return record

    def let_go(self, entry: Entry) -> None:
        """One user of this artifact less."""
        if self.table.use(entry, -1):
            self.remove(entry)
            return
        with suppress(OSError):  # so that a later process knows what was used last
            os.utime(self.folder(entry), follow_symlinks=False)

    def remove(self, entry: Entry) -> None:
        """The folder of what was taken off the table, which counts it until then. Never raises."""
        self.volume.trash.discard(self.folder(entry), is_counted_elsewhere=True)
        self.table.gone(entry)

    def give_way(self, wanted_bytes: int) -> int:
        """Remove idle artifacts of at least these bytes, if there are; returns how many bytes went."""
        freed = artifacts = 0
        while freed < wanted_bytes and (entry := self.table.give_up()) is not None:
            self.remove(entry)
            freed += entry.leaving_bytes
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

    def content(self, entries: Iterable[Entry], find: Callable[[ArtifactRecord], KeptFile | None], stop: Stop) -> bytes | None:
        """A small file of the first of these artifacts that is whole and has it."""
        for entry in entries:
            with suppress(Unusable, OSError):
                file = find(records.whole(self.folder(entry), str(entry.key), stop.check)[0])
                if file is not None:
                    content = read_below(self.folder(entry), file.path, file.size_bytes)
                    if len(content) == file.size_bytes:
                        return content
        return None

    def listing(self, key: str) -> Listing | None:
        """What an unpacked artifact holds, unless the store has refused its owner since."""
        entry = self.table.find(key)
        if entry is not None and entry.confirmed:
            with suppress(Unusable):
                return records.read(self.folder(entry), key).listing
        return None

    def link(self, target: Path, origin: str, missing: dict[str, StoredObject], stop: Stop) -> dict[int, int]:
        """
        Give the files that other versions of this model have a name in the target, and take them off `missing`.

        The target has their directories.

        Returns:
            Inode → bytes of them.
        """
        linked: dict[int, int] = {}
        for entry in self.table.of_origin(origin)[:LOOKED_AT] if missing else ():
            with suppress(Unusable):
                record, _ = records.whole(self.folder(entry), str(entry.key), stop.check)
                known = {} if record.archive else {file.stored: file.path for file in record.files}
                for path, stored in list(missing.items()):
                    stop.check()
                    source = known.get(version_of(stored))
                    if source is not None and (inode := _linked(self.folder(entry) / source, target / path)):
                        linked[inode] = stored.size_bytes
                        del missing[path]
        return linked

    def _found(self, name: str, stop: Stop) -> Entry:
        if not self.table.keeps_idle:
            raise Unusable("nothing idle is kept")
        folder, key = self.volume.artifacts_dir / name, name.partition(".")[0]
        record, inodes = records.whole(folder, key, stop.check)
        size, confirmed = records.state_of(folder)
        return Entry(name=name, key=key, origin=record.origin, inodes=inodes, record_bytes=size, confirmed=confirmed)


class Build:
    """One artifact in the making: what is there already is linked or written, the rest is left to be filled, then all is published."""

    def __init__(self, artifacts: Artifacts, reserved: Reservation, identity: Identity, *, is_kept: bool) -> None:
        """`is_kept`: whether it can be found again; without versions it cannot."""
        self._artifacts = artifacts
        self._reserved = reserved
        self._identity = identity
        self._is_kept = is_kept
        self._counted: Entry | None = None
        """What was linked, then the artifact."""
        self.staged = Path()
        """Set by `begin`."""
        self.linked_bytes = 0
        """Of the files that other artifacts have too."""

    def begin(self, contents: Mapping[StoredObject, bytes], stop: Stop) -> dict[str, StoredObject]:
        """
        Everything that needs no store.

        Returns:
            What is still missing: path in the artifact → object.

        Raises:
            DiskFull, AdapterError: the volume does not take it.
        """
        missing = dict(self._identity.objects)
        with self._artifacts.volume.writing(sum(map(len, contents.values()))):
            self.staged = self._reserved.insist(self._artifacts.volume.new_staging)
            for directory in sorted(directories_of((*missing, f"{FILES}/"))):  # parents first
                self._reserved.insist(partial(make_plain_directory, self.staged / directory))
            if self._is_kept and not self._identity.is_unpacked:
                linked = self._artifacts.link(self.staged, self._identity.origin, missing, stop)
                self.linked_bytes = sum(linked.values())
                self._count(Entry(name=self.staged.name, key=None, origin=self._identity.origin, inodes=linked))
            for path, stored in missing.items():
                if stored in contents:
                    stop.check()
                    self._write(path, contents[stored])
        return {path: stored for path, stored in missing.items() if stored not in contents}

    def finish(self, listing: Listing, confirmed: float, stop: Stop) -> Entry:
        """
        Publish it, with one user.

        Args:
            listing: what the store has.
            confirmed: when that was listed, in seconds since the boot.
            stop: as ever.

        Raises:
            DiskFull, AdapterError: the volume does not take it.
        """
        identity, objects = self._identity, dict(self._identity.objects)
        if archive := objects.pop(ARCHIVE, None):
            objects |= {f"{FILES}/{file.path}": StoredObject(archive.key, file.size_bytes, archive.etag) for file in listing.files}
        with self._artifacts.volume.writing(0):
            kept, inodes = records.look(self.staged, objects)
            record_bytes = 0
            if self._is_kept:
                whole = None if archive is None else (archive.key, archive.size_bytes, archive.etag)
                record = ArtifactRecord(
                    boot_id=boot_id(), key=identity.key, origin=identity.origin, listing=listing, files=kept, archive=whole
                )
                record_bytes = self._written(record, confirmed)
            key = identity.key if record_bytes else None
            entry = Entry(
                name=new_name(key), key=key, origin=identity.origin, inodes=inodes, record_bytes=record_bytes, confirmed=confirmed
            )
            stop.check()
            self._reserved.insist(lambda: self._artifacts.volume.publish(self.staged, entry.name))
            self._count(entry)
        return entry

    def undo(self, _stop: Stop) -> None:
        """Leave nothing."""
        if self.staged.name:
            self._artifacts.volume.discard(self.staged)
        self._count(None)

    def _count(self, entry: Entry | None) -> None:
        """This counts, with one user, instead of what has counted before."""
        if entry is not None:
            self._artifacts.table.add(entry, 1)
        if self._counted is not None:
            self._artifacts.let_go(self._counted)
        self._counted = entry

    def _written(self, record: ArtifactRecord, confirmed: float) -> int:
        """Bytes of the record in the staged directory; 0: it is too long."""
        content = records.dump(record)
        if len(content) > records.MAX_BYTES:
            cause = "it has too many files: each load after an unload pulls all of it again"
            _log.warning("cache.not_kept", model=record.listing.origin, files=len(record.files), cause=cause)
            return 0
        self._reserved.change(len(content))
        self._reserved.insist(partial(_write_whole, self.staged / records.NAME, content, records.MODE))
        records.confirm(self.staged, confirmed)
        return len(content)

    def _write(self, path: str, content: bytes) -> None:
        self._reserved.grow(len(content), 1)
        self._reserved.insist(partial(_write_whole, self.staged / path, content, FILE_MODE))
        self._reserved.wrote(len(content))


def _last_used_first(folder: Path) -> list[str]:
    used: dict[str, int] = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                used[entry.name] = entry.stat(follow_symlinks=False).st_mtime_ns
    return sorted(used, key=lambda name: -used[name])


def _linked(source: Path, target: Path) -> int | None:
    """The inode; None where it cannot have one more name."""
    with suppress(OSError):
        os.link(source, target, follow_symlinks=False)
        return target.lstat().st_ino
    return None


def _write_whole(path: Path, content: bytes, mode: int) -> None:
    path.unlink(missing_ok=True)  # of an attempt that found the volume full
    with path.open("xb") as opened:
        os.fchmod(opened.fileno(), mode)
        opened.write(content)
