"""
How the view of all models looks: a table for a terminal, JSON for programs.

Ids and reasons come from the volume and from Triton, so anyone who can write either chooses them: nothing reaches a terminal
that could move its cursor, and nothing that looks like a credential.
"""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import PurePath
from typing import Any

from adapter.errors import some
from adapter.inventory import Drift, is_untouched, serves
from adapter.lifecycle.facts import MOST_CRASHES, REMEMBERED_SECONDS
from adapter.model import ServerModel
from adapter.telemetry.redaction import redact

View = Mapping[str, Any]
Model = Mapping[str, Any]
"""As `models.look` gives it, and one of its `models`."""
MIN_WIDTH = 60
COLUMNS = (("ADAPTER", "<9"), ("TRITON", "<9"), ("FOLDER", "<6"), ("ARTIFACT", "<8"), ("SIZE", ">6"), ("SINCE", ">6"))
"""The id comes last, so that it is never cut."""
SIZE_COLUMNS = (("SIZE", ">6"), ("SOURCE", "<9"), ("PREDICTED", ">9"), ("MEASURED", ">8"), ("SINCE", ">6"), ("STATE", "<9"))
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
    width, models = max(columns, MIN_WIDTH), view["models"]
    lines = [line for title, words in _head(view) for line in _wrapped(shown(redact(words)), width, f"{title:9}", " " * 9)]
    lines.append("")
    for drift, (meaning, advice) in DRIFTS.items():
        if group := [model for model in models if model["drift"] == drift]:
            what_to_do = advice if view["adapter"]["alive"] else "start the adapter"
            lines += [*_wrapped(f"{drift} ({len(group):,}): {meaning}; {what_to_do}.", width), *_table(group, view, width), ""]
    agreeing = [model for model in models if not model["drift"]]
    if agreeing and not drift_only:
        title = [f"the others ({len(agreeing):,}):"] if len(agreeing) < len(models) else []
        lines += [*title, *_table(agreeing, view, width), ""]
    return "\n".join([*lines, *_wrapped(_summary(view), width)]) + "\n"


def sizes(view: View, *, columns: int) -> str:
    """How much memory each model has, and where that number comes from, the largest first."""
    records = sorted((model for model in view["models"] if model["adapter"]), key=lambda model: -model["adapter"]["size_bytes"])
    lines = [_bar(view["memory"], max(columns, MIN_WIDTH)), "", f"  {_row((title for title, _ in SIZE_COLUMNS), SIZE_COLUMNS)}  MODEL"]
    for model in records:
        record, size = model["adapter"], model["adapter"]["size"] or {}
        amounts = (record["size_bytes"], size.get("predicted_bytes"), size.get("measured_bytes"))
        told, predicted, measured = (_short(amount) if amount else "-" for amount in amounts)
        cells = (told, size.get("source", "-"), predicted, measured, _age(view["time"] - record["since"]), record["state"])
        lines.append(f"  {_row(cells, SIZE_COLUMNS)}  {shown(model['id'])}")
    return "\n".join(lines) + "\n"


def _bar(memory: Mapping[str, Any], width: int) -> str:
    """The sum of what ModelMesh was told, against the capacity; and what Triton takes in truth."""
    told, capacity, used, limit = (memory[name] for name in ("told_bytes", "capacity_bytes", "used_bytes", "limit_bytes"))
    words = f"{_short(told)} of models" + (f" of {_short(capacity)} capacity" if capacity else "")
    truth = "sizes are estimates" if used is None else f"Triton takes {_short(used)}" + (f" of {_short(limit)}" if limit else "")
    left = max(width - len(words) - len(truth) - 6, 10)
    filled = min(left, round(left * told / capacity)) if capacity else 0
    bar = f"[{'#' * filled:.<{left}}] " if capacity else ""
    return f"{bar}{words}; {truth}"


def as_json(view: View, *, drift_only: bool) -> str:
    """The same for programs."""
    models = [model for model in view["models"] if model["drift"] or not drift_only]
    return json.dumps({**view, "models": models}, indent=1, default=_iso) + "\n"


def shown(text: str) -> str:
    """What is safe on a terminal: whatever is not printable is written as an escape, and so is a backslash."""
    return "".join(
        letter if letter.isprintable() and letter != "\\" else letter.encode("unicode_escape", "backslashreplace").decode()
        for letter in text
    )


