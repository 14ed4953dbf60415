"""`models`: the journal, Triton's index, the folder and the artifacts, whoever of them is away, hangs or lies."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from adapter import models_view
from adapter.boot import boot_id
from adapter.journal.journal import Journal
from adapter.model import PROBE, Record
from adapter.models_view import Places, View
from adapter.telemetry.http import Heartbeat, TelemetryServer
from adapter.triton.client import TritonClient
from adapter.triton.repository import Repository
from adapter.units import Endpoint
from adapter.volume import Volume
from tests.fakes.triton import FakeTriton
from tests.real.ports import free_ports
from tests.unit.journal.beds import a_record

KEY = "ab" * 32


@dataclass
class Place:
    """A volume, a Triton over it, and an adapter that is alive or not."""

    root: Path
    triton: FakeTriton
    adapter: list[bool]
    """Whether it is alive."""

    @property
    def places(self) -> Places:
        host, _, port = self.triton.target.rpartition(":")
        return Places(
            adapter=Endpoint(host="localhost", port=1),
            triton=Endpoint(host=host, port=int(port)),
            repository_dir=self.root / "_triton_models",
            cache_dir=self.root / "_adapter",
        )

    @property
    def journal(self) -> Path:
        return self.root / "_adapter" / "journal.jsonl"

    async def look(self) -> View:
        return await asyncio.get_running_loop().run_in_executor(None, models_view.look, self.places)

    async def put(self, model_id: str) -> str:
        """Place a model as the adapter does; returns its identity."""
        folder = self.root / "_triton_models" / model_id / "1"
        folder.mkdir(parents=True)
        (folder / "model.onnx").write_bytes(b"x" * 100)
        repository = Repository(Volume(self.root / "_triton_models", self.root / "_adapter"))
        placed = await repository.inventory()
        repository.close()
        return placed[model_id].identity if model_id in placed else ""

    def note(self, *records: Record) -> None:
        """What an adapter of this boot has noted, before it ended."""
        journal = Journal(self.journal)
        journal.open()
        for record in records:
            journal.note(record)
        journal.close()

    def forget(self, model_id: str) -> None:
        """The same of a model that is gone."""
        journal = Journal(self.journal)
        journal.open()
        journal.forget(journal.records[model_id])
        journal.close()

    async def load(self, *names: str) -> None:
        """Have Triton load them."""
        client = TritonClient(self.triton.target)
        for name in names:
            await client.load(name)
        await client.close()

    async def unload(self, name: str) -> None:
        """Have Triton unload it, as somebody else would."""
        client = TritonClient(self.triton.target)
        await client.unload(name)
        await client.close()
        async with asyncio.timeout(20):
            while self.triton.in_memory.get(name):
                await asyncio.sleep(0.01)

    def drift(self, view: View) -> dict[str, str]:
        return {sight.model_id: sight.drift for sight in view.models if sight.drift}


@pytest.fixture
async def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Place]:
    monkeypatch.setattr(models_view, "SECOND_LOOK_SECONDS", 0.0)
    (tmp_path / "_triton_models").mkdir()
    (tmp_path / "_adapter").mkdir()
    alive = [False]
    monkeypatch.setattr(
        models_view, "probe", lambda *_, ready, **__: (alive[0], ("ready" if ready else "alive") if alive[0] else "no answer from there")
    )
    async with FakeTriton(tmp_path / "_triton_models") as triton:
        yield Place(tmp_path, triton, alive)


def everything(top: Path) -> dict[str, tuple[int, int, int]]:
    """Whatever could be changed."""
    return {str(path): (path.lstat().st_ino, path.lstat().st_mtime_ns, path.lstat().st_mode) for path in [top, *top.rglob("*")]}


@pytest.mark.parametrize("is_alive", [True, False])
async def test_each_disagreement_has_its_word_with_the_adapter_alive_or_dead(place: Place, is_alive: bool) -> None:
    place.adapter[0] = is_alive
    ids = {name: await place.put(name) for name in ("fine", "lost", "not-serving", "stranger", "replaced", "under-way", "failed")}
    await place.load("fine", "not-serving", "stranger", "replaced")
    await place.unload("not-serving")
    place.note(
        *(a_record(name, placed=ids[name]) for name in ("fine", "lost", "not-serving")),
        a_record("no-folder"),
        a_record("replaced", placed="1-1"),
        a_record("under-way", state="loading", placed=ids["under-way"]),
        a_record("failed", state="failed", placed=None),
    )

    view = await place.look()

    assert place.drift(view) == {
        "lost": "lost",
        "not-serving": "not_serving",
        "no-folder": "no_folder",
        "stranger": "unknown",
        "replaced": "unknown",
    }
    assert not view.agrees
    assert [sight.model_id for sight in view.models] == sorted([*ids, "no-folder"])
    assert (view.health.is_alive, view.journal_problem, view.triton_problem, view.folder_problem) == (is_alive, None, None, None)


async def test_all_agree_also_where_there_is_nothing_at_all(place: Place) -> None:
    (place.root / "_adapter").rmdir()
    assert (await place.look()).agrees
    (place.root / "_adapter").mkdir()
    identity = await place.put("m")
    await place.load("m")
    place.note(a_record("m", placed=identity))

    view = await place.look()

    assert view.agrees
    assert view.models[0].placed is not None and view.models[0].placed.size_bytes == 100


async def test_the_directory_of_a_check_is_no_model(place: Place) -> None:
    """The adapter makes one to see whether Triton lists it; a killed adapter leaves one."""
    (place.root / "_triton_models" / f"{PROBE}{'a' * 16}").mkdir()

    assert (await place.look()).models == ()


async def test_a_bundle_is_one_model(place: Place) -> None:
    for name in ("b~inner~x", "b~inner~y"):
        await place.put(name)
    identity = await place.put("b")
    await place.load("b~inner~x", "b~inner~y", "b")
    place.note(a_record("b", placed=identity))

    view = await place.look()

    assert [sight.model_id for sight in view.models] == ["b"]
    assert view.agrees


async def test_nothing_on_the_volume_is_changed_by_a_look(place: Place) -> None:
    await place.put("m")
    place.note(a_record("m"))
    before = everything(place.root)
    await place.look()
    place.triton.failing_listings = 5
    await place.look()
    assert everything(place.root) == before

    for path in (
        "_adapter/journal.jsonl",
        "_adapter",
        "_triton_models/m/1/model.onnx",
        "_triton_models/m/1",
        "_triton_models/m",
        "_triton_models",
    ):
        gone = place.root / path
        gone.rmdir() if gone.is_dir() else gone.unlink()
        before = everything(place.root)
        await place.look()
        assert everything(place.root) == before


async def test_a_triton_that_is_away_is_said_and_makes_no_drift_of_what_it_alone_knows(place: Place) -> None:
    place.note(a_record("fine", placed=await place.put("fine")), a_record("no-folder"))
    await place.put("stranger")
    await place.triton.stop()

    view = await place.look()

    assert view.triton_problem is not None
    assert place.drift(view) == {"no-folder": "no_folder", "stranger": "unknown"}
    assert not view.agrees


async def test_a_triton_that_hangs_is_waited_for_a_short_time(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models_view, "TRITON_SECONDS", 0.2)
    place.triton.freeze()
    view = await place.look()
    place.triton.thaw()
    assert view.triton_problem == "no answer within 0.2 s"


async def test_a_triton_that_cannot_list_its_folder_says_why(place: Place) -> None:
    place.triton.failing_listings = 1

    view = await place.look()

    assert view.triton_problem and not view.agrees


@pytest.mark.parametrize("is_alive", [True, False])
async def test_without_a_journal_nothing_is_compared_and_nothing_is_accused(place: Place, is_alive: bool) -> None:
    place.adapter[0] = is_alive
    await place.put("m")

    view = await place.look()

    words = "the adapter could not write it" if is_alive else "no adapter has left one"
    assert view.journal_problem and words in view.journal_problem
    assert place.drift(view) == {}
    assert not view.agrees


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda path: path.write_bytes(path.read_bytes().replace(boot_id().encode(), b"another")), "an earlier boot"),
        (lambda path: path.write_text('{"format": 9, "boot_id": "x"}\n'), "it has format 9"),
        (lambda path: path.write_bytes(b"\x00" * 100), "first line"),
        (lambda path: (path.unlink(), path.symlink_to("/etc/passwd")), "no regular file"),
        (lambda path: (path.unlink(), os.mkfifo(path)), "no regular file"),
    ],
)
async def test_a_journal_that_says_nothing_is_named(place: Place, spoil: Callable[[Path], object], words: str) -> None:
    place.note(a_record("m"))
    spoil(place.journal)

    view = await place.look()

    assert view.journal_problem and words in view.journal_problem
    assert not view.agrees


async def test_a_folder_that_is_not_there_is_named(place: Place) -> None:
    place.note(a_record("m"))
    (place.root / "_triton_models").rmdir()

    view = await place.look()

    assert view.folder_problem and "ROOT_MODEL_DIR" in view.folder_problem
    assert not view.agrees


async def test_a_volume_that_hangs_keeps_nobody(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models_view, "VOLUME_SECONDS", 0.2)
    release = threading.Event()
    monkeypatch.setattr(models_view, "read", lambda *_: release.wait())

    view = await place.look()

    release.set()
    assert view.journal_problem and "the volume has not answered" in view.journal_problem
    assert view.folder_problem == view.journal_problem


async def test_what_only_moved_between_two_questions_is_no_drift(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that is unloaded while the view is made: its note was read, its folder is gone. The second look settles it."""
    place.adapter[0] = True
    place.note(a_record("gone"), a_record("stays-away"))
    monkeypatch.setattr(models_view.time, "sleep", lambda _: place.forget("gone"))

    view = await place.look()

    assert place.drift(view) == {"stays-away": "no_folder"}


