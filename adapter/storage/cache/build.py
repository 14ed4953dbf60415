"""
One artifact in the making: what is there already is linked or written, the rest is left to be filled, then all is published.

Blocks; runs in threads, and what it has made is known whenever they end.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import structlog

from adapter.model import Listing
from adapter.paths import directories_of
from adapter.storage.bucket import StoredObject
from adapter.storage.cache import record as records
from adapter.storage.cache.artifacts import Artifacts, new_name
from adapter.storage.cache.identity import ARCHIVE, FILES, Identity
from adapter.storage.cache.record import ArtifactRecord
from adapter.storage.cache.table import Entry
from adapter.volume.boot import boot_id
from adapter.volume.space import Reservation
from adapter.volume.volume import FILE_MODE, make_plain_directory
from adapter.workers import Stop

_log = structlog.stdlib.get_logger(__name__)


class Build:
    """One attempt."""

    def __init__(self, artifacts: Artifacts, reserved: Reservation, identity: Identity, *, is_kept: bool) -> None:
        """`is_kept`: whether it can be found again; without versions it cannot."""
        self._artifacts = artifacts
        self._volume = artifacts.volume
        self._reserved = reserved
        self._identity = identity
        self._is_kept = is_kept
        self._pending: Entry | None = None
        """Counts what is linked, until the artifact counts it."""
        self._entry: Entry | None = None
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
        with self._volume.writing(sum(map(len, contents.values()))):
            self.staged = self._reserved.insist(self._volume.new_staging)
            for directory in sorted(directories_of((*missing, f"{FILES}/"))):  # parents first
                self._reserved.insist(partial(make_plain_directory, self.staged / directory))
            if self._is_kept and not self._identity.is_unpacked:
                linked = self._artifacts.link(self.staged, self._identity.origin, missing, stop)
                self.linked_bytes = sum(linked.values())
                self._pending = Entry(name=self.staged.name, key=None, origin=self._identity.origin, inodes=linked)
                self._artifacts.table.add(self._pending, 1)
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
        with self._volume.writing(0):
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
            self._reserved.insist(lambda: self._volume.publish(self.staged, entry.name))
            self._artifacts.table.add(entry, 1)
            self._entry = entry
        self._end_pending()
        return entry

    def undo(self, _stop: Stop) -> None:
        """Leave nothing."""
        if self._entry is not None:
            self._artifacts.let_go(self._entry)
        elif self.staged.name:
            self._volume.discard(self.staged)
        self._end_pending()

    def _end_pending(self) -> None:
        if self._pending is not None:
            self._artifacts.table.use(self._pending, -1)
            self._artifacts.table.gone(self._pending)
            self._pending = None

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


def _write_whole(path: Path, content: bytes, mode: int) -> None:
    path.unlink(missing_ok=True)  # of an attempt that found the volume full
    with path.open("xb") as opened:
        os.fchmod(opened.fileno(), mode)
        opened.write(content)
