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
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePath
from typing import Any

from adapter.errors import AdapterError, some
from adapter.journal.file import NAME, Found, JournalProblem, NoJournal, read
from adapter.lifecycle.facts import MOST_CRASHES, REMEMBERED_SECONDS
from adapter.memory.report import Report
from adapter.model import PROBE, Drift, Placed, ServerModel, by_owner, drift_of, is_untouched, serves
from adapter.settings.process import TritonSettings
from adapter.settings.storage import VolumeSettings
from adapter.telemetry.redaction import redact
from adapter.triton.client import CallError, TritonClient
from adapter.triton.reason import one_line
from adapter.triton.repository import Repository
from adapter.verbs import sizes
from adapter.verbs.cells import age, short, shown
from adapter.volume.boot import boot_id, boot_seconds
from adapter.volume.volume import Volume
from adapter.workers import Threads

TRITON_SECONDS = 5.0
PROBE_SECONDS = 2.0
VOLUME_SECONDS = 20.0
"""Longest waits for what may hang: for the index, for the adapter's health, for all that is read from the volume."""
FORMAT = 1

_ARTIFACT = re.compile(r"[0-9a-f]{64}\.[0-9a-f]{16}")
"""Folder of a pulled model: its key, and what makes the name unique."""
AskAdapter = Callable[..., tuple[bool, Sequence[str]]]
"""Called with `ready` and `timeout_seconds`: whether the adapter is alive (or ready), and lines that say so, or why not."""
View = Mapping[str, Any]
"""As `look` gives it; also one of its `models`."""
MIN_WIDTH = 60
COLUMNS = (("ADAPTER", "<9"), ("TRITON", "<9"), ("FOLDER", "<6"), ("ARTIFACT", "<8"), ("SIZE", ">6"), ("SINCE", ">6"))
"""The id comes last, so that it is never cut."""
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


def look(ask_adapter: AskAdapter, triton: TritonSettings, volume: VolumeSettings, capacity_bytes: int | None = None) -> dict[str, Any]:
    """
    Look at all places once. Blocks, for a bounded time whatever hangs. Raises StartError: the process cannot have another thread.

    Args:
        ask_adapter: for its health.
        triton: where it is.
        volume: where its folders are.
        capacity_bytes: what is announced, if that is known here.

    Returns:
        What `models --json` prints: texts without credentials, moments as `datetime`. New fields may come; another meaning makes
        another `format`.
    """
    is_ready = False
    is_alive, lines = ask_adapter(ready=False, timeout_seconds=PROBE_SECONDS)
    if is_alive:
        is_ready, lines = ask_adapter(ready=True, timeout_seconds=PROBE_SECONDS)
    problems = dict[str, str | None]()
    threads = Threads("look", 1)  # a volume that hangs does not keep the process
    try:
        looked = threads.submit(_on_volume, volume, is_alive=is_alive)
        (journal, problems["journal"]), (placed, problems["folder"]), artifacts, told = looked.result(VOLUME_SECONDS)
    except TimeoutError:
        journal, placed, artifacts, told = None, {}, frozenset[str](), None
        problems["journal"] = problems["folder"] = f"the volume has not answered within {VOLUME_SECONDS:g} s"
    version, rows, problems["triton"] = asyncio.run(_asked(triton))
    records, crashes, remembered = (journal.records, journal.crashes, journal.sizes) if journal else ({}, {}, {})
    booted = time.time() - boot_seconds()

    def moment(seconds: float) -> datetime:
        return datetime.fromtimestamp(max(0.0, booted + seconds), UTC)

    def model_of(name: str) -> dict[str, Any]:
        record, there, seen = records.get(name), placed.get(name), by_id.get(name, [])
        is_ours = not (record and record.placed and there and record.placed != there.identity)
        believed = record if is_ours else None
        unseen = Placed("", 0) if problems["folder"] is not None and believed else there  # what could not be asked disagrees with nothing
        drift = None if problems["journal"] else drift_of(name, believed.state if believed else None, seen, unseen)
        return {
            "id": name,
            "drift": None if drift == "not_serving" and problems["triton"] is not None else drift,
            "adapter": None if record is None else {
                "state": record.state,
                "since": moment(record.since),
                "confirmed": moment(record.confirmed) if record.confirmed else None,
                "type": record.model_type,
                "path": redact(record.path),
                "storage_key": record.storage_key,
                "size_bytes": record.size_bytes,
                "size": sizes.of(record, remembered),
            },
            "triton": None if problems["triton"] is not None else [{**row._asdict(), "reason": redact(row.reason)} for row in seen],
            "folder": None if there is None else {"size_bytes": there.size_bytes, "placed_by_adapter": is_ours},
            "artifact": {"key": key, "exists": key in artifacts} if (key := record and record.artifact_key) else None,
        }  # fmt: skip

    by_id = by_owner(rows)
    models = [model_of(name) for name in sorted({*records, *by_id, *placed}) if not name.startswith(PROBE)]
    contents = {name: record.content.crash for name, record in records.items() if record.content}
    idle = artifacts - {record.artifact_key for record in records.values()}
    places = {place: {"problem": problem and redact(problem)} for place, problem in problems.items()}
    return {
        "format": FORMAT,
        "time": moment(boot_seconds()),
        "agrees": not any(problems.values()) and not any(model["drift"] for model in models),
        "adapter": {"alive": is_alive, "ready": is_ready, "words": redact("; ".join(lines))},
        "triton": {"endpoint": triton.target, "version": version or None, **places["triton"]},
        "journal": {"path": str(volume.cache_dir / NAME), **places["journal"]},
        "folder": {"path": str(volume.repository_dir), **places["folder"]},
        "artifacts": {"count": len(artifacts), "idle": None if problems["journal"] is not None else len(idle)},
        "crashes": [
            {"count": each.count, "last": moment(each.last), "models": sorted(id for id, crash in contents.items() if crash == each.digest)}
            for each in sorted(crashes.values(), key=lambda crashes: -crashes.last)
        ],
        "memory": {
            "told_bytes": sum(record.size_bytes for record in records.values() if record.state == "loaded"),
            "capacity_bytes": capacity_bytes,
            "used_bytes": told.used_bytes if told else None,
            "limit_bytes": told.limit_bytes if told else None,
        },
        "models": models,
    }


