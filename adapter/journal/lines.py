"""
One line of the journal: an entry as JSON, and what a line may say to be believed. Pure.

Lines are ASCII, so that a terminal shows them safely. Any process that can write the volume can write a line: every
value has a type, a bound and an alphabet, and a line with a wrong value says nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from adapter.errors import InvalidRequest
from adapter.model import MAX_SIZE_BYTES, Content, Crashes, Named, Record, id_problem

FORMAT = 1
MAX_LINE_BYTES = 64 * 1024
"""JSON of ASCII has up to 6 bytes for one of UTF-8: a name and a url of the greatest length fit."""
MAX_TEXT = 200
"""Characters of a type, a path or a storage key: they are for people."""
_MAX_COUNT = 10**6

_Text = Annotated[str, msgspec.Meta(max_length=MAX_TEXT)]
_Name = Annotated[str, msgspec.Meta(pattern=r"\A[0-9A-Za-z_-]{1,128}\Z")]
"""Of digests and artifacts: never a path."""
_Identity = Annotated[str, msgspec.Meta(pattern=r"\A[!-~]{1,128}\Z")]
"""Of a placed directory: it is compared, and has no other use."""
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e10)]

Entry = Record | Crashes
Key = tuple[str, str]
"""What later lines replace earlier ones by: a kind and a name."""


_SHORT = {
    "model_id": "id",
    "model_type": "type",
    "storage_key": "key",
    "artifact_key": "artifact",
    "size_bytes": "size",
}
"""What a line calls the fields of a `Record`, where it is another word."""


class Head(msgspec.Struct, frozen=True):
    """The first line."""

    format: int
    boot_id: _Text
    salt: str = ""


class _Key(msgspec.Struct):
    id: str | None = None
    crash: str | None = None
    gone: bool = False


class _RecordLine(msgspec.Struct, kw_only=True, rename=_SHORT.get):
    """A `Record`."""

    model_id: str
    state: Literal["loaded", "lost", "loading", "unloading", "failed", "pulling"]
    since: _Seconds
    model_type: _Text
    path: _Text
    storage_key: _Text | None = None
    content: tuple[_Name, _Name | None, _Name] | None = None
    artifact_key: _Name | None = None
    size_bytes: Annotated[int, msgspec.Meta(ge=0, le=MAX_SIZE_BYTES)]
    placed: _Identity | None = None
    confirmed: _Seconds
    named: tuple[str, str] | msgspec.UnsetType = msgspec.UNSET


class _CrashLine(msgspec.Struct):
    crash: _Name
    count: Annotated[int, msgspec.Meta(ge=0, le=_MAX_COUNT)]
    last: _Seconds


class _Salt(msgspec.Struct):
    salt: Annotated[str, msgspec.Meta(pattern=r"\A(?:[0-9a-f]{2}){16,64}\Z")]


def key_of(entry: Entry) -> Key:
    """Of all lines on one model id, or on one content."""
    return ("id", entry.model_id) if isinstance(entry, Record) else ("crash", entry.digest)


def head_line(boot_id: str, salt: bytes) -> bytes:
    """The first line of a file."""
    return _line({"format": FORMAT, "boot_id": boot_id, "salt": salt.hex()})


def line_of(entry: Entry) -> bytes:
    """What is kept of it. Texts for people are cut."""
    if isinstance(entry, Crashes):
        return _line({"crash": entry.digest, "count": min(entry.count, _MAX_COUNT), "last": entry.last})
    line = _RecordLine(**{
        **vars(entry),
        "model_type": entry.model_type[:MAX_TEXT],
        "path": entry.path[:MAX_TEXT],
        "storage_key": entry.storage_key and entry.storage_key[:MAX_TEXT],
        "content": entry.content and tuple(vars(entry.content).values()),
        "named": (entry.named.name, entry.named.url) if entry.named else msgspec.UNSET,
    })  # fmt: skip
    return _line(msgspec.to_builtins(line))


def gone_line(key: Key) -> bytes:
    """Nothing is kept any more."""
    return _line({key[0]: key[1], "gone": True})


def read_head(line: bytes) -> Head | None:
    """None: this is no journal."""
    try:
        head = msgspec.json.decode(line, type=Head)
        if head.format == FORMAT:
            msgspec.json.decode(line, type=_Salt)
    except (ValueError, RecursionError):
        return None
    return head


def read_line(line: bytes) -> tuple[Key, Entry | None] | None:
    """What a line is about, and what it says (None: nothing is kept any more); None for a line that is not one."""
    try:
        found = msgspec.json.decode(line, type=_Key)
        if found.id is not None:
            if id_problem(found.id):
                return None
            return ("id", found.id), None if found.gone else _record(msgspec.json.decode(line, type=_RecordLine))
        if found.gone:
            return ("crash", msgspec.convert(found.crash, _Name)), None
        crash = msgspec.json.decode(line, type=_CrashLine)
    except (ValueError, InvalidRequest, RecursionError):
        return None
    return ("crash", crash.crash), Crashes(digest=crash.crash, count=crash.count, last=crash.last)


def _record(line: _RecordLine) -> Record:
    """Raises InvalidRequest: no front can have named a model so."""
    content = Content(*line.content) if line.content else None
    named = Named(*line.named) if line.named else None
    return Record(**{**msgspec.structs.asdict(line), "content": content, "named": named})


def _line(values: Mapping[str, object]) -> bytes:
    return json.dumps(values, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode() + b"\n"
