"""Predictions: above 8 KiB, never above the usable capacity, and learned."""

import pytest

from adapter.digests import Digests
from adapter.errors import NoCapacity, SourceUnavailable
from adapter.lifecycle.lifecycle import RuntimeLifecycle
from adapter.lifecycle.sizing import UNFIT_BYTES, Sizing
from adapter.settings import CapacitySettings, read_group
from tests.builders import a_spec
from tests.fakes.world import World

A = a_spec("models/a", model_id="a", model_type="onnx")
MIB = 1024 * 1024


@pytest.fixture
def sizing(capacity: CapacitySettings) -> Sizing:
    return Sizing(capacity, Digests(b"salt"))


def test_usable_capacity_leaves_modelmesh_its_reserve(capacity: CapacitySettings) -> None:
    """Capacity 1024 MiB, 2 threads × 1 MB ÷ 2 is below 1 %: one percent is kept."""
    assert capacity.usable_bytes == 1024 * MIB - 1024 * MIB // 100


@pytest.mark.parametrize(
    ("threads", "default", "reserve"),
    [(1, 40 * MIB, 20 * MIB), (2, 40 * MIB, 40 * MIB), (3, 40 * MIB, 30 * MIB), (8, 400 * MIB, 102 * MIB), (1, 9000, 10 * MIB)],
)
def test_the_reserve_follows_modelmesh(threads: int, default: int, reserve: int) -> None:
    """clamp(threads × default ÷ (2 if threads ≤ 2 else 4), 1 %, 10 %)."""
    settings = read_group(
        CapacitySettings,
        {
            "CONTAINER_MEM_REQ_BYTES": str(1024 * MIB),
            "MEM_BUFFER_BYTES": "0",
            "LOADING_CONCURRENCY": str(threads),
            "DEFAULT_MODELSIZE": str(default),
        },
    )
    assert (1024 * MIB - settings.usable_bytes) // MIB == reserve // MIB


@pytest.mark.parametrize("file_bytes", [0, 1, 227, 6554])
def test_no_prediction_is_8_kib_or_less(sizing: Sizing, file_bytes: int) -> None:
    """ModelMesh never retries a failed model that it believes to be that small."""
    assert sizing.predict_listed(file_bytes) == 8193


def test_a_model_that_cannot_fit_is_predicted_small_and_refused(sizing: Sizing) -> None:
    """A prediction above the capacity would never lead to a loadModel, and nobody would learn why."""
    assert sizing.predict_listed(2048 * MIB) == UNFIT_BYTES > 8192
    with pytest.raises(NoCapacity, match="does not fit"):
        sizing.admit(A, 2048 * MIB)


def test_refusal_and_small_prediction_share_one_line(sizing: Sizing, capacity: CapacitySettings) -> None:
    largest = int(capacity.usable_bytes / 1.25)
    sizing.admit(A, largest)
    assert sizing.predict_listed(largest) == int(largest * 1.25)
    with pytest.raises(NoCapacity):
        sizing.admit(A, largest + 2)
    assert sizing.predict_listed(largest + 2) == UNFIT_BYTES


def test_an_incomplete_listing_predicts_at_least_the_default(sizing: Sizing) -> None:
    assert sizing.predict_at_least(10) == 1_000_000
    assert sizing.predict_at_least(80_000_000) == 100_000_000


def test_a_given_size_beats_everything(sizing: Sizing) -> None:
    given = a_spec("p", model_id="a", model_type="python", size_hint_bytes=500 * MIB)
    assert sizing.known(given) == sizing.measured(given, 12_000, 7) == 500 * MIB


def test_disk_size_is_file_bytes(sizing: Sizing) -> None:
    """`disk_size_bytes` counts files: it is multiplied."""
    assert sizing.known(a_spec("p", model_id="a", model_type="onnx", disk_size_bytes=1_000_000)) == 1_250_000


def test_a_measured_size_is_remembered_for_the_same_content_under_any_id(sizing: Sizing) -> None:
    sizing.measured(A, 1_000_000, 33 * MIB)
    assert sizing.known(a_spec("models/a", model_id="other", model_type="onnx")) == 33 * MIB
    assert sizing.known(a_spec("models/b", model_id="a", model_type="onnx")) is None


def test_a_size_of_an_earlier_process_is_remembered_by_the_digest_of_what_was_asked(sizing: Sizing) -> None:
    sizing.remember(Digests(b"salt").of_spec(A), 33 * MIB)
    assert sizing.known(a_spec("models/a", model_id="other", model_type="onnx")) == 33 * MIB
    assert sizing.known(a_spec("models/a", model_id="a", model_type="onnx", storage_key="other")) is None


def test_sizes_that_were_asked_for_long_ago_are_forgotten(sizing: Sizing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adapter.lifecycle.sizing._REMEMBERED", 2)
    for path in "abc":
        sizing.measured(a_spec(path), 1, 33 * MIB)
    assert [sizing.known(a_spec(path)) for path in "abc"] == [None, 33 * MIB, 33 * MIB]


def test_a_model_that_nobody_measured_is_what_triton_reports_or_its_files_say(sizing: Sizing) -> None:
    assert (sizing.adopted(1_000_000, 7_000_000), sizing.adopted(1_000_000), sizing.adopted(0)) == (7_000_000, 1_250_000, 8193)


async def test_a_prediction_survives_storage_trouble(lifecycle: RuntimeLifecycle, world: World) -> None:
    world.fail("survey", SourceUnavailable("away"))
    assert await lifecycle.predict(A) == 1_000_000


async def test_a_prediction_is_what_the_listing_says(lifecycle: RuntimeLifecycle, world: World) -> None:
    world.add("models/a", size_bytes=40 * MIB)
    assert await lifecycle.predict(A) == 50 * MIB