def _on_volume(
    volume: VolumeSettings, *, is_alive: bool
) -> tuple[tuple[Found | None, str | None], tuple[Mapping[str, Placed], str | None], frozenset[str], Report | None]:
    """What journal and repository folder hold, each with why it says nothing; keys of artifacts; the reporter's report."""
    told = sizes.told(volume.memory_path)
    return _believed(volume.cache_dir, is_alive=is_alive), _placed(volume), _artifacts(volume.cache_dir), told


def _believed(cache_dir: Path, *, is_alive: bool) -> tuple[Found | None, str | None]:
    """What the journal says, and why it says nothing."""
    try:
        return read(cache_dir / NAME, boot_id()), None
    except NoJournal:
        if not is_alive and not cache_dir.exists():
            return None, None  # nothing was ever noted
        why = "the adapter could not write it: see its log for journal.dropped" if is_alive else "no adapter has left one"
        return None, f"there is none: {why}"
    except JournalProblem as problem:
        return None, str(problem)


async def _asked(triton: TritonSettings) -> tuple[str, list[ServerModel], str | None]:
    """Triton's version, its rows, and why there are none."""
    client = TritonClient(triton.target, triton.call_headers)
    version = ""
    try:
        async with asyncio.timeout(TRITON_SECONDS):
            _, version = await client.metadata()
            return version, await client.index(), None
    except TimeoutError:
        return version, [], f"no answer within {TRITON_SECONDS:g} s"
    except (CallError, AdapterError) as error:
        return version, [], one_line(str(error)) or "it could not be asked"
    finally:
        await client.close()


def _placed(volume: VolumeSettings) -> tuple[Mapping[str, Placed], str | None]:
    """As the adapter itself takes its inventory; a volume that was not claimed is never written to."""
    if not volume.repository_dir.is_dir():
        return {}, "there is no such folder: is ROOT_MODEL_DIR set as for the adapter?"
    repository = Repository(Volume(volume.repository_dir, volume.cache_dir))
    try:
        return asyncio.run(repository.inventory()), None
    except OSError as error:
        return {}, f"it cannot be read: {error.strerror}"
    except AdapterError as error:
        return {}, error.text
    finally:
        repository.close()


def _artifacts(cache_dir: Path) -> frozenset[str]:
    """Keys of artifacts. Pulled files without a version have another kind of name: they go with their model."""
    try:
        found = [entry.name for entry in (cache_dir / "artifacts").iterdir() if not entry.is_symlink()]
    except OSError:
        return frozenset()
    return frozenset(name.partition(".")[0] for name in found if _ARTIFACT.fullmatch(name))


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


