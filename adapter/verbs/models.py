"""
What is believed of each model, what Triton's index shows, and what lies in the folder, side by side: the 3 a.m. view.

Reads and asks, and changes nothing: the journal is not locked, no folder is made, Triton is asked for its index alone. So it
works beside a running adapter, beside one that hangs, and without one. What is found is one document, shown as JSON or a table.

Ids and reasons come from the volume and from Triton, so anyone who can write either chooses them: nothing reaches a terminal
that could move its cursor, and nothing that looks like a credential.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import PurePath
from typing import Any

from adapter.errors import AdapterError, some
from adapter.journal import NAME, Found, JournalProblem, read
from adapter.memory import report
from adapter.model import PROBE, Drift, Placed, ServerModel, by_owner, drift_of, is_untouched, serves
from adapter.records import Record
from adapter.settings import SettingsError, read_group
from adapter.settings.capacity import CapacitySettings
from adapter.settings.process import TritonSettings
from adapter.settings.storage import VolumeSettings
from adapter.telemetry.redaction import redact
from adapter.triton.client import CallError, TritonClient
from adapter.triton.reason import one_line
from adapter.triton.repository import Repository
from adapter.verbs import probe
from adapter.verbs.tables import Row, age, short, shown, table
from adapter.volume.boot import boot_id, boot_seconds
from adapter.volume.volume import Volume
from adapter.workers import Workers

TRITON_SECONDS, PROBE_SECONDS, VOLUME_SECONDS = 5.0, 2.0, 20.0
"""Longest waits for what may hang: for the index, for the adapter's health, for all that is read from the volume."""
FORMAT = 1

_ARTIFACT = re.compile(r"[0-9a-f]{64}\.[0-9a-f]{16}")
"""Folder of a pulled model: its key, and what makes the name unique. One without a version has another name: it goes with its model."""
View = Mapping[str, Any]
"""As `look` gives it; also one of its `models`."""
COLUMNS = (("ADAPTER", "<9"), ("TRITON", "<9"), ("FOLDER", "<6"), ("ARTIFACT", "<8"), ("SIZE", ">6"), ("SINCE", ">6"))
DRIFTS: dict[Drift, str] = {
    "lost": "loaded, but this Triton was never asked for it: Triton has restarted",
    "not_serving": "loaded, but Triton, which had it, does not serve it",
    "no_folder": "loaded, but its files are not in the folder",
    "unknown": "the adapter knows nothing of it, or of what lies in the folder under its id",
}
"""What it means. What to do: `deploy/docs/volume.md`."""
LONGEST_REASON = 300
SHOWN_CRASHES = 3


@dataclass
class Places:
    """What volume and Triton hold."""

    problems: dict[str, str] = field(default_factory=dict)
    """Of journal, folder and triton: why it says nothing, where that is so."""
    journal: Found = field(default_factory=lambda: Found(b""))
    placed: Mapping[str, Placed] = field(default_factory=dict)
    artifacts: frozenset[str] = frozenset()
    """Keys."""
    memory: report.Report | None = None
    """The reporter's, of Triton."""
    version: str = ""
    rows: Mapping[str, list[ServerModel]] = field(default_factory=dict)
    """Of Triton's index, by model id."""


def look() -> dict[str, Any]:
    """
    Look at all places of the adapter with these settings once. Blocks, for a bounded time whatever hangs.

    Returns:
        What `models --json` prints: texts without credentials, moments as `datetime`. New fields may come; another meaning makes
        another `format`.

    Raises:
        SettingsError
        StartError: the process cannot have another thread.
    """
    volume, triton, capacity_bytes = read_group(VolumeSettings), read_group(TritonSettings), None
    with suppress(SettingsError):  # it may not be told in this environment
        capacity_bytes = read_group(CapacitySettings).capacity_bytes
    is_alive, words = probe.ask(ready=False, timeout_seconds=PROBE_SECONDS)
    is_ready, words = probe.ask(ready=True, timeout_seconds=PROBE_SECONDS) if is_alive else (False, words)
    threads = Workers("look", 1)  # a volume that hangs does not keep the process
    try:
        places = threads.submit(_on_volume, volume).result(VOLUME_SECONDS)
    except TimeoutError:
        places = Places(dict.fromkeys(("journal", "folder"), f"the volume has not answered within {VOLUME_SECONDS:g} s"))
    asyncio.run(_ask_triton(triton, places))
    records, problems, memory = places.journal.records, places.problems, places.memory
    names = sorted({*records, *places.rows, *places.placed})
    models = [_model(name, places) for name in names if not name.startswith(PROBE)]
    idle = places.artifacts - {record.artifact_key for record in records.values()}
    contents = {name: record.content.crash for name, record in records.items() if record.content}
    told = {place: redact(problems[place]) if place in problems else None for place in ("triton", "journal", "folder")}
    return {
        "format": FORMAT,
        "time": _moment(boot_seconds()),
        "agrees": not problems and not any(model["drift"] for model in models),
        "adapter": {"alive": is_alive, "ready": is_ready, "words": redact(words)},
        "triton": {"endpoint": triton.reach.target, "version": places.version or None, "problem": told["triton"]},
        "journal": {"path": str(volume.cache_dir / NAME), "problem": told["journal"]},
        "folder": {"path": str(volume.repository_dir), "problem": told["folder"]},
        "artifacts": {"count": len(places.artifacts), "idle": None if told["journal"] else len(idle)},
        "crashes": [
            {"count": each.count, "last": _moment(each.last), "models": sorted(id for id in contents if contents[id] == each.digest)}
            for each in sorted(places.journal.crashes.values(), key=lambda crashes: -crashes.last)
        ],
        "memory": {
            "told_bytes": sum(record.size_bytes for record in records.values() if record.state == "loaded"),
            "capacity_bytes": capacity_bytes,
            "used_bytes": memory and memory.used_bytes,
            "limit_bytes": memory and memory.limit_bytes,
        },
        "models": models,
    }


