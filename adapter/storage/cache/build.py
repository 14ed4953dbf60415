"""
One artifact in the making: what is there already is linked or written, the rest is left to be filled, then all is published.

Blocks; runs in threads, and what it has made is known whenever they end.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import structlog

from adapter.model import Listing
from adapter.space import Reservation
from adapter.storage.bucket import StoredObject
from adapter.storage.cache import meta as records
from adapter.storage.cache.identity import ARCHIVE, FILES, Identity
from adapter.storage.cache.keeping import Keeping
from adapter.storage.cache.meta import Meta
from adapter.storage.cache.shelf import Entry
from adapter.volume import FILE_MODE, make_plain_directory
from adapter.workers import Stop

_log = structlog.stdlib.get_logger(__name__)


class Build:
    """One attempt."""

    def __init__(self, keeping: Keeping, room: Reservation, identity: Identity, *, is_kept: bool) -> None:
        """`is_kept`: whether somebody may find it again; without versions nobody may."""
        self._keeping = keeping
        self._volume = keeping.volume
        self._room = room
        self._identity = identity
        self._is_kept = is_kept
        self._pending: Entry | None = None
        """Counts what is linked, until the artifact counts it."""
        self._entry: Entry | None = None
        self.staged: Path | None = None
        self.linked: Mapping[int, int] = {}
        """Inode → bytes of the files that other artifacts have too."""
        self.linked_from: set[str] = set()
        """Who may have all of those."""

    @property
    def linked_bytes(self) -> int:
        """Which need not be brought."""
        return sum(self.linked.values())

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
            self.staged = self._room.insist(self._volume.new_staging)
            self._room.insist(partial(make_plain_directory, self.staged / FILES))
            if self._is_kept and not self._identity.is_unpacked:
                self.linked, self.linked_from = self._keeping.link(self.staged, self._identity.origin, missing, stop)
                self._pending = Entry(name=self.staged.name, key=None, origin=self._identity.origin, inodes=self.linked)
                self._keeping.shelf.add(self._pending, 1)
            for path, stored in list(missing.items()):
                if stored in contents:
                    stop.check()
                    self._write(path, contents[stored])
                    del missing[path]
        return missing

    def finish(self, listing: Listing, readers: Mapping[str, float], stop: Stop) -> Entry:
        """
        Publish it, with one user.

        Args:
            listing: what the store has.
            readers: who may have it.
            stop: as ever.

        Raises:
            DiskFull, AdapterError: the volume does not take it.
        """
        assert self.staged is not None  # noqa: S101 - begin has run
        identity = self._identity
        archive = identity.objects.get(ARCHIVE)
        objects = dict(identity.objects)
        if archive is not None:
            del objects[ARCHIVE]
            objects |= {f"{FILES}/{file.path}": StoredObject(archive.key, file.size_bytes, archive.etag) for file in listing.files}
        with self._volume.writing(0):
            kept, inodes = records.look(self.staged, objects)
            key = identity.key if self._is_kept else None
            content = b""
            if key is not None:
                meta = Meta(origin=identity.origin, listing=listing, files=kept, archive=archive, readers=readers)
                content = records.dump(meta, key)
                if len(content) > records.MAX_BYTES:
                    cause = "it has too many files: each load after an unload pulls all of it again"
                    _log.warning("cache.not_kept", model=listing.origin, files=len(kept), cause=cause)
                    key = None
                else:
                    self._room.change(len(content))
                    self._room.insist(partial(records.write, self.staged, content))
            entry = Entry(
                name=key or secrets.token_hex(8),
                key=key,
                origin=identity.origin,
                inodes=inodes,
                record_bytes=len(content) if key else 0,
                readers=dict(readers),
            )
            stop.check()
            self._room.insist(partial(self._keeping.publish, self.staged, entry))
            self._entry = entry
        self._end_pending()
        return entry

    def undo(self, _stop: Stop) -> None:
        """Leave nothing."""
        if self._entry is not None:
            self._keeping.let_go(self._entry.name)
        if self.staged is not None:
            self._volume.discard(self.staged)
        self._end_pending()

    def _end_pending(self) -> None:
        if self._pending is not None:
            self._keeping.shelf.let_go(self._pending.name)
            self._pending = None

    def _write(self, path: str, content: bytes) -> None:
        assert self.staged is not None  # noqa: S101 - begin has run
        self._room.grow(len(content), 1)
        made = self.staged
        for name in path.split("/")[:-1]:
            made = made / name
            if not made.is_dir():
                self._room.insist(partial(make_plain_directory, made))
        self._room.insist(partial(_write_whole, self.staged / path, content))
        self._room.wrote(len(content))


def _write_whole(path: Path, content: bytes) -> None:
    path.unlink(missing_ok=True)  # of an attempt that found no room
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
    with open(file, "wb") as opened:  # noqa: PTH123 - a descriptor
        os.fchmod(file, FILE_MODE)
        opened.write(content)
