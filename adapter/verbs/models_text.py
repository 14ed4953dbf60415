"""
How the view of all models looks: a table for a terminal, JSON for programs.

Ids and reasons come from the volume and from Triton, so anyone who can write either chooses them: nothing reaches a terminal
that could move its cursor, and nothing that looks like a credential.
"""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from adapter.errors import some
from adapter.inventory import Drift, is_untouched, serves
from adapter.lifecycle.crashes import MOST_CRASHES, REMEMBERED_SECONDS
from adapter.model import Crashes
from adapter.telemetry.redaction import redact
from adapter.verbs.models import Sight, View

JSON_FORMAT = 1
MIN_WIDTH = 60
COLUMNS = (("ADAPTER", "<9"), ("TRITON", "<9"), ("FOLDER", "<6"), ("ARTIFACT", "<8"), ("SIZE", ">6"), ("SINCE", ">6"))
"""The id comes last, so that it is never cut."""
UNDER_WAY = ("pulling", "loading", "unloading")
DRIFTS: dict[Drift, tuple[str, str]] = {
    "lost": ("loaded, but this Triton was never asked for it: Triton has restarted", "wait: the adapter loads it again"),
    "not_serving": (
        "loaded, but Triton, which had it, does not serve it", "read what Triton says; the next load of it begins anew",
    ),
    "no_folder": (
        "loaded, but its files are not in the folder", "find out who deletes files on the volume; the next load of it begins anew",
    ),
    "unknown": (
        "the adapter knows nothing of it, or of what lies in the folder under its id",
        "find out who else loads models here; an unload of it frees it",
    ),
}  # fmt: skip
"""What it means, and what to do with the adapter alive; without, it must be started first."""
LONGEST_REASON = 300
SHOWN_CRASHES = 3


def text(view: View, *, columns: int, drift_only: bool) -> str:
    """The whole view, in lines of these columns as far as ids allow."""
    width = max(columns, MIN_WIDTH)
    lines = [line for title, words in _head(view) for line in _wrapped(shown(redact(words)), width, f"{title:9}", " " * 9)]
    lines.append("")
    for drift, (meaning, advice) in DRIFTS.items():
        if group := [sight for sight in view.models if sight.drift == drift]:
            what_to_do = advice if view.health.is_alive else "start the adapter"
            lines += [*_wrapped(f"{drift} ({len(group):,}): {meaning}; {what_to_do}.", width), *_table(group, view, width), ""]
    agreeing = [sight for sight in view.models if not sight.drift]
    if agreeing and not drift_only:
        title = [f"the others ({len(agreeing):,}):"] if len(agreeing) < len(view.models) else []
        lines += [*title, *_table(agreeing, view, width), ""]
    return "\n".join([*lines, *_wrapped(_summary(view), width)]) + "\n"


def as_json(view: View, *, drift_only: bool) -> str:
    """The same for programs. New fields may come; another meaning makes another `format`."""
    places = view.places
    document = {
        "format": JSON_FORMAT,
        "time": _time(view, view.now),
        "agrees": view.agrees,
        "adapter": {"alive": view.health.is_alive, "ready": view.health.is_ready, "words": redact(view.health.words)},
        "triton": {
            "endpoint": places.triton.target, "version": view.triton_version or None, "problem": _redacted(view.triton_problem),
        },
        "journal": {"path": str(places.journal), "problem": _redacted(view.journal_problem)},
        "folder": {"path": str(places.volume.repository_dir), "problem": _redacted(view.folder_problem)},
        "artifacts": {"count": len(view.artifacts), "idle": view.idle_artifacts if view.journal_problem is None else None},
        "crashes": [{"count": crashes.count, "last": _time(view, crashes.last), "models": ids} for crashes, ids in _crashes(view)],
        "models": [_model(sight, view) for sight in view.models if sight.drift or not drift_only],
    }  # fmt: skip
    return json.dumps(document, indent=1) + "\n"