def _head(view: View) -> Iterator[tuple[str, str]]:
    """Titles and words: of each place, and of Triton's deaths."""
    adapter, triton, journal, folder = view["adapter"], view["triton"], view["journal"], view["folder"]
    records = [model["adapter"] for model in view["models"] if model["adapter"]]
    yield "adapter", f"alive, {adapter['words']}" if adapter["alive"] else adapter["words"]
    if not adapter["alive"] and journal["problem"] is None and records:
        ended = "so ADAPTER shows what it noted last; nothing is loaded, unloaded or restored until it answers"
        cut = sum(record["state"] in UNDER_WAY for record in records)
        undone = f"; {_count(cut, 'model was', 'models were')} under way: the next adapter finishes or undoes that"
        yield "", ended + (undone if cut else "")
    if triton["problem"] is None:
        ready = sum(serves(model["id"], rows_of(model)) for model in view["models"])
        yield "triton", f"{triton['version'] or ''} at {triton['endpoint']}, serves {_count(ready, 'model')}"
    else:
        yield "triton", f"cannot be asked at {triton['endpoint']}: {triton['problem']}"
    newest = max((max(record["since"], record["confirmed"] or record["since"]) for record in records), default=None)
    if journal["problem"] is not None:
        yield "journal", f"{journal['path']}: {journal['problem']}; so nothing can be compared"
    else:
        yield "journal", journal["path"] + ("" if newest is None else f": newest state {_age(view['time'] - newest)} old")
    yield "folder", folder["path"] + (f": {folder['problem']}" if folder["problem"] else "")
    idle = f", {view['artifacts']['idle']:,} of them idle" if view["artifacts"]["idle"] else ""
    yield "cache", f"{PurePath(journal['path']).parent}: {_count(view['artifacts']['count'], 'artifact')}{idle}"
    for crash in view["crashes"][:SHOWN_CRASHES]:
        who, times = some(crash["models"], 3) or "a model that is not here now", _count(crash["count"], "time")
        since = view["time"] - crash["last"]
        left = timedelta(seconds=REMEMBERED_SECONDS) - since
        refused = f"; refused until it changes, or {_age(left)} pass" if crash["count"] >= MOST_CRASHES and left > timedelta() else ""
        yield "crashes", f"Triton died {times} while it loaded {who}; last {_age(since)} ago{refused}"
    if view["crashes"][SHOWN_CRASHES:]:
        yield "", f"and while it loaded {_count(len(view['crashes']) - SHOWN_CRASHES, 'other content')}"


def _table(models: Sequence[Model], view: View, width: int) -> Iterator[str]:
    yield f"  {_row(title for title, _ in COLUMNS)}  MODEL"
    for model in models:
        record, folder, artifact = model["adapter"], model["folder"], model["artifact"]
        cells = (
            "?" if view["journal"]["problem"] is not None else record["state"] if record else "-",
            "?" if view["triton"]["problem"] is not None else triton_word(model["id"], rows_of(model)),
            "?" if view["folder"]["problem"] is not None else "-" if not folder else "placed" if folder["placed_by_adapter"] else "other",
            "-" if not artifact else artifact["key"][:8] if artifact["exists"] else "gone",
            _size(model),
            _age(view["time"] - record["since"]) if record else "-",
        )
        yield f"{'!' if model['drift'] else ' '} {_row(cells)}  {shown(model['id'])}"
        reasons = dict.fromkeys(" ".join(row.reason.split()) for row in rows_of(model) if row.reason not in ("", "unloaded"))
        if model["drift"] and reasons:
            yield from _wrapped(f"Triton says: {shown(redact('; '.join(reasons))[:LONGEST_REASON])}", width, " " * 6, " " * 6)


def rows_of(model: Model) -> list[ServerModel]:
    """Of Triton's index."""
    return [ServerModel(**row) for row in model["triton"] or ()]


def _row(cells: Iterable[str], columns: Sequence[tuple[str, str]] = COLUMNS) -> str:
    return "  ".join(f"{cell:{size}}" for cell, (_, size) in zip(cells, columns, strict=True))


def triton_word(model_id: str, rows: Sequence[ServerModel]) -> str:
    """Of all versions, and of a bundle of all models, one word."""
    states = {row.state for row in rows}
    reasons = {row.reason for row in rows if row.state == "UNAVAILABLE"}
    words = (
        (not rows, "-"),
        ("LOADING" in states, "loading"),
        ("UNLOADING" in states, "unloading"),
        (serves(model_id, rows), "ready"),
        ("READY" in states, "partly"),
        (is_untouched(rows), "not asked"),
        (reasons == {"unloaded"}, "unloaded"),
    )
    return next((word for is_so, word in words if is_so), "failed")


def _summary(view: View) -> str:
    models = view["models"]
    total = _count(len(models), "model")
    if view["journal"]["problem"] is not None:
        return f"{total}; what the adapter believes is not known, so nothing was compared."
    states = Counter(model["adapter"]["state"] if model["adapter"] else "not known to the adapter" for model in models)
    parts = ", ".join(f"{count:,} {state}" for state, count in states.most_common())
    drifting = sum(bool(model["drift"]) for model in models)
    end = "all agree" if view["agrees"] else f"{drifting:,} disagree{'s' * (drifting == 1)}" if drifting else "none is known to disagree"
    unasked = [who for who, place in (("Triton", "triton"), ("the folder", "folder")) if view[place]["problem"] is not None]
    if unasked:
        end += f", but {' and '.join(unasked)} could not be asked"
    return f"{total}{f' ({parts})' if parts else ''}: {end}."


def _size(model: Model) -> str:
    told = model["adapter"]["size_bytes"] if model["adapter"] else 0
    if not told and model["folder"] is None:
        return "-"
    return _short(told or model["folder"]["size_bytes"])


def _short(size: float) -> str:
    units = iter("KMGTPE")
    unit = ""
    while size >= (1000 if unit else 1024) and unit != "E":
        size, unit = size / 1024, next(units)
    return f"{size:.0f}{unit}" if not unit or size >= 100 else f"{size:.3g}{unit}"


def _age(time: timedelta) -> str:
    """Two units at most: 45s, 3m12s, 2h05m, 4d03h."""
    whole = max(0, int(time.total_seconds()))
    for size, unit, part, smaller in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            return f"{whole // size}{unit}{whole % size // part:02}{smaller}"
    return f"{whole}s"


def _iso(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _wrapped(words: str, width: int, first: str = "", indent: str = "") -> list[str]:
    return textwrap.wrap(words, width, initial_indent=first, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