def as_json(view: View, *, drift_only: bool) -> str:
    """The same for programs."""
    models = [model for model in view["models"] if model["drift"] or not drift_only]
    return json.dumps({**view, "models": models}, indent=1, default=lambda moment: f"{moment:%Y-%m-%dT%H:%M:%SZ}") + "\n"


def _head(view: View) -> Iterator[tuple[str, str]]:
    """Titles and words: of each place, and of Triton's deaths."""
    adapter, triton, journal, folder = view["adapter"], view["triton"], view["journal"], view["folder"]
    records = [model["adapter"] for model in view["models"] if model["adapter"]]
    yield "adapter", f"alive, {adapter['words']}" if adapter["alive"] else adapter["words"]
    if not adapter["alive"] and journal["problem"] is None and records:
        cut = sum(record["state"] in ("pulling", "loading", "unloading") for record in records)
        undone = f"; {_count(cut, 'model was', 'models were')} under way: the next adapter finishes or undoes that" if cut else ""
        yield "", f"so ADAPTER shows what it noted last; nothing is loaded, unloaded or restored until it answers{undone}"
    if triton["problem"] is None:
        ready = sum(serves(model["id"], rows_of(model)) for model in view["models"])
        yield "triton", f"{triton['version'] or ''} at {triton['endpoint']}, serves {_count(ready, 'model')}"
    else:
        yield "triton", f"cannot be asked at {triton['endpoint']}: {triton['problem']}"
    newest = max((max(record["since"], record["confirmed"] or record["since"]) for record in records), default=None)
    if journal["problem"] is not None:
        yield "journal", f"{journal['path']}: {journal['problem']}; so nothing can be compared"
    else:
        yield "journal", journal["path"] + ("" if newest is None else f": newest state {age(view['time'] - newest)} old")
    yield "folder", folder["path"] + (f": {folder['problem']}" if folder["problem"] else "")
    idle = f", {view['artifacts']['idle']:,} of them idle" if view["artifacts"]["idle"] else ""
    yield "cache", f"{PurePath(journal['path']).parent}: {_count(view['artifacts']['count'], 'artifact')}{idle}"
    for crash in view["crashes"][:SHOWN_CRASHES]:
        who, times = some(crash["models"], 3) or "a model that is not here now", _count(crash["count"], "time")
        since = view["time"] - crash["last"]
        left = timedelta(seconds=REMEMBERED_SECONDS) - since
        refused = f"; refused until it changes, or {age(left)} pass" if crash["count"] >= MOST_CRASHES and left > timedelta() else ""
        yield "crashes", f"Triton died {times} while it loaded {who}; last {age(since)} ago{refused}"
    if view["crashes"][SHOWN_CRASHES:]:
        yield "", f"and while it loaded {_count(len(view['crashes']) - SHOWN_CRASHES, 'other content')}"


def _table(models: Sequence[View], view: View, width: int) -> Iterator[str]:
    form = "  ".join(f"{{:{size}}}" for _, size in COLUMNS)
    yield f"  {form.format(*(title for title, _ in COLUMNS))}  MODEL"
    for model in models:
        record, folder, artifact = model["adapter"], model["folder"], model["artifact"]
        cells = (
            "?" if view["journal"]["problem"] is not None else record["state"] if record else "-",
            "?" if view["triton"]["problem"] is not None else triton_word(model["id"], rows_of(model)),
            "?" if view["folder"]["problem"] is not None else "-" if not folder else "placed" if folder["placed_by_adapter"] else "other",
            "-" if not artifact else artifact["key"][:8] if artifact["exists"] else "gone",
            _size(model),
            age(view["time"] - record["since"]) if record else "-",
        )
        yield f"{'!' if model['drift'] else ' '} {form.format(*cells)}  {shown(model['id'])}"
        reasons = dict.fromkeys(" ".join(row.reason.split()) for row in rows_of(model) if row.reason not in ("", "unloaded"))
        if model["drift"] and reasons:
            yield from _wrapped(f"Triton says: {shown(redact('; '.join(reasons))[:LONGEST_REASON])}", width, " " * 6, " " * 6)


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


def _size(model: View) -> str:
    told = model["adapter"]["size_bytes"] if model["adapter"] else 0
    if not told and model["folder"] is None:
        return "-"
    return short(told or model["folder"]["size_bytes"])


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _wrapped(words: str, width: int, first: str = "", indent: str = "") -> list[str]:
    return textwrap.wrap(words, width, initial_indent=first, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
