"""
What is believed of each model, what Triton's index shows, and what lies in the folder, side by side: the 3 a.m. view.

Reads and asks, and changes nothing: the journal is not locked, no folder is made, Triton is asked for its index alone. So it
works beside a running adapter, beside one that hangs, and without one. What is found is one document; `models_text` shows it.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from adapter.errors import AdapterError
from adapter.inventory import by_owner, drift_of
from adapter.journal.file import NAME, Found, JournalProblem, NoJournal, OtherBoot, read
from adapter.memory.report import OLD_SECONDS, Report
from adapter.memory.report import read as read_report
from adapter.model import PROBE, Placed, Record, ServerModel
from adapter.settings.storage import VolumeSettings
from adapter.settings.triton import TritonSettings
from adapter.telemetry.redaction import redact
from adapter.triton.client import CallError, TritonClient
from adapter.triton.reason import one_line
from adapter.triton.repository import Repository
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


def look(ask_adapter: AskAdapter, triton: TritonSettings, volume: VolumeSettings, capacity_bytes: int | None = None) -> dict[str, Any]:
    """
    Look at all places once. Blocks, for a bounded time whatever hangs.

    Returns:
        What `models --json` prints: texts without credentials, moments as `datetime`. New fields may come; another meaning makes
        another `format`.

    Raises:
        StartError: the process cannot have the thread that it takes.
    """
    is_ready = False
    is_alive, lines = ask_adapter(ready=False, timeout_seconds=PROBE_SECONDS)
    if is_alive:
        is_ready, lines = ask_adapter(ready=True, timeout_seconds=PROBE_SECONDS)
    problems = dict[str, str | None]()
    journal, placed, artifacts, told = _on_volume(volume, problems, is_alive=is_alive)
    version, rows, problems["triton"] = asyncio.run(_asked(triton))
    records, crashes, sizes = (journal.records, journal.crashes, journal.sizes) if journal else ({}, {}, {})
    booted = time.time() - boot_seconds()

    def moment(seconds: float) -> datetime:
        return datetime.fromtimestamp(max(0.0, booted + seconds), UTC)

    def sized(record: Record) -> dict[str, Any] | None:
        known = sizes.get(record.content.spec) if record.content else None
        if known is None or known.content != record.content:
            return None
        is_seen = known.source in ("measured", "reported")
        seen_bytes = known.size_bytes if is_seen else None
        return {"source": known.source, "predicted_bytes": known.predicted_bytes, "measured_bytes": seen_bytes}

    def shown(name: str) -> dict[str, Any]:
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
                "size": sized(record),
            },
            "triton": None if problems["triton"] is not None else [{**row._asdict(), "reason": redact(row.reason)} for row in seen],
            "folder": None if there is None else {"size_bytes": there.size_bytes, "placed_by_adapter": is_ours},
            "artifact": {"key": key, "exists": key in artifacts} if (key := record and record.artifact_key) else None,
        }  # fmt: skip

    by_id = by_owner(rows)
    models = [shown(name) for name in sorted({*records, *by_id, *placed}) if not name.startswith(PROBE)]
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
    volume: VolumeSettings, problems: dict[str, str | None], *, is_alive: bool
) -> tuple[Found | None, Mapping[str, Placed], frozenset[str], Report | None]:
    """What journal, folder, cache and the reporter's file hold, read in a thread that does not keep the process: a volume may hang."""
    threads = Threads("look", 1)
    try:
        looked = threads.submit(
            lambda: (
                _believed(volume.cache_dir, is_alive=is_alive),
                _placed(volume),
                _artifacts(volume.cache_dir),
                _told(volume.memory_path),
            )
        )
        (journal, problems["journal"]), (placed, problems["folder"]), artifacts, told = looked.result(VOLUME_SECONDS)
    except TimeoutError:
        problems["journal"] = problems["folder"] = f"the volume has not answered within {VOLUME_SECONDS:g} s"
        return None, {}, frozenset(), None
    finally:
        threads.shutdown()
    return journal, placed, artifacts, told


def _told(path: Path) -> Report | None:
    """What Triton's memory is now, if a reporter tells it."""
    try:
        told = read_report(path)
    except OSError:
        return None
    return told if told is not None and abs(boot_seconds() - told.at) < OLD_SECONDS else None


def _believed(cache_dir: Path, *, is_alive: bool) -> tuple[Found | None, str | None]:
    """What the journal says, and why it says nothing."""
    try:
        return read(cache_dir / NAME, boot_id()), None
    except NoJournal:
        if not is_alive and not cache_dir.exists():
            return None, None  # nothing was ever noted
        why = "the adapter could not write it: see its log for journal.dropped" if is_alive else "no adapter has left one"
        return None, f"there is none: {why}"
    except OtherBoot:
        return None, "it is of an earlier boot of this machine, and tells nothing of now"
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
