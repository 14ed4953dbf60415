"""A small model is planned at once, a large one in a thread: the loop goes on."""

import threading
from collections.abc import Iterator

import pytest

from adapter.layout import rules
from adapter.lifecycle import planning
from adapter.lifecycle.planning import QUICK_BYTES, QUICK_FILES, Planning
from adapter.model import Artifact, Layout, Listing, ModelSpec, SourceFile
from tests.builders import a_spec

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