def _on_volume(volume: VolumeSettings) -> Places:
    """All but Triton's part, as the adapter itself reads it; a volume that was not claimed is never written to."""
    places = Places()
    with suppress(OSError):
        told = report.read(volume.memory_path)
        places.memory = told if told and abs(boot_seconds() - told.at) < report.OLD_SECONDS else None
    with suppress(OSError):
        names = [entry.name for entry in (volume.cache_dir / "artifacts").iterdir()]
        places.artifacts = frozenset(name.partition(".")[0] for name in names if _ARTIFACT.fullmatch(name))
    try:
        places.journal = read(volume.cache_dir / NAME, boot_id())
    except JournalProblem as problem:
        places.problems["journal"] = str(problem)
    if not volume.repository_dir.is_dir():
        places.problems["folder"] = "there is no such folder: is ROOT_MODEL_DIR set as for the adapter?"
        return places
    try:
        with closing(Repository(Volume(volume.repository_dir, volume.cache_dir))) as repository:
            places.placed = asyncio.run(repository.inventory())
    except (OSError, AdapterError) as error:
        places.problems["folder"] = f"it cannot be read: {error}"
    return places


def _model(name: str, places: Places) -> dict[str, Any]:
    """One of the models, and what disagrees on it. What could not be asked disagrees with nothing."""
    record, there, problems = places.journal.records.get(name), places.placed.get(name), places.problems
    rows = places.rows.get(name, [])
    is_ours = not (record and record.placed and there and record.placed != there.identity)
    state = record.state if record and is_ours else None
    drift = drift_of(name, state, rows, Placed("", 0) if "folder" in problems and state else there)
    return {
        "id": name,
        "drift": None if "journal" in problems or (drift == "not_serving" and "triton" in problems) else drift,
        "adapter": record and _noted(record, places.journal),
        "triton": None if "triton" in problems else [{**row._asdict(), "reason": redact(row.reason)} for row in rows],
        "folder": there and {"size_bytes": there.size_bytes, "placed_by_adapter": is_ours},
        "artifact": {"key": key, "exists": key in places.artifacts} if (key := record and record.artifact_key) else None,
    }


def _noted(record: Record, journal: Found) -> dict[str, Any]:
    known = journal.sizes.get(record.content.spec) if record.content else None
    size = None
    if known and known.content == record.content:
        measured = known.size_bytes if known.is_seen else None
        size = {"source": known.source, "predicted_bytes": known.predicted_bytes, "measured_bytes": measured}
    return {
        "state": record.state,
        "since": _moment(record.since),
        "confirmed": _moment(record.confirmed) if record.confirmed else None,
        "type": record.model_type,
        "path": redact(record.path),
        "storage_key": record.storage_key,
        "size_bytes": record.size_bytes,
        "size": size,
    }


def _moment(seconds: float) -> datetime:
    """Seconds since the boot of the kernel → what a clock showed."""
    return datetime.now(UTC) - timedelta(seconds=boot_seconds() - seconds)


async def _ask_triton(triton: TritonSettings, places: Places) -> None:
    """Its version, its rows, and why there are none."""
    client = TritonClient(triton.reach.target, triton.call_headers)
    try:
        async with asyncio.timeout(TRITON_SECONDS):
            _, places.version = await client.metadata()
            places.rows = by_owner(await client.index())
    except TimeoutError:
        places.problems["triton"] = f"no answer within {TRITON_SECONDS:g} s"
    except (CallError, AdapterError) as error:
        places.problems["triton"] = one_line(str(error))
    finally:
        await client.close()


