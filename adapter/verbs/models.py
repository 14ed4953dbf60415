"""
What is believed of each model, what Triton's index shows, and what lies in the folder, side by side: the 3 a.m. view.

Reads and asks, and changes nothing: the journal is not locked, no folder is made, Triton is asked for its index alone. So it
works beside a running adapter, beside one that hangs, and without one. How it looks on a terminal: `models_text`.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from adapter.errors import AdapterError
from adapter.inventory import Drift, by_owner, drift_of
from adapter.journal.file import NAME, JournalProblem, NoJournal, OtherBoot, read
from adapter.model import PROBE, Crashes, Placed, Record, ServerModel
from adapter.settings.storage import VolumeSettings
from adapter.settings.triton import TritonSettings
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

_ARTIFACT = re.compile(r"[0-9a-f]{64}\.[0-9a-f]{16}")
"""Folder of a pulled model: its key, and what makes the name unique."""
_Believed = tuple[Mapping[str, Record], Mapping[str, Crashes], str | None]
"""What the journal says, and why it says nothing."""


@dataclass(frozen=True)
class Places:
    """Where to look."""

    ask_adapter: Callable[..., tuple[bool, Sequence[str]]]
    """Called with `ready` and `timeout_seconds`: whether the adapter is alive (or ready), and lines that say so, or why not."""
    triton: TritonSettings
    volume: VolumeSettings

    @property
    def journal(self) -> Path:
        """The journal's file."""
        return self.volume.cache_dir / NAME


@dataclass(frozen=True)
class Health:
    """The adapter, as its health service answers."""

    is_alive: bool
    is_ready: bool
    words: str


@dataclass(frozen=True)
class Sight:
    """One model id."""

    model_id: str
    record: Record | None
    """What the adapter believes: its last note. None: it knows nothing of it."""
    rows: tuple[ServerModel, ...]
    placed: Placed | None
    has_artifact: bool | None
    """Whether the pulled files are there that the record names; None: it names none."""
    drift: Drift | None

    @property
    def is_placed_anew(self) -> bool:
        """What lies in the folder is not what the adapter has placed there."""
        return bool(self.record and self.record.placed and self.placed and self.record.placed != self.placed.identity)


@dataclass(frozen=True)
class View:
    """Everything that was found out."""

    places: Places
    health: Health
    journal_problem: str | None
    """Why nothing is known of what the adapter believes."""
    triton_version: str
    triton_problem: str | None
    folder_problem: str | None
    models: tuple[Sight, ...]
    """Sorted by id."""
    artifacts: frozenset[str]
    """Names of what the cache has."""
    crashes: Mapping[str, Crashes]
    now: float
    """Seconds since the boot of the kernel."""
    clock: float
    """The same moment as seconds since 1970."""

    @property
    def agrees(self) -> bool:
        """Whether all could be asked, and all agree."""
        problems = (self.triton_problem, self.folder_problem, self.journal_problem)
        return not any(problems) and not any(sight.drift for sight in self.models)

    @property
    def idle_artifacts(self) -> int:
        """Those that no record names: kept for later loads."""
        return len(self.artifacts - {sight.record.artifact_key for sight in self.models if sight.record})


def look(places: Places) -> View:
    """
    Look at all places once. Blocks, for a bounded time whatever hangs.

    Raises:
        StartError: the process cannot have the thread that it takes.
    """
    health = _health(places)
    (records, crashes, journal_problem), (placed, folder_problem), artifacts = _on_volume(places, health)
    version, rows, triton_problem = asyncio.run(_asked(places.triton))
    found = by_owner(rows)
    sights = []
    for name in sorted({*records, *found, *placed}):
        record = records.get(name)
        has_artifact = record.artifact_key in artifacts if record and record.artifact_key else None
        sights.append(Sight(name, record, tuple(found.get(name, ())), placed.get(name), has_artifact, None))
    view = View(
        places=places,
        health=health,
        journal_problem=journal_problem,
        triton_version=version,
        triton_problem=triton_problem,
        folder_problem=folder_problem,
        models=tuple(sight for sight in sights if not sight.model_id.startswith(PROBE)),
        artifacts=artifacts,
        crashes=crashes,
        now=boot_seconds(),
        clock=time.time(),
    )
    return replace(view, models=tuple(replace(sight, drift=_drift(sight, view)) for sight in view.models))


def _drift(sight: Sight, view: View) -> Drift | None:
    """What could not be asked disagrees with nothing."""
    if view.journal_problem is not None:
        return None
    state = sight.record.state if sight.record and not sight.is_placed_anew else None
    is_folder_unknown = view.folder_problem is not None and state is not None
    drift = drift_of(sight.model_id, state, sight.rows, Placed("", 0) if is_folder_unknown else sight.placed)
    return None if drift == "not_serving" and view.triton_problem is not None else drift


def _health(places: Places) -> Health:
    is_alive, lines = places.ask_adapter(ready=False, timeout_seconds=PROBE_SECONDS)
    is_ready = False
    if is_alive:
        is_ready, lines = places.ask_adapter(ready=True, timeout_seconds=PROBE_SECONDS)
    return Health(is_alive, is_ready, "; ".join(lines))


def _on_volume(places: Places, health: Health) -> tuple[_Believed, tuple[Mapping[str, Placed], str | None], frozenset[str]]:
    """What journal, repository folder and cache hold, read in a thread that does not keep the process: a volume may hang."""
    threads = Threads("look", 1)
    try:
        looked = threads.submit(lambda: (_believed(places, health), _placed(places.volume), _artifacts(places.volume.cache_dir)))
        return looked.result(VOLUME_SECONDS)
    except TimeoutError:
        words = f"the volume has not answered within {VOLUME_SECONDS:g} s"
        return ({}, {}, words), ({}, words), frozenset()
    finally:
        threads.shutdown()


def _believed(places: Places, health: Health) -> _Believed:
    """What the journal says, and why it says nothing."""
    try:
        found = read(places.journal, boot_id())
    except NoJournal:
        if not health.is_alive and not places.volume.cache_dir.exists():
            return {}, {}, None  # nothing was ever noted
        why = "the adapter could not write it: see its log for journal.dropped" if health.is_alive else "no adapter has left one"
        return {}, {}, f"there is none: {why}"
    except OtherBoot:
        return {}, {}, "it is of an earlier boot of this machine, and tells nothing of now"
    except JournalProblem as problem:
        return {}, {}, str(problem)
    return found.records, found.crashes, None


async def _asked(triton: TritonSettings) -> tuple[str, list[ServerModel], str | None]:
    """Triton's version, its rows, and why there are none."""
    client = TritonClient(triton.target, triton.call_headers)
    version = ""
    try:
        async with asyncio.timeout(TRITON_SECONDS):
            version = await client.version()
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
