"""
What each model id holds, kept on the volume across processes: implements `ports.Journal`.

A line is an entry as JSON, in ASCII, so that a terminal shows it safely. Any process that can write the volume can write a
line, or replace or delete the file: reading is bounded, opens regular files only and follows no link; every value has a
type, a bound and an alphabet (`adapter.records`), and a line with a wrong value says nothing.

Theory of operation. A task gives the lines that are new to a thread, which appends them. The first write of a process, and
one to a file that has grown too long or is not as we left it, is a new file with all that is known, renamed: so a reader
finds a whole file at any moment, and whatever file lies in its place is replaced. A volume that is slow makes the writes
fewer, and one that hangs holds up the callers of `written` alone. When no file can be written there shall be none: what was
noted counts as written then, since no later process can read anything older. The task tries again after a pause.
Nothing is fsynced: pages outlive any death of a process, and another boot of the kernel is told by the first line.
"""

from __future__ import annotations

import asyncio
import errno
import io
import json
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import msgspec
import structlog

from adapter.errors import InvalidRequest
from adapter.model import id_problem
from adapter.records import MAX_TEXT, SALT_BYTES, Crashes, Digests, Entry, Label, Needed, Record, Sized
from adapter.units import MIB
from adapter.volume.boot import boot_id, boot_seconds
from adapter.volume.trees import opened, read_whole
from adapter.waits import doubling
from adapter.workers import Workers

NAME = "journal.jsonl"
"""In the adapter's own folder."""
FORMAT = 1
MAX_FILE_BYTES = 32 * MIB
MAX_ENTRIES = 20_000
"""Model ids and contents together. What comes after is not kept."""
MAX_LINE_BYTES = 64 * 1024
"""JSON of ASCII has up to 6 bytes for one of UTF-8: a name and a url of the greatest length fit."""
_ODD = "it is no regular file"
_REFUSED = {errno.EISDIR: _ODD, errno.EINVAL: _ODD, errno.EFBIG: f"it is larger than {MAX_FILE_BYTES // MIB} MiB"}
"""By `opened` and `read_whole`."""
MODE = 0o600
"""Its salt and what it tells are no one else's business."""
MOST_SIZES = 2_000
"""Sizes of contents that are kept: the one noted longest ago goes for a new one."""
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 30.0
SLACK_BYTES = 64 * 1024
"""A file may become twice as long as it began, and so much longer."""
END_SECONDS = 1.0
"""Longest wait for the thread at the end: a volume that hangs must not keep the process."""

log = structlog.stdlib.get_logger(__name__)

Key = tuple[str, str]
"""Of a line: the name of its first field, and its value; of a content, the digest of the spec."""
KINDS: dict[str, type[Entry]] = {"id": Record, "crash": Crashes, "sized": Sized, "needed": Needed}
"""By the name of the first field."""


class Head(msgspec.Struct, frozen=True):
    """The first line."""

    format: int
    boot_id: Label
    salt: Annotated[str, msgspec.Meta(pattern=r"\A(?:[0-9a-f]{2}){16,64}\Z")] = ""


class JournalProblem(Exception):
    """The file says nothing that can be believed; the text says why, for people."""


class NoJournal(JournalProblem):
    """There is no file."""


class Found:
    """What a file says."""

    def __init__(self, salt: bytes) -> None:
        self.salt = salt
        self.records: dict[str, Record] = {}
        """By model id."""
        self.crashes: dict[str, Crashes] = {}
        """By digest."""
        self.sizes: dict[str, Sized] = {}
        """By `Content.spec`, those noted longest ago first."""
        self.needed: dict[str, Needed] = {}
        """One, or none."""
        self.tables: dict[str, dict[str, Any]] = {"id": self.records, "crash": self.crashes, "sized": self.sizes, "needed": self.needed}
        """By the name of a line's first field."""

    def put(self, entry: Entry) -> bool:
        """Keep it in place of an earlier one. False: there are too many."""
        name, about = key_of(entry)
        if not self.drop((name, about)) and sum(map(len, self.tables.values())) >= MAX_ENTRIES:
            return False
        self.tables[name][about] = entry  # comes last
        return True

    def drop(self, key: Key) -> bool:
        """Keep nothing of it. False: nothing was kept."""
        return self.tables[key[0]].pop(key[1], None) is not None

    def take(self, line: bytes) -> None:
        """Do what a line says; nothing where it is not one."""
        # InvalidRequest: no front can have named a model so. TypeError: what the line is about cannot be a key
        with suppress(ValueError, InvalidRequest, RecursionError, LookupError, TypeError):
            fields = msgspec.json.decode(line, type=dict[str, Any])
            name = next(iter(fields), "")
            if fields.get("gone") is True:
                self.drop((name, fields[name]))
            elif not (isinstance(entry := msgspec.convert(fields, KINDS[name]), Record) and id_problem(entry.model_id)):
                self.put(entry)