def text(view: View, *, drift_only: bool) -> str:
    """The whole view: what each place says, the models that disagree, the others, and the sum."""
    lines = [f"{title:9}{shown(words)}" for title, words in _head(view)]
    models = view["models"]
    for drift, meaning in DRIFTS.items():
        if group := [model for model in models if model["drift"] == drift]:
            lines += ["", f"{drift} ({len(group):,}): {meaning}.", *table(COLUMNS, _rows(group, view)), *_reasons(group)]
    agreeing = [model for model in models if not model["drift"]]
    if agreeing and not drift_only:
        title = [f"the others ({len(agreeing):,}):"] if len(agreeing) < len(models) else []
        lines += ["", *title, *table(COLUMNS, _rows(agreeing, view))]
    return "\n".join([*lines, "", _summary(view)]) + "\n"


def as_json(view: View, *, drift_only: bool) -> str:
    """The same for programs."""
    models = [model for model in view["models"] if model["drift"] or not drift_only]
    return json.dumps({**view, "models": models}, indent=1, default=lambda moment: f"{moment:%Y-%m-%dT%H:%M:%SZ}") + "\n"


def _head(view: View) -> Iterator[tuple[str, str]]:
    """Titles and words: of each place, and of Triton's deaths."""
    adapter, triton, journal, folder, artifacts = (view[place] for place in ("adapter", "triton", "journal", "folder", "artifacts"))
    yield "adapter", f"alive, {adapter['words']}" if adapter["alive"] else adapter["words"]
    if triton["problem"]:
        yield "triton", f"cannot be asked at {triton['endpoint']}: {triton['problem']}"
    else:
        ready = sum(serves(model["id"], rows_of(model)) for model in view["models"])
        yield "triton", f"{triton['version'] or ''} at {triton['endpoint']}, serves {_count(ready, 'model')}"
    yield "journal", journal["path"] + (f": {journal['problem']}; so nothing can be compared" if journal["problem"] else "")
    yield "folder", folder["path"] + (f": {folder['problem']}" if folder["problem"] else "")
    idle = f", {artifacts['idle']:,} of them idle" if artifacts["idle"] else ""
    yield "cache", f"{PurePath(journal['path']).parent}: {_count(artifacts['count'], 'artifact')}{idle}"
    for crash in view["crashes"][:SHOWN_CRASHES]:
        who, times = some(crash["models"], 3) or "a model that is not here now", _count(crash["count"], "time")
        yield "crashes", f"Triton died {times} while it loaded {who}; last {age(view['time'] - crash['last'])} ago"


def _rows(models: Sequence[View], view: View) -> Iterator[Row]:
    for model in models:
        record, folder, artifact = model["adapter"], model["folder"], model["artifact"]
        size = (record and record["size_bytes"]) or (folder and folder["size_bytes"])
        places = {
            "journal": record["state"] if record else "-",
            "triton": triton_word(model["id"], rows_of(model)),
            "folder": "-" if not folder else "placed" if folder["placed_by_adapter"] else "other",
        }
        cells = (
            *("?" if view[place]["problem"] else word for place, word in places.items()),
            "-" if not artifact else artifact["key"][:8] if artifact["exists"] else "gone",
            "-" if size is None else short(size),
            age(view["time"] - record["since"]) if record else "-",
        )
        yield "!" if model["drift"] else " ", cells, model["id"]


def _reasons(models: Sequence[View]) -> Iterator[str]:
    """What Triton says of models that disagree."""
    for model in models:
        reasons = dict.fromkeys(" ".join(row.reason.split()) for row in rows_of(model) if row.reason not in ("", "unloaded"))
        if reasons:
            yield f"Triton says of {shown(model['id'])}: {shown('; '.join(reasons)[:LONGEST_REASON])}"


def rows_of(model: View) -> list[ServerModel]:
    """Of Triton's index."""
    return [ServerModel(**row) for row in model["triton"] or ()]


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
    if view["journal"]["problem"]:
        return f"{total}; what the adapter believes is not known, so nothing was compared."
    states = Counter(model["adapter"]["state"] if model["adapter"] else "not known to the adapter" for model in models)
    parts = ", ".join(f"{count:,} {state}" for state, count in states.most_common())
    drifting = sum(bool(model["drift"]) for model in models)
    end = "all agree" if view["agrees"] else f"{drifting:,} disagree{'s' * (drifting == 1)}" if drifting else "none is known to disagree"
    unasked = [who for who, place in (("Triton", "triton"), ("the folder", "folder")) if view[place]["problem"]]
    more = f", but {' and '.join(unasked)} could not be asked" if unasked else ""
    return f"{total}{f' ({parts})' if parts else ''}: {end}{more}."


def _count(number: int, what: str) -> str:
    return f"{number:,} {what if number == 1 else what + 's'}"