def shown(text: str) -> str:
    """What is safe on a terminal: whatever is not printable is written as an escape, and so is a backslash."""
    return "".join(
        letter if letter.isprintable() and letter != "\\" else letter.encode("unicode_escape", "backslashreplace").decode()
        for letter in text
    )


def _head(view: View) -> Iterator[tuple[str, str]]:
    """Titles and words: of each place, and of Triton's deaths."""
    health, places, records = view.health, view.places, [sight.record for sight in view.models if sight.record]
    yield "adapter", f"alive, {health.words}" if health.is_alive else health.words
    if not health.is_alive and view.journal_problem is None and records:
        ended = "so ADAPTER shows what it noted last; nothing is loaded, unloaded or restored until it answers"
        cut = sum(record.state in UNDER_WAY for record in records)
        undone = f"; {_count(cut, 'model was', 'models were')} under way: the next adapter finishes or undoes that"
        yield "", ended + (undone if cut else "")
    if view.triton_problem is None:
        ready = sum(serves(sight.model_id, sight.rows) for sight in view.models)
        yield "triton", f"{view.triton_version} at {places.triton.target}, serves {_count(ready, 'model')}"
    else:
        yield "triton", f"cannot be asked at {places.triton.target}: {view.triton_problem}"
    newest = max((max(record.since, record.confirmed) for record in records), default=None)
    if view.journal_problem is not None:
        yield "journal", f"{places.journal}: {view.journal_problem}; so nothing can be compared"
    else:
        yield "journal", f"{places.journal}" + ("" if newest is None else f": newest state {_age(view.now - newest)} old")
    yield "folder", f"{places.volume.repository_dir}" + (f": {view.folder_problem}" if view.folder_problem else "")
    idle = f", {view.idle_artifacts:,} of them idle" if view.idle_artifacts and view.journal_problem is None else ""
    yield "cache", f"{places.volume.cache_dir}: {_count(len(view.artifacts), 'artifact')}{idle}"
    died = _crashes(view)
    for crashes, ids in died[:SHOWN_CRASHES]:
        who, times = some(ids, 3) or "a model that is not here now", _count(crashes.count, "time")
        since = view.now - crashes.last
        is_refused = crashes.count >= MOST_CRASHES and since < REMEMBERED_SECONDS
        refused = f"; refused until it changes, or {_age(REMEMBERED_SECONDS - since)} pass" if is_refused else ""
        yield "crashes", f"Triton died {times} while it loaded {who}; last {_age(since)} ago{refused}"
    if died[SHOWN_CRASHES:]:
        yield "", f"and while it loaded {_count(len(died) - SHOWN_CRASHES, 'other content')}"


def _table(sights: list[Sight], view: View, width: int) -> Iterator[str]:
    yield f"  {_row(title for title, _ in COLUMNS)}  MODEL"
    for sight in sights:
        record = sight.record
        cells = (
            "?" if view.journal_problem is not None else record.state if record else "-",
            "?" if view.triton_problem is not None else triton_word(sight),
            "?" if view.folder_problem is not None else "-" if sight.placed is None else "other" if sight.is_placed_anew else "placed",
            (record.artifact_key[:8] if sight.has_artifact else "gone") if record and record.artifact_key else "-",
            _size(sight),
            _age(view.now - record.since) if record else "-",
        )
        yield f"{'!' if sight.drift else ' '} {_row(cells)}  {shown(sight.model_id)}"
        reasons = dict.fromkeys(" ".join(row.reason.split()) for row in sight.rows if row.reason not in ("", "unloaded"))
        if sight.drift and reasons:
            yield from _wrapped(f"Triton says: {shown(redact('; '.join(reasons))[:LONGEST_REASON])}", width, " " * 6, " " * 6)


def _row(cells: Iterable[str]) -> str:
    return "  ".join(f"{cell:{size}}" for cell, (_, size) in zip(cells, COLUMNS, strict=True))


