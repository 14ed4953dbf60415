"""
What is believed of each model, what Triton's index shows, and what lies in the folder, side by side: the 3 a.m. view.

Reads and asks, and changes nothing: the journal is not locked, no folder is made, Triton is asked for its index alone. So it
works beside a running adapter, beside one that hangs, and without one. How it looks on a terminal: `text`.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from adapter.boot import boot_id, boot_seconds
from adapter.errors import AdapterError
from adapter.inventory import Drift, by_owner, drift_of
from adapter.journal.file import NAME, JournalProblem, NoJournal, OtherBoot, read
from adapter.model import PROBE, Crashes, Placed, Record, ServerModel
from adapter.spi.probe import probe
from adapter.telemetry import pods
from adapter.triton.client import CallError, TritonClient
from adapter.triton.reason import one_line
from adapter.triton.repository import Repository
from adapter.units import Endpoint
from adapter.volume.volume import Volume
from adapter.workers import Threads

TRITON_SECONDS = 5.0
PROBE_SECONDS = 2.0
VOLUME_SECONDS = 20.0
"""Longest waits for what may hang: for the index, for the adapter's health, for the journal or a folder."""
SECOND_LOOK_SECONDS = 0.5
"""Between two looks: things are asked one after another, so what has moved in between disagrees once."""

T = TypeVar("T")
_ARTIFACT = re.compile(r"[0-9a-f]{64}\.[0-9a-f]{16}")
"""Folder of a pulled model: its key, and what makes the name unique."""


@dataclass(frozen=True)
class Places:
    """Where to look."""

    adapter: Endpoint | None
    """None: it has no interface for ModelMesh, and is asked over HTTP."""
    triton: Endpoint
    repository_dir: Path
    cache_dir: Path
    triton_headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Of every call to Triton; secrets."""
    adapter_http: Endpoint | None = None
    """Where its health is told over HTTP."""

    @property
    def journal(self) -> Path:
        """The journal's file."""
        return self.cache_dir / NAME


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
    Look at all places; where something disagrees, twice. Blocks, for a bounded time whatever hangs.

    Raises:
        StartError: the process cannot have the threads that it takes.
    """
    view = _look(places)
    if not any(sight.drift for sight in view.models) or not view.health.is_alive:
        return view
    time.sleep(SECOND_LOOK_SECONDS)
    before = {sight.model_id: sight.drift for sight in view.models}
    again = _look(places)
    models = (replace(sight, drift=sight.drift if before.get(sight.model_id) == sight.drift else None) for sight in again.models)
    return replace(again, models=tuple(models))


def _look(places: Places) -> View:
    health = _health(places)
    with _Patience() as patience:
        belief = _believed(places, health, patience)
        version, rows, triton_problem = asyncio.run(_asked(places))
        placed, folder_problem = _placed(places, patience)
        artifacts = patience.wait(lambda: _names(places.cache_dir / "artifacts")) or frozenset()
    found = by_owner(rows)
    ids = sorted(name for name in {*belief.records, *found, *placed} if not name.startswith(PROBE))
    knows = _Known(belief.problem is None, triton_problem is None, folder_problem is None)
    sights = []
    for model_id in ids:
        record, its_rows, folder = belief.records.get(model_id), tuple(found.get(model_id, ())), placed.get(model_id)
        has_artifact = record.artifact_key in artifacts if record and record.artifact_key else None
        sight = Sight(model_id, record, its_rows, folder, has_artifact, None)
        sights.append(replace(sight, drift=knows.drift_of(sight)))
    return View(
        places=places,
        health=health,
        journal_problem=belief.problem,
        triton_version=version,
        triton_problem=triton_problem,
        folder_problem=folder_problem,
        models=tuple(sights),
        artifacts=artifacts,
        crashes=belief.crashes,
        now=boot_seconds(),
        clock=time.time(),
    )


@dataclass(frozen=True)
class _Known:
    """What could be asked. What is not known disagrees with nothing."""

    journal: bool
    triton: bool
    folder: bool

    def drift_of(self, sight: Sight) -> Drift | None:
        if not self.journal:
            return None
        state = sight.record.state if sight.record and not sight.is_placed_anew else None
        placed = sight.placed if self.folder or state is None else Placed("", 0)
        drift = drift_of(sight.model_id, state, sight.rows, placed)
        return drift if self.triton or drift != "not_serving" else None


def _health(places: Places) -> Health:
    is_alive, words = _probed(places, ready=False)
    if not is_alive:
        return Health(False, False, words)
    is_ready, words = _probed(places, ready=True)
    return Health(True, is_ready, words)


def _probed(places: Places, *, ready: bool) -> tuple[bool, str]:
    if places.adapter is not None:
        return probe(places.adapter, ready=ready, timeout_seconds=PROBE_SECONDS)
    if places.adapter_http is None:
        return False, "cannot be asked: ADAPTER_PORT and METRICS_PORT are 0"
    is_well, lines = pods.ask(places.adapter_http, ready=ready, timeout_seconds=PROBE_SECONDS)
    return is_well, "; ".join(lines)


@dataclass(frozen=True)
class _Belief:
    """What the journal says, and why it says nothing."""

    records: Mapping[str, Record] = field(default_factory=dict)
    crashes: Mapping[str, Crashes] = field(default_factory=dict)
    problem: str | None = None


def _believed(places: Places, health: Health, patience: _Patience) -> _Belief:
    try:
        found = patience.wait(lambda: read(places.journal, boot_id()))
    except NoJournal:
        if not health.is_alive and not places.cache_dir.exists():
            return _Belief()  # nothing was ever noted
        why = "the adapter could not write it: see its log for journal.dropped" if health.is_alive else "no adapter has left one"
        return _Belief(problem=f"there is none: {why}")
    except OtherBoot:
        return _Belief(problem="it is of an earlier boot of this machine, and tells nothing of now")
    except JournalProblem as problem:
        return _Belief(problem=str(problem))
    return _Belief(problem=patience.words) if found is None else _Belief(found.records, found.crashes)


async def _asked(places: Places) -> tuple[str, list[ServerModel], str | None]:
    """Triton's version, its rows, and why there are none."""
    client = TritonClient(places.triton.target, places.triton_headers)
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


