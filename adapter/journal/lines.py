"""
One line of the journal: an entry as JSON, and what a line may say to be believed. Pure.

Lines are ASCII, so that nobody's terminal is in danger. A line that is read was written by anybody who can write the
volume: every value has a type, a bound and an alphabet, and a line with a wrong one says nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from adapter.errors import InvalidRequest
from adapter.inventory import HELD
from adapter.model import MAX_SIZE_BYTES, MAX_URL_BYTES, Content, Crashes, Named, Record, id_problem

FORMAT = 1
MAX_LINE_BYTES = 64 * 1024
"""JSON of ASCII has up to 6 bytes for one of UTF-8: a name and a url of the greatest length fit."""
MAX_TEXT = 200
"""Characters of a type, a path or a storage key: they are for people."""
_MAX_COUNT = 10**6
_MAX_SECONDS = 1e10
_NAME = re.compile(r"[0-9A-Za-z_-]{1,128}")
"""Of digests and artifacts: never a path."""
_IDENTITY = re.compile(r"[!-~]{1,128}")
"""Of a placed directory: compared, and nothing else."""
_SALT = re.compile(r"(?:[0-9a-f]{2}){16,64}")

Entry = Record | Crashes
Key = tuple[str, str]
"""What later lines replace earlier ones by: a kind and a name."""


@dataclass(frozen=True)
class Head:
    """The first line."""

    format: int
    boot_id: str
    salt: bytes


def key_of(entry: Entry) -> Key:
    """Of all lines on one model id, or on one content."""
    return ("id", entry.model_id) if isinstance(entry, Record) else ("crash", entry.digest)


def head_line(boot_id: str, salt: bytes) -> bytes:
    """The first line of a file."""
    return _line({"format": FORMAT, "boot_id": boot_id, "salt": salt.hex()})


def line_of(entry: Entry) -> bytes:
    """What is kept of it. Texts for people are cut."""
    kind, name = key_of(entry)
    if isinstance(entry, Crashes):
        return _line({kind: name, "count": min(entry.count, _MAX_COUNT), "last": entry.last})
    content = entry.content
    return _line({
        kind: name,
        "state": entry.state,
        "since": entry.since,
        "type": entry.model_type[:MAX_TEXT],
        "path": entry.path[:MAX_TEXT],
        "key": entry.storage_key[:MAX_TEXT] if entry.storage_key is not None else None,
        "content": [content.spec, content.listing, content.crash] if content else None,
        "artifact": entry.artifact_key,
        "size": entry.size_bytes,
        "placed": entry.placed,
        "confirmed": entry.confirmed,
        **({"named": [entry.named.name, entry.named.url]} if entry.named else {}),
    })  # fmt: skip


def gone_line(key: Key) -> bytes:
    """Nothing is kept any more."""
    return _line({key[0]: key[1], "gone": True})


def read_head(line: bytes) -> Head | None:
    """None: this is no journal."""
    try:
        found = _object(line)
        number, boot_id = found.get("format"), _text(found, "boot_id")
        if type(number) is not int:
            return None
        salt = _text(found, "salt") if number == FORMAT else ""
    except ValueError:
        return None
    if number == FORMAT and not _SALT.fullmatch(salt):
        return None
    return Head(number, boot_id, bytes.fromhex(salt))


def read_line(line: bytes) -> tuple[Key, Entry | None] | None:
    """Whom a line is about, and what it says (None: nothing is kept any more); None for a line that is not one."""
    try:
        found = _object(line)
        entry = _record(found) if "id" in found else _crashes(found)
    except ValueError:
        return None
    return key_of(entry), None if found.get("gone") is True else entry


def _line(values: Mapping[str, object]) -> bytes:
    return json.dumps(values, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode() + b"\n"


def _object(line: bytes) -> dict[str, object]:
    try:
        found = json.loads(line)
    except RecursionError:
        found = None  # nested too deep
    if isinstance(found, dict):
        return found
    raise ValueError("not an object")


def _record(found: Mapping[str, object]) -> Record:
    model_id = _text(found, "id", 255)
    if id_problem(model_id) or not _is_text(model_id):
        raise ValueError("id")
    if found.get("gone") is True:
        return Record(model_id=model_id, state="", since=0)
    state = _text(found, "state")
    if state not in HELD:
        raise ValueError("state")
    return Record(
        model_id=model_id,
        state=state,
        since=_seconds(found, "since"),
        model_type=_text(found, "type"),
        path=_text(found, "path"),
        storage_key=_text(found, "key") if found.get("key") is not None else None,
        content=_content(found.get("content")),
        artifact_key=_name(found.get("artifact")) if found.get("artifact") is not None else None,
        size_bytes=_whole(found, "size", MAX_SIZE_BYTES),
        placed=_name(found.get("placed"), _IDENTITY) if found.get("placed") is not None else None,
        confirmed=_seconds(found, "confirmed"),
        named=_named(found.get("named")),
    )


def _crashes(found: Mapping[str, object]) -> Crashes:
    digest = _name(found.get("crash"))
    if found.get("gone") is True:
        return Crashes(digest=digest, count=0, last=0)
    return Crashes(digest=digest, count=_whole(found, "count", _MAX_COUNT), last=_seconds(found, "last"))


def _content(value: object) -> Content | None:
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 3:
        raise ValueError("content")
    spec, listing, crash = value
    return Content(_name(spec), None if listing is None else _name(listing), _name(crash))


def _named(value: object) -> Named | None:
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError("named")
    name, url = (_text({"named": part}, "named", MAX_URL_BYTES) for part in value)
    try:
        return Named(name, url)
    except InvalidRequest as error:
        raise ValueError("named") from error


def _text(found: Mapping[str, object], name: str, most: int = MAX_TEXT) -> str:
    value = found.get(name)
    if not isinstance(value, str) or len(value) > most or not _is_text(value):
        raise ValueError(name)
    return value


def _is_text(value: str) -> bool:
    """Half of a pair of surrogates cannot be sent to anybody."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _name(value: object, pattern: re.Pattern[str] = _NAME) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise ValueError("name")
    return value


def _whole(found: Mapping[str, object], name: str, most: int) -> int:
    value = found.get(name)
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(name)
    return value


def _seconds(found: Mapping[str, object], name: str) -> float:
    value = found.get(name)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value <= _MAX_SECONDS:  # NaN is in no range
        raise ValueError(name)
    return float(value)
