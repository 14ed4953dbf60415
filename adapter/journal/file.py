"""
The journal's file as an earlier process, or anyone else, has left it; and each of its lines. Blocks.

A line is an entry as JSON. Lines are ASCII, so that a terminal shows them safely. Any process that can write the volume
can write a line, or replace or delete the file meanwhile: reading is bounded, opens regular files only and follows no
link; every value has a type, a bound and an alphabet, and a line with a wrong value says nothing.
"""

from __future__ import annotations

import errno
import io
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec.structs import asdict

from adapter.errors import InvalidRequest
from adapter.model import MAX_SIZE_BYTES, Content, Crashes, Named, Record, Sized, SizeSource, id_problem
from adapter.units import MIB
from adapter.volume.trees import opened, read_whole

NAME = "journal.jsonl"
"""In the adapter's own folder."""
FORMAT = 1
MAX_FILE_BYTES = 32 * MIB
MAX_ENTRIES = 20_000
"""Model ids and contents together. What comes after is not kept."""
_ODD = "it is no regular file"
_REFUSED = {errno.EISDIR: _ODD, errno.EINVAL: _ODD, errno.EFBIG: f"it is larger than {MAX_FILE_BYTES // MIB} MiB"}
"""By `opened` and `read_whole`."""
MOST_SIZES = 5_000
"""Of them, sizes of contents: the one noted longest ago goes for a new one."""
MAX_LINE_BYTES = 64 * 1024
"""JSON of ASCII has up to 6 bytes for one of UTF-8: a name and a url of the greatest length fit."""
MAX_TEXT = 200
"""Characters of a type, a path or a storage key: they are for people."""

_Text = Annotated[str, msgspec.Meta(max_length=MAX_TEXT)]
_Name = Annotated[str, msgspec.Meta(pattern=r"\A[0-9A-Za-z_-]{1,128}\Z")]
"""Of digests and artifacts: never a path."""
_Identity = Annotated[str, msgspec.Meta(pattern=r"\A[!-~]{1,128}\Z")]
"""Of a placed directory: it is compared, and has no other use."""
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e10)]

_Size = Annotated[int, msgspec.Meta(ge=0, le=MAX_SIZE_BYTES)]
_Content = tuple[_Name, _Name | None, _Name]

Entry = Record | Crashes | Sized
Key = tuple[str, str]
"""What later lines replace earlier ones by: the name of the first field, and its value."""


class Head(msgspec.Struct, frozen=True):
    """The first line."""

    format: int
    boot_id: _Text
    salt: Annotated[str, msgspec.Meta(pattern=r"\A(?:[0-9a-f]{2}){16,64}\Z")] = ""


class _Key(msgspec.Struct):
    id: str | None = None
    crash: _Name | None = None
    sized: _Name | None = None
    gone: bool = False


class _RecordLine(msgspec.Struct, kw_only=True):
    """A `Record`."""

    model_id: str = msgspec.field(name="id")
    state: Literal["loaded", "lost", "loading", "unloading", "failed", "pulling"]
    since: _Seconds
    model_type: _Text = msgspec.field(name="type")
    path: _Text
    storage_key: _Text | None = msgspec.field(default=None, name="key")
    content: _Content | None = None
    artifact_key: _Name | None = msgspec.field(default=None, name="artifact")
    size_bytes: _Size = msgspec.field(name="size")
    placed: _Identity | None = None
    confirmed: _Seconds
    named: tuple[str, str] | msgspec.UnsetType = msgspec.UNSET


class _CrashLine(msgspec.Struct):
    """`Crashes`."""

    digest: _Name = msgspec.field(name="crash")
    count: Annotated[int, msgspec.Meta(ge=0, le=10**6)]
    last: _Seconds


class _SizeLine(msgspec.Struct):
    """`Sized`."""

    spec: _Name = msgspec.field(name="sized")
    content: _Content
    model_type: _Text = msgspec.field(name="type")
    size_bytes: _Size = msgspec.field(name="size")
    source: SizeSource
    predicted_bytes: _Size = msgspec.field(name="predicted")
    spread_bytes: _Size = msgspec.field(name="spread")


class JournalProblem(Exception):
    """The file says nothing that can be believed; the text says why, for people."""


class NoJournal(JournalProblem):
    """There is no file."""


class OtherBoot(JournalProblem):
    """The machine has restarted since: the file may be older than what it tells of."""


