"""`models`: the journal, Triton's index, the folder and the artifacts, whichever of them is away or lies."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from adapter import cli
from adapter.model import PROBE
from adapter.records import Crashes
from adapter.volume.boot import boot_id
from tests.unit.journal.journals import DIGEST, a_record
from tests.verbs.models import Place, drift

KEY = "ab" * 32
BOTH = pytest.mark.parametrize("place", ["alive", "dead"], indirect=True)
ALIVE = pytest.mark.parametrize("place", ["alive"], indirect=True)


def everything(top: Path) -> dict[str, tuple[int, int, int]]:
    """Whatever could be changed."""
    return {str(path): (path.lstat().st_ino, path.lstat().st_mtime_ns, path.lstat().st_mode) for path in [top, *top.rglob("*")]}


@BOTH
async def test_each_disagreement_has_its_word(place: Place, request: pytest.FixtureRequest) -> None:
    """Whether the adapter is alive or dead; what disagrees comes first, and with --drift nothing else comes."""
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

    found = await place.json()
    wrong = {"lost": "lost", "not-serving": "not_serving", "no-folder": "no_folder", "stranger": "unknown", "replaced": "unknown"}
    assert drift(found) == wrong
    assert [model["id"] for model in found["models"]] == sorted([*ids, "no-folder"])
    assert found["adapter"]["alive"] is ("[alive]" in request.node.name)
    assert [found[part]["problem"] for part in ("triton", "journal", "folder")] == [None, None, None]
    assert {model["id"] for model in (await place.json("--drift"))["models"]} == wrong.keys()
    code, out, err = await place.shows()
    assert (code, err) == (1, "")
    rows = [line.split()[-1] for line in out.split("\n") if line.startswith(("! ", "  "))]
    assert rows.index("lost") < rows.index("fine")
    assert "lost (1): loaded, but this Triton was never asked for it: Triton has restarted.\n" in out
    assert "unknown (2): the adapter knows nothing of it, or of what lies in the folder under its id" in out
    assert out.startswith("adapter  ") and out.endswith(": 5 disagree.\n")


async def test_watched_it_is_shown_again_after_each_pause(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until Ctrl-C."""
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(cli.time, "sleep", pause)
    code, out, err = await place.shows("--watch", "0.5")

    assert (code, err, pauses) == (0, "", [0.5] * 3)
    assert out.count("adapter  ") == 3


async def test_all_agree(place: Place) -> None:
    place.note(a_record("m", placed=await place.put("m"), artifact_key=None))
    await place.load("m")

    code, out, _ = await place.shows()
    assert code == 0
    assert out.endswith("1 model (1 loaded): all agree.\n")
    (model,) = (await place.json())["models"]
    assert model["folder"] == {"size_bytes": 100, "placed_by_adapter": True}
    assert model["triton"] == [{"name": "m", "version": "1", "state": "READY", "reason": ""}]
    noted = model["adapter"]
    assert all(datetime.fromisoformat(noted.pop(name)) < datetime.now(UTC) for name in ("since", "confirmed"))
    assert noted == {"state": "loaded", "type": "onnx", "path": "models/m", "storage_key": "s3", "size_bytes": 1, "size": None}
    assert (model["id"], model["drift"], model["artifact"]) == ("m", None, None)


async def test_a_bundle_is_one_model_and_the_directory_of_a_check_is_none(place: Place) -> None:
    (place.repository / f"{PROBE}{'a' * 16}").mkdir()
    names = ("b~inner~x", "b~inner~y", "b")
    identities = [await place.put(name) for name in names]
    await place.load(*names)
    place.note(a_record("b", placed=identities[-1]))

    found = await place.json()
    assert [model["id"] for model in found["models"]] == ["b"]
    assert found["agrees"]


async def test_nothing_on_the_volume_is_changed_by_a_look(place: Place) -> None:
    await place.put("m")
    place.note(a_record("m"))
    files = ("_adapter/journal.jsonl", "_adapter", "_triton_models/m/1/model.onnx", "_triton_models/m/1", "_triton_models/m")
    for path in ("", *files, "_triton_models"):
        gone = place.root / path
        if path:
            gone.rmdir() if gone.is_dir() else gone.unlink()
        before = everything(place.root)
        await place.shows()
        assert everything(place.root) == before


async def test_a_triton_that_is_away_makes_no_drift_of_what_it_alone_knows(place: Place) -> None:
    place.note(a_record("fine", placed=await place.put("fine")), a_record("no-folder"))
    await place.put("stranger")
    await place.triton.stop()

    found = await place.json()
    assert found["triton"]["problem"] and found["models"][0]["triton"] is None
    assert drift(found) == {"no-folder": "no_folder", "stranger": "unknown"}
    assert "triton   cannot be asked at " in (await place.shows())[1]