def read(path: Path, boot_id: str) -> Found:
    """
    What the file says, if it is of this boot of the kernel.

    Raises:
        JournalProblem: nothing that can be believed.
    """
    try:
        lines = io.BytesIO(read_whole(opened(path, os.O_RDONLY | os.O_NOFOLLOW), MAX_FILE_BYTES))
    except FileNotFoundError:
        raise NoJournal("there is none: no adapter has left one, or it could not write it (log: journal.dropped)") from None
    except OSError as error:
        raise JournalProblem(_REFUSED.get(error.errno or 0, f"it cannot be read: {error.strerror}")) from error
    try:
        head = msgspec.json.decode(_whole(lines.readline()), type=Head)
    except (ValueError, RecursionError):
        raise JournalProblem("its first line is not a journal's") from None
    if head.format != FORMAT:
        raise JournalProblem(f"it has format {head.format}, and this adapter reads {FORMAT}")
    if head.boot_id != boot_id:
        raise JournalProblem("it is of an earlier boot: the machine has restarted since it was written")
    found = Found(bytes.fromhex(head.salt))
    for line in lines:
        found.take(_whole(line))
    return found


def _whole(line: bytes) -> bytes:
    """Nothing of a line without an end, or that is too long."""
    return line if line.endswith(b"\n") and len(line) <= MAX_LINE_BYTES else b""


def key_of(entry: Entry) -> Key:
    """Of all lines on one model id, or on one content."""
    if isinstance(entry, Sized):
        return "sized", entry.content.spec
    if isinstance(entry, Needed):
        return "needed", entry.needed
    return ("id", entry.model_id) if isinstance(entry, Record) else ("crash", entry.digest)


def line_of(entry: Entry | Head) -> bytes:
    """What is kept of it. Texts for people are cut."""
    if isinstance(entry, Record):
        texts = ("model_type", "path", "storage_key")
        if cut := {name: text[:MAX_TEXT] for name in texts if len(text := getattr(entry, name) or "") > MAX_TEXT}:
            entry = msgspec.structs.replace(entry, **cut)
    return _line(entry)


def _line(values: object) -> bytes:
    """In printable ASCII."""
    return json.dumps(msgspec.to_builtins(values), separators=(",", ":")).encode() + b"\n"


