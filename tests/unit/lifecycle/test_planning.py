"""A small model is planned at once, a large one in a thread: the loop goes on."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from adapter.digests import Digests
from adapter.ends import Count
from adapter.errors import AdapterError, InvalidModel
from adapter.layout import rules
from adapter.lifecycle import planning
from adapter.lifecycle.planning import QUICK_BYTES, QUICK_FILES, Planning
from adapter.model import Artifact, Layout, Listing, ModelSpec, SourceFile
from tests.builders import a_forest, a_spec

SPEC = a_spec("models/a", model_id="a")
CONFIG = b'backend: "onnxruntime"\n'


class Stored:
    """A listed model whose config.pbtxt has so many bytes, beside so many other files."""

    def __init__(self, others: int, config_bytes: int) -> None:
        names = ["1/model.onnx", *(f"1/weights{number}" for number in range(others - 1))]
        files = [SourceFile(name, 1000, "e1") for name in names] + [SourceFile("config.pbtxt", config_bytes, "e1")]
        self.listing = Listing("memory://models/a", "a", False, tuple(sorted(files, key=lambda file: file.path)))
        self.config = CONFIG + b"#" * (config_bytes - len(CONFIG))

    async def read(self, file: SourceFile) -> bytes:
        assert file.path == "config.pbtxt"
        return self.config

    async def fetch(self, files: tuple[SourceFile, ...]) -> Artifact:
        raise AssertionError("a plan pulls nothing")


@pytest.fixture
def plan() -> Iterator[Planning]:
    plan = Planning()
    yield plan
    plan.close()


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """Where the rules were asked."""
    seen: list[threading.Thread] = []

    def watched(spec: ModelSpec, listing: Listing, contents: dict[SourceFile, bytes]) -> Layout:
        seen.append(threading.current_thread())
        return original(spec, listing, contents)

    original = rules.plan
    monkeypatch.setattr(planning.rules, "plan", watched)
    return seen


@pytest.mark.parametrize(
    ("others", "config_bytes", "is_quick"),
    [(QUICK_FILES - 1, QUICK_BYTES, True), (QUICK_FILES, len(CONFIG), False), (1, QUICK_BYTES + 1, False)],
)
async def test_only_a_large_model_is_planned_in_a_thread(
    plan: Planning, threads: list[threading.Thread], others: int, config_bytes: int, is_quick: bool
) -> None:
    stored = Stored(others, config_bytes)

    layout = await plan.layout(SPEC, stored)

    assert layout.size_bytes == others * 1000
    assert [thread is threading.main_thread() for thread in threads] == [is_quick]


async def test_a_config_that_was_not_read_makes_all_files_count(plan: Planning, threads: list[threading.Thread]) -> None:
    """A prediction has no time to read it: it may name any file."""
    assert await plan.served_bytes(SPEC, Stored(3, 23).listing) == 3023
    assert threads == []


async def test_the_files_that_will_be_served_count(plan: Planning) -> None:
    """Of two versions the newer one."""
    listing = Listing("memory://m", "m", False, (SourceFile("1/model.onnx", 500, "e1"), SourceFile("2/model.onnx", 7000, "e1")))

    assert await plan.served_bytes(a_spec("m", model_id="a", model_type="onnx"), listing) == 7000


async def test_a_large_listing_is_looked_through_and_compared_in_a_thread(plan: Planning, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which files to read is asked there too, and whether a listing is an earlier one again."""
    seen: list[threading.Thread] = []
    wanted = rules.wanted
    monkeypatch.setattr(planning.rules, "wanted", lambda listing: seen.append(threading.current_thread()) or wanted(listing))
    large, again, other = (Stored(QUICK_FILES, size) for size in (100, 100, 101))

    layout = await plan.layout(SPEC, large)
    digests = Digests(b"salt")
    assert await plan.content(SPEC, large.listing, digests) == await plan.content(SPEC, again.listing, digests)
    assert await plan.content(SPEC, large.listing, digests) != await plan.content(SPEC, other.listing, digests)

    assert seen
    assert threading.main_thread() not in seen
    assert {"files", "size_bytes"} <= vars(layout).keys(), "the loop would have to add the sizes"


FOREST = a_spec("models/f", model_id="f", model_type="xgboost")


def planned_forest(root: Path, content: bytes) -> tuple[Layout, Artifact]:
    (root / "churn.model").write_bytes(content)
    listing = Listing("memory://models/f", "churn.model", True, (SourceFile("churn.model", len(content), "e1"),))
    return rules.plan(FOREST, listing, {}), Artifact(root, True)


async def test_what_a_file_says_is_read_in_a_thread_when_it_is_there(
    plan: Planning, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name and the config follow the content."""
    seen: list[threading.Thread] = []
    original = planning.read_ends
    monkeypatch.setattr(planning, "read_ends", lambda *more: seen.append(threading.current_thread()) or original(*more))
    layout, artifact = planned_forest(tmp_path, a_forest("ubj", 4, 3))
    assert layout.written == {}

    found = await plan.finished(layout, artifact)

    assert list(found.links) == ["1/xgboost.ubj"] and b"dims: [ 3 ]" in found.written["config.pbtxt"]
    assert found.files == layout.files and len(seen) == 1 and seen[0] is not threading.main_thread()


async def test_a_layout_without_questions_is_finished_without_a_thread(plan: Planning, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most models are."""
    layout = await plan.layout(SPEC, Stored(2, len(CONFIG)))
    plan.close()

    assert await plan.finished(layout, Artifact(Path("/nowhere"), True)) is layout


async def test_a_file_that_cannot_be_told_is_refused(plan: Planning, tmp_path: Path) -> None:
    """Once it is there."""
    with pytest.raises(InvalidModel, match=r"churn\.model: what the FIL backend must be told"):
        await plan.finished(*planned_forest(tmp_path, b"\x80\x04pickle"))


async def test_a_file_that_has_gone_is_no_internal_error(plan: Planning, tmp_path: Path) -> None:
    """Somebody deleted it from a claim."""
    layout, artifact = planned_forest(tmp_path, b"")
    (tmp_path / "churn.model").unlink()
    with pytest.raises(AdapterError, match=r"the model's file churn\.model cannot be read on the volume: No such file or directory"):
        await plan.finished(layout, artifact)


async def test_a_cancelled_look_waits_for_its_thread(plan: Planning, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing reads files that are about to be deleted."""
    begun, ended = threading.Event(), threading.Event()

    def slow(path: Path, count: Count | None, check: Callable[[], None]) -> None:
        begun.set()
        try:
            while True:
                check()
                time.sleep(0.001)
        finally:
            ended.set()

    monkeypatch.setattr(planning, "read_ends", slow)
    looking = asyncio.create_task(plan.finished(*planned_forest(tmp_path, b"")))
    while not begun.is_set():
        await asyncio.sleep(0.001)
    looking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await looking

    assert ended.is_set()
