"""
The journal's file as an earlier process, or anyone else, has left it; and each of its lines. Blocks.

A line is an entry as JSON, in ASCII, so that a terminal shows it safely. Any process that can write the volume can write a
line, or replace or delete the file: reading is bounded, opens regular files only and follows no link; every value has a
type, a bound and an alphabet (`adapter.records`), and a line with a wrong value says nothing.
"""

from __future__ import annotations

import errno
import io
import json
import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec

from adapter.errors import InvalidRequest
from adapter.model import id_problem
from adapter.records import MAX_TEXT, Crashes, Label, Needed, Record, Sized
from adapter.units import MIB
from adapter.volume.trees import opened, read_whole

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

Entry = Record | Crashes | Sized | Needed
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


@dataclass(frozen=True)
class Found:
    """What a file says."""

    salt: bytes
    records: dict[str, Record] = field(default_factory=dict)
    """By model id."""
    crashes: dict[str, Crashes] = field(default_factory=dict)
    """By digest."""
    sizes: dict[str, Sized] = field(default_factory=dict)
    """By `Content.spec`, those noted longest ago first."""
    needed: dict[str, Needed] = field(default_factory=dict)
    """One, or none."""

    def put(self, key: Key, entry: Entry | None) -> bool:
        """Keep this entry, or none, in place of an earlier one. False: there was none, or there are too many."""
        tables: dict[str, dict[str, Any]] = {"id": self.records, "crash": self.crashes, "sized": self.sizes, "needed": self.needed}
        table = tables[key[0]]
        was_known = table.pop(key[1], None) is not None
        if entry is None:
            return was_known
        if not was_known and sum(map(len, tables.values())) >= MAX_ENTRIES:
            return False
        table[key[1]] = entry  # comes last
        return True


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
    for key, entry in filter(None, map(read_line, map(_whole, lines))):
        found.put(key, entry)
    return found


def _whole(line: bytes) -> bytes:
    """Nothing of a line without an end, or that is too long."""
    return line if line.endswith(b"\n") and len(line) <= MAX_LINE_BYTES else b""


def read_line(line: bytes) -> tuple[Key, Entry | None] | None:
    """What a line is about, and what it says (None: nothing is kept any more); None for a line that is not one."""
    with suppress(ValueError, InvalidRequest, RecursionError):  # InvalidRequest: no front can have named a model so
        fields = msgspec.json.decode(line, type=dict[str, Any])
        key = _key_of(fields)
        if key is None or fields.get("gone") is True:
            return key and (key, None)
        entry = msgspec.convert(fields, KINDS[key[0]])
        return None if isinstance(entry, Record) and id_problem(entry.model_id) else (key, entry)
    return None


def key_of(entry: Entry) -> Key:
    """Of all lines on one model id, or on one content."""
    if isinstance(entry, Sized):
        return "sized", entry.content.spec
    if isinstance(entry, Needed):
        return "needed", entry.needed
    return ("id", entry.model_id) if isinstance(entry, Record) else ("crash", entry.digest)


def _key_of(fields: dict[str, Any]) -> Key | None:
    name, about = next(iter(fields.items()), ("", None))
    about = about[0] if isinstance(about, list) and about else about
    return (name, about) if name in KINDS and isinstance(about, str) else None


def line_of(entry: Entry | Head) -> bytes:
    """What is kept of it. Texts for people are cut."""
    if isinstance(entry, Record):
        texts = {name: text[:MAX_TEXT] for name in ("model_type", "path", "storage_key") if (text := getattr(entry, name))}
        entry = msgspec.structs.replace(entry, **texts)
    return _line(msgspec.to_builtins(entry))


def gone_line(key: Key) -> bytes:
    """Nothing is kept of it any more."""
    return _line({key[0]: key[1], "gone": True})


def _line(values: object) -> bytes:
    return json.dumps(values, separators=(",", ":"), allow_nan=False).encode() + b"\n"