def triton_word(sight: Sight) -> str:
    """Of all versions, and of a bundle of all models, one word."""
    states = {row.state for row in sight.rows}
    reasons = {row.reason for row in sight.rows if row.state == "UNAVAILABLE"}
    words = (
        (not sight.rows, "-"),
        ("LOADING" in states, "loading"),
        ("UNLOADING" in states, "unloading"),
        (serves(sight.model_id, sight.rows), "ready"),
        ("READY" in states, "partly"),
        (is_untouched(sight.rows), "not asked"),
        (reasons == {"unloaded"}, "unloaded"),
    )
    return next((word for is_so, word in words if is_so), "failed")


def _summary(view: View) -> str:
    total = _count(len(view.models), "model")
    if view.journal_problem is not None:
        return f"{total}; what the adapter believes is not known, so nothing was compared."
    states = Counter(sight.record.state if sight.record else "not known to the adapter" for sight in view.models)
    parts = ", ".join(f"{count:,} {state}" for state, count in states.most_common())
    drifting = sum(bool(sight.drift) for sight in view.models)
    end = "all agree" if view.agrees else f"{drifting:,} disagree{'s' * (drifting == 1)}" if drifting else "none is known to disagree"
    unasked = [who for who, problem in (("Triton", view.triton_problem), ("the folder", view.folder_problem)) if problem is not None]
    if unasked:
        end += f", but {' and '.join(unasked)} could not be asked"
    return f"{total}{f' ({parts})' if parts else ''}: {end}."


def _model(sight: Sight, view: View) -> dict[str, Any]:
    record, placed = sight.record, sight.placed
    return {
        "id": sight.model_id,
        "drift": sight.drift,
        "adapter": None if record is None else {
            "state": record.state,
            "since": _time(view, record.since),
            "confirmed": _time(view, record.confirmed) if record.confirmed else None,
            "type": record.model_type,
            "path": redact(record.path),
            "storage_key": record.storage_key,
            "size_bytes": record.size_bytes,
        },
        "triton": None if view.triton_problem is not None else [
            {"name": row.name, "version": row.version, "state": row.state, "reason": redact(row.reason)} for row in sight.rows
        ],
        "folder": None if placed is None else {"size_bytes": placed.size_bytes, "placed_by_adapter": not sight.is_placed_anew},
        "artifact": {"key": record.artifact_key, "exists": sight.has_artifact} if record and record.artifact_key else None,
    }  # fmt: skip


def _crashes(view: View) -> list[tuple[Crashes, list[str]]]:
    """The latest first, each with the models that have this content."""
    ids: dict[str, list[str]] = {}
    for sight in view.models:
        if sight.record and sight.record.content:
            ids.setdefault(sight.record.content.crash, []).append(sight.model_id)
    return [(crashes, ids.get(crashes.digest, [])) for crashes in sorted(view.crashes.values(), key=lambda crashes: -crashes.last)]


def _size(sight: Sight) -> str:
    told = sight.record.size_bytes if sight.record else 0
    if not told and sight.placed is None:
        return "-"
    size: float = told or (sight.placed.size_bytes if sight.placed else 0)
    for unit in ("", "K", "M", "G", "T", "P", "E"):
        if size < 1000 or unit == "E" or (not unit and size < 1024):
            break
        size /= 1024
    return f"{size:.0f}{unit}" if not unit or size >= 100 else f"{size:.3g}{unit}"


def _age(seconds: float) -> str:
    """Two units at most: 45s, 3m12s, 2h05m, 4d03h."""
    whole = max(0, int(seconds))
    for size, unit, part, smaller in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            return f"{whole // size}{unit}{whole % size // part:02}{smaller}"
    return f"{whole}s"


def _time(view: View, seconds: float) -> str:
    """Of seconds since the boot of the kernel, the date."""
    return datetime.fromtimestamp(max(0.0, view.clock - view.now + seconds), UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _redacted(words: str | None) -> str | None:
    return None if words is None else redact(words)


def _wrapped(words: str, width: int, first: str = "", indent: str = "") -> list[str]:
    return textwrap.wrap(words, width, initial_indent=first, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