def _placed(places: Places, patience: _Patience) -> tuple[Mapping[str, Placed], str | None]:
    try:
        found = patience.wait(lambda: _inventory(places))
    except FileNotFoundError:
        return {}, "there is no such folder: is ROOT_MODEL_DIR set as for the adapter?"
    except OSError as error:
        return {}, f"it cannot be read: {error.strerror}"
    except AdapterError as error:
        return {}, error.text
    return ({}, patience.words) if found is None else (found, None)


def _inventory(places: Places) -> Mapping[str, Placed]:
    """As the adapter itself takes it; a volume that was not claimed is never written to. Raises OSError, AdapterError."""
    if not places.repository_dir.is_dir():
        raise FileNotFoundError(places.repository_dir)
    repository = Repository(Volume(places.repository_dir, places.cache_dir))
    try:
        return asyncio.run(repository.inventory())
    finally:
        repository.close()


def _names(folder: Path) -> frozenset[str]:
    """Keys of artifacts. Pulled files without a version have another kind of name: they go with their model."""
    try:
        found = [entry.name for entry in folder.iterdir() if _ARTIFACT.fullmatch(entry.name) and not entry.is_symlink()]
        return frozenset(name.partition(".")[0] for name in found)
    except OSError:
        return frozenset()


class _Patience:
    """Runs what may hang in a thread that does not keep the process. After one thing has hung, nothing else is tried."""

    def __init__(self) -> None:
        self._threads = Threads("look", 1)
        self._is_hung = False
        self.words = f"the volume has not answered within {VOLUME_SECONDS:g} s"

    def __enter__(self) -> _Patience:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown()

    def wait(self, work: Callable[[], T]) -> T | None:
        """What the work returns, or raises; None when it hangs."""
        if self._is_hung:
            return None
        future: Future[T] = self._threads.submit(work)
        try:
            return future.result(VOLUME_SECONDS)
        except TimeoutError:
            self._is_hung = True
            return None