async def test_artifacts_are_told_by_their_names_alone(place: Place) -> None:
    folder = place.root / "_adapter" / "artifacts"
    for name in (KEY, "cd" * 32, "0123456789abcdef"):
        (folder / name).mkdir(parents=True)
    place.note(a_record("there", artifact_key=KEY), a_record("gone", artifact_key="ef" * 32), a_record("none", artifact_key=None))

    view = await place.look()

    assert {sight.model_id: sight.has_artifact for sight in view.models} == {"there": True, "gone": False, "none": None}
    assert (len(view.artifacts), view.idle_artifacts) == (2, 1)


@pytest.mark.parametrize(("is_ready", "words"), [(True, "200 ready"), (False, "503 not ready: why")])
async def test_an_adapter_without_an_interface_for_modelmesh_is_asked_over_http(place: Place, is_ready: bool, words: str) -> None:
    (port,) = free_ports(1)
    server = TelemetryServer(port=port, heartbeat=Heartbeat(), readiness=lambda: None if is_ready else "why")
    try:
        places = replace(place.places, adapter=None, adapter_http=Endpoint(host="127.0.0.1", port=port))
        view = await asyncio.get_running_loop().run_in_executor(None, models_view.look, places)
    finally:
        server.close()

    assert (view.health.is_alive, view.health.is_ready) == (True, is_ready)
    assert view.health.words == f"127.0.0.1:{port}: {words}"


async def test_an_adapter_that_cannot_be_asked_is_called_so(place: Place) -> None:
    places = replace(place.places, adapter=None)
    view = await asyncio.get_running_loop().run_in_executor(None, models_view.look, places)

    assert not view.health.is_alive
    assert view.health.words == "cannot be asked: ADAPTER_PORT and METRICS_PORT are 0"