async def test_a_triton_that_cannot_list_its_folder_says_why(place: Place) -> None:
    place.triton.failing_listings = 1
    assert (await place.json())["triton"]["problem"]


async def test_without_a_journal_nothing_is_compared_and_nothing_is_accused(place: Place) -> None:
    await place.put("m")
    found = await place.json()
    assert "no adapter has left one, or it could not write it" in found["journal"]["problem"]
    assert (found["agrees"], drift(found), found["artifacts"]["idle"]) == (False, {}, None)
    assert (await place.shows())[1].endswith("1 model; what the adapter believes is not known, so nothing was compared.\n")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda path: path.write_bytes(path.read_bytes().replace(boot_id().encode(), b"another")), "an earlier boot"),
        (lambda path: path.write_text('{"format": 9, "boot_id": "x"}\n'), "it has format 9"),
        (lambda path: path.write_bytes(b"\x00" * 100), "first line"),
        (lambda path: os.truncate(path, 32 * 2**20 + 1), "larger than 32 MiB"),
        (lambda path: (path.unlink(), path.symlink_to("/etc/passwd")), "no regular file"),
        (lambda path: (path.unlink(), os.mkfifo(path)), "no regular file"),
    ],
)
async def test_a_journal_that_says_nothing_is_named(place: Place, spoil: Callable[[Path], object], words: str) -> None:
    place.note(a_record("m"))
    spoil(place.journal)
    found = await place.json()
    assert words in found["journal"]["problem"]
    assert not found["agrees"]


async def test_a_folder_that_is_not_there_is_named(place: Place) -> None:
    place.note(a_record("m"))
    place.repository.rmdir()
    found = await place.json()
    assert "ROOT_MODEL_DIR" in found["folder"]["problem"]
    assert not found["agrees"]


async def test_artifacts_are_told_by_their_names_alone(place: Place) -> None:
    for name in (f"{KEY}.{'0' * 16}", f"{'cd' * 32}.{'1' * 16}", "0123456789abcdef"):
        (place.root / "_adapter" / "artifacts" / name).mkdir(parents=True)
    place.note(a_record("there", artifact_key=KEY), a_record("gone", artifact_key="ef" * 32), a_record("none", artifact_key=None))

    found = await place.json()
    assert {model["id"]: model["artifact"] and model["artifact"]["exists"] for model in found["models"]} == {
        "there": True,
        "gone": False,
        "none": None,
    }
    assert found["artifacts"] == {"count": 2, "idle": 1}


@ALIVE
@pytest.mark.parametrize("why", ["", "Triton does not answer on http://user:hunter22@host"])
async def test_an_adapter_without_an_interface_for_modelmesh_is_asked_over_http(place: Place, readiness: list[str], why: str) -> None:
    """Its words come without credentials."""
    readiness += [why] if why else []
    found = (await place.json())["adapter"]
    words = "503 not ready: Triton does not answer on http://host" if why else "200 ready"
    assert found == {"alive": True, "ready": not why, "words": f"127.0.0.1:{place.metrics_port}: {words}"}


async def test_an_adapter_that_cannot_be_asked_is_called_so(place: Place) -> None:
    words = "cannot be asked: ADAPTER_PORT and METRICS_PORT are 0"
    assert (await place.json(METRICS_PORT="0"))["adapter"] == {"alive": False, "ready": False, "words": words}


async def test_crashes_are_told_with_the_models_of_that_content(place: Place) -> None:
    place.note(a_record("a"), Crashes(digest=DIGEST, count=3, last=1.0), Crashes(digest="other", count=1, last=0.5))
    out = (await place.shows())[1]
    assert "crashes  Triton died 3 times while it loaded a; last " in out
    assert "crashes  Triton died 1 time while it loaded a model that is not here now; last " in out
    assert [crash["models"] for crash in (await place.json())["crashes"]] == [["a"], []]


@pytest.mark.parametrize(("name", "value"), [("RUNTIME_ENDPOINT", "8001"), ("CACHE_DIR", "cache"), ("ADAPTER_PORT", "65536")])
async def test_a_wrong_setting_is_told_and_nothing_is_looked_at(place: Place, name: str, value: str) -> None:
    """Only those of the settings that it reads."""
    code, out, err = await place.shows(**{name: value})
    assert (code, out) == (2, "")
    assert f"{name}: " in err