class Journal:
    """As `ports.Journal`. Call `close` at the end; what is noted without an event loop is written by it."""

    def __init__(self, path: Path, *, discard: Callable[[Path], object], boot: str | None = None) -> None:
        """
        Read what an earlier process has left; the first file of our own holds the same. Blocks.

        Args:
            path: of its file.
            discard: takes a file, or whatever lies in its place, out of sight; an absent one is fine. Does not raise.
            boot: which boot of the kernel this is.

        Raises:
            StartError: the process cannot have another thread.
        """
        self._path = path
        self._discard = discard
        boot = boot or boot_id()
        try:
            self._known = read(path, boot)
        except JournalProblem as problem:
            self._known = Found(secrets.token_bytes(SALT_BYTES))
            if not isinstance(problem, NoJournal):
                log.warning("journal.ignored", path=str(path), cause=str(problem))
                discard(path)
        self.records, self.crashes, self.sizes = self._known.records, self._known.crashes, self._known.sizes
        self.needed = self._known.needed
        self.digests = Digests(self._known.salt)
        self.now = boot_seconds
        self._head = line_of(Head(FORMAT, boot, self._known.salt.hex()))
        self._thread: Workers | None = Workers("journal", 1)
        self._descriptor = -1
        """Of the file that this process has begun; so are the next two. Used by the thread."""
        self._size_bytes = self._most_bytes = 0
        self._writing: asyncio.Task[None] | None = None
        self._new: dict[Key, bytes] = {}
        """Lines that no write has taken yet, the last one of each key."""
        self._next = self._now = asyncio.Event()
        """Of those lines, and of those that were taken last: set when they are in the file, or when there is none that they contradict."""
        self._is_dropped = False
        """There is no file, since the last write has failed."""
        self._write_soon()

    def note(self, entry: Entry) -> None:
        """As `ports.Journal`."""
        key = key_of(entry)
        if isinstance(entry, Sized) and key[1] not in self.sizes and len(self.sizes) >= MOST_SIZES:
            self.forget(next(iter(self.sizes.values())))
        if self._known.put(entry):
            self._new[key] = line_of(entry)
            self._write_soon()

    def forget(self, entry: Entry) -> None:
        """As `ports.Journal`."""
        if self._known.drop(key := key_of(entry)):
            self._new[key] = _line({key[0]: key[1], "gone": True})
            self._write_soon()

    async def written(self) -> None:
        """As `ports.Journal`."""
        self._write_soon()
        if self._thread is not None and not self._is_dropped:
            await (self._next if self._new else self._now).wait()

    def close(self) -> None:
        """Take no more notes; those that were taken are written, unless the volume hangs."""
        thread, self._thread = self._thread, None
        if thread is not None:
            if self._writing is not None:
                self._writing.cancel()
            self._now.set()
            self._next.set()
            with suppress(TimeoutError):
                thread.submit(self._write, b"".join(self._new.values())).result(END_SECONDS)
                self._close_file()
            thread.close()

    def _write_soon(self) -> None:
        if self._thread is not None and (self._writing is None or self._writing.done()):
            with suppress(RuntimeError):  # no event loop
                self._writing = asyncio.get_running_loop().create_task(self._write_all(self._thread), name="journal")

    async def _write_all(self, thread: Workers) -> None:
        """Until all is in the file."""
        pauses = doubling(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        while self._new or not self._now.is_set() or self._is_dropped:
            was_dropped, self._is_dropped = self._is_dropped, False
            added, self._new = b"".join(self._new.values()), {}
            self._now, self._next = self._next, asyncio.Event()
            problem = await asyncio.wrap_future(thread.submit(self._write, added))
            self._now.set()
            if problem is None and was_dropped:
                log.info("journal.begun_again", path=str(self._path))
            elif problem is not None:
                self._is_dropped = True
                self._next.set()
                if not was_dropped:
                    log.warning("journal.dropped", path=str(self._path), cause=problem)
                await asyncio.sleep(next(pauses))

    def _write(self, added: bytes) -> str | None:
        """In the thread. Returns why there is no file now: better none than one that is not true."""
        new_path = self._path.with_name(f"{self._path.name}.new")
        try:
            if self._can_take(len(added)):
                _write_all(self._descriptor, added)
                self._size_bytes += len(added)
            else:
                self._begin(new_path)
        except Exception as error:  # noqa: BLE001 - callers that wait are woken, whatever happens here
            with suppress(OSError):  # also where the name cannot be deleted
                os.ftruncate(self._descriptor, 0)
            self._close_file()
            for path in (self._path, new_path):
                with suppress(OSError):
                    path.unlink(missing_ok=True)
            return error.strerror or str(error) if isinstance(error, OSError) else repr(error)
        return None

    def _can_take(self, more_bytes: int) -> bool:
        """Whether the file under our name is still the one that we hold, as we left it, and not too long."""
        with suppress(OSError):
            named, held = self._path.lstat(), os.fstat(self._descriptor)
            is_ours = os.path.samestat(named, held) and held.st_size == self._size_bytes
            return is_ours and self._size_bytes + more_bytes <= self._most_bytes
        return False

    def _begin(self, new_path: Path) -> None:
        """Another file, with all that is known; more may be noted meanwhile."""
        # each table as it is at one moment: nothing of Python runs in between
        known: list[Entry] = [entry for table in self._known.tables.values() for entry in list(table.values())]
        content = self._head + b"".join(map(line_of, known))
        self._discard(new_path)
        self._close_file()
        self._descriptor = os.open(new_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE)
        os.fchmod(self._descriptor, MODE)
        _write_all(self._descriptor, content)
        new_path.rename(self._path)
        self._size_bytes, self._most_bytes = len(content), min(2 * len(content) + SLACK_BYTES, MAX_FILE_BYTES)

    def _close_file(self) -> None:
        with suppress(OSError):  # there may be none
            os.close(self._descriptor)
        self._descriptor = -1


def _write_all(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]