@dataclass(frozen=True)
class Found:
    """What a file says."""

    salt: bytes
    records: dict[str, Record] = field(default_factory=dict)
    """By model id."""
    crashes: dict[str, Crashes] = field(default_factory=dict)
    """By digest."""
    sizes: dict[str, Sized] = field(default_factory=dict)
    """By the digest of what was asked for, those noted longest ago first."""

    def put(self, key: Key, entry: Entry | None) -> bool:
        """Keep this entry, or none, in place of an earlier one. False: there was none, or there are too many."""
        tables: dict[str, dict[str, Any]] = {"id": self.records, "crash": self.crashes, "sized": self.sizes}
        table = tables[key[0]]
        if entry is None:
            return table.pop(key[1], None) is not None
        if table is self.sizes:
            table.pop(key[1], None)
            if len(table) >= MOST_SIZES:
                del table[next(iter(table))]
        if key[1] not in table and len(self.records) + len(self.crashes) + len(self.sizes) >= MAX_ENTRIES:
            return False
        table[key[1]] = entry
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
        raise NoJournal("there is none") from None
    except OSError as error:
        raise JournalProblem(_REFUSED.get(error.errno or 0, f"it cannot be read: {error.strerror}")) from error
    try:
        head = msgspec.json.decode(_whole(lines.readline()), type=Head)
    except (ValueError, RecursionError):
        raise JournalProblem("its first line is not a journal's") from None
    if head.format != FORMAT:
        raise JournalProblem(f"it has format {head.format}, and this adapter reads {FORMAT}")
    if head.boot_id != boot_id:
        raise OtherBoot("the machine has restarted since it was written")
    found = Found(bytes.fromhex(head.salt))
    for key, entry in filter(None, map(read_line, map(_whole, lines))):
        found.put(key, entry)
    return found


def _whole(line: bytes) -> bytes:
    """Nothing of a line without an end, or that is too long."""
    return line if line.endswith(b"\n") and len(line) <= MAX_LINE_BYTES else b""


def key_of(entry: Entry) -> Key:
    """Of all lines on one model id, or on one content."""
    if isinstance(entry, Sized):
        return "sized", entry.content.spec
    return ("id", entry.model_id) if isinstance(entry, Record) else ("crash", entry.digest)


def head_line(boot_id: str, salt: bytes) -> bytes:
    """The first line of a file."""
    return _line(Head(FORMAT, boot_id, salt.hex()))


def line_of(entry: Entry) -> bytes:
    """What is kept of it. Texts for people are cut."""
    if isinstance(entry, Crashes):
        return _line(_CrashLine(**vars(entry)))
    if isinstance(entry, Sized):
        values = {**vars(entry), "content": tuple(vars(entry.content).values()), "model_type": entry.model_type[:MAX_TEXT]}
        return _line(_SizeLine(spec=entry.content.spec, **values))
    shown = ("model_type", "path", "storage_key")
    texts = {name: text and text[:MAX_TEXT] for name, text in vars(entry).items() if name in shown}
    content = entry.content and tuple(vars(entry.content).values())
    named = (entry.named.name, entry.named.url) if entry.named else msgspec.UNSET
    return _line(_RecordLine(**{**vars(entry), **texts, "content": content, "named": named}))


def gone_line(key: Key) -> bytes:
    """Nothing is kept any more."""
    return _line({key[0]: key[1], "gone": True})


def read_line(line: bytes) -> tuple[Key, Entry | None] | None:
    """What a line is about, and what it says (None: nothing is kept any more); None for a line that is not one."""
    try:
        found = msgspec.json.decode(line, type=_Key)
        if found.id is None and found.sized is not None:
            return ("sized", found.sized), None if found.gone else _sized(msgspec.json.decode(line, type=_SizeLine))
        if found.id is None and found.crash is not None:
            crashes = None if found.gone else Crashes(**asdict(msgspec.json.decode(line, type=_CrashLine)))
            return ("crash", found.crash), crashes
        if found.id is None or id_problem(found.id):
            return None
        return ("id", found.id), None if found.gone else _record(msgspec.json.decode(line, type=_RecordLine))
    except (ValueError, InvalidRequest, RecursionError):
        return None


def _record(line: _RecordLine) -> Record:
    """Raises InvalidRequest: no front can have named a model so."""
    content = Content(*line.content) if line.content else None
    named = Named(*line.named) if line.named else None
    return Record(**{**asdict(line), "content": content, "named": named})


def _sized(line: _SizeLine) -> Sized:
    """Raises ValueError: its content is of another request."""
    values = asdict(line)
    content = Content(*line.content)
    if content.spec != values.pop("spec"):
        raise ValueError("two requests")
    return Sized(**{**values, "content": content})


def _line(values: object) -> bytes:
    return json.dumps(msgspec.to_builtins(values), separators=(",", ":"), allow_nan=False).encode() + b"\n"
