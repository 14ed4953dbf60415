"""A small model is planned at once, a large one in a thread: the loop goes on."""

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from adapter.digests import Digests
from adapter.ends import Count, Ends, read_ends
from adapter.errors import InvalidModel
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

    async def ends(self, artifact: Artifact, counts: Mapping[SourceFile, Count | None]) -> Mapping[SourceFile, Ends]:
        return {file: read_ends(artifact.root / file.path, count, lambda: None) for file, count in counts.items()}


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


async def test_a_large_listing_is_looked_through_and_compared_in_a_thread(plan: Planning, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which files to read is asked there too, and whether a listing is an earlier one again."""
    seen: list[threading.Thread] = []
    wanted = rules.wanted
    monkeypatch.setattr(planning.rules, "wanted", lambda *asked: seen.append(threading.current_thread()) or wanted(*asked))
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


async def test_what_a_file_says_is_asked_of_storage_when_it_is_there(plan: Planning, tmp_path: Path) -> None:
    """The name and the config follow the content; the rules run in a thread that reads nothing."""
    layout, artifact = planned_forest(tmp_path, a_forest("ubj", 4, 3))
    assert layout.written == {}

    found = await plan.finished(layout, Stored(1, 23), artifact)

    assert list(found.links) == ["1/xgboost.ubj"] and b"dims: [ 3 ]" in found.written["config.pbtxt"]
    assert found.files == layout.files


async def test_a_layout_without_questions_is_finished_without_a_thread(plan: Planning) -> None:
    """Most models are."""
    stored = Stored(2, len(CONFIG))
    layout = await plan.layout(SPEC, stored)
    plan.close()

    assert await plan.finished(layout, stored, Artifact(Path("/nowhere"), True)) is layout


async def test_a_file_that_cannot_be_told_is_refused(plan: Planning, tmp_path: Path) -> None:
    """Once it is there."""
    layout, artifact = planned_forest(tmp_path, b"\x80\x04pickle")
    with pytest.raises(InvalidModel, match=r"churn\.model: what the FIL backend must be told"):
        await plan.finished(layout, Stored(1, 23), artifact)
