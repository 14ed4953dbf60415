"""Predictions: above 8 KiB, never above the usable capacity, and learned."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adapter.digests import Digests
from adapter.errors import NoCapacity
from adapter.lifecycle.sizing import UNFIT_BYTES, Sizing
from adapter.model import Content, Listing, ModelSpec, SourceFile
from adapter.settings import CapacitySettings, read_group
from tests.builders import a_spec
from tests.mesh.announced import UNIT_BYTES, Announced

A = a_spec("models/a", model_id="a", model_type="onnx")
MIB = 1024 * 1024
GIVEN = a_spec("p", model_id="a", model_type="python", size_hint_bytes=500 * MIB)
DIGESTS = Digests(b"salt")


def content(spec: ModelSpec = A, *, etag: str = "e1") -> Content:
    """What is loaded for this spec while storage has this version."""
    listing = Listing("memory://models/a", "model.onnx", True, (SourceFile("model.onnx", 1_000_000, etag),))
    return Content(DIGESTS.of_spec(spec), DIGESTS.of_listing(listing), DIGESTS.of_crash(spec, listing))


def announcing(capacity_bytes: int, default_bytes: int, threads: int) -> CapacitySettings:
    numbers = {
        "CONTAINER_MEM_REQ_BYTES": str(capacity_bytes),
        "MEM_BUFFER_BYTES": "0",
        "LOADING_CONCURRENCY": str(threads),
        "DEFAULT_MODELSIZE": str(default_bytes),
    }
    return read_group(CapacitySettings, numbers)


@pytest.fixture
def sizing(capacity: CapacitySettings) -> Sizing:
    return Sizing(capacity, DIGESTS)


@pytest.mark.parametrize(
    ("threads", "default", "reserve"),
    [(1, 40 * MIB, 20 * MIB), (2, 40 * MIB, 40 * MIB), (3, 40 * MIB, 30 * MIB), (8, 400 * MIB, 102 * MIB), (1, 9000, 10 * MIB)],
)
def test_the_reserve_follows_modelmesh(threads: int, default: int, reserve: int) -> None:
    """clamp(threads × default ÷ (2 if threads ≤ 2 else 4), 1 %, 10 %)."""
    settings = announcing(1024 * MIB, default, threads)

    assert (1024 * MIB - settings.usable_bytes) // MIB == reserve // MIB


@given(capacity_bytes=st.integers(50 * MIB, 1 << 40), default_bytes=st.integers(8193, 5 * MIB), threads=st.integers(1, 64))
@example(capacity_bytes=30 * MIB, default_bytes=1_000_000, threads=4)
def test_usable_is_what_modelmesh_lets_one_model_have(capacity_bytes: int, default_bytes: int, threads: int) -> None:
    """To the unit of 8 KiB. A model that is predicted a unit more is never loaded, and nobody learns why."""
    there = Announced(capacity_bytes=capacity_bytes, default_bytes=default_bytes, threads=threads, timeout_ms=30_000)

    assert announcing(capacity_bytes, default_bytes, threads).usable_bytes == there.usable_units * UNIT_BYTES


@pytest.mark.parametrize("file_bytes", [0, 1, 227, 6554])
def test_no_prediction_is_8_kib_or_less(sizing: Sizing, file_bytes: int) -> None:
    """ModelMesh never retries a failed model that it believes to be that small."""
    assert sizing.predict_served(file_bytes) == sizing.predict_about(file_bytes) == 8193


def test_a_model_that_cannot_fit_is_predicted_small_and_refused(sizing: Sizing) -> None:
    """A prediction above the capacity would never lead to a loadModel, and nobody would learn why."""
    assert sizing.predict_served(2048 * MIB) == UNFIT_BYTES > 8192
    with pytest.raises(NoCapacity, match=r"does not fit: 2048 MiB .* of files × 1.25 = 2560 MiB .*, but the usable capacity is 1014 MiB"):
        sizing.admit(A, 2048 * MIB, content())


def test_refusal_and_small_prediction_share_one_line(sizing: Sizing, capacity: CapacitySettings) -> None:
    largest = int(capacity.usable_bytes / 1.25)
    sizing.admit(A, largest, content())
    assert sizing.predict_served(largest) == int(largest * 1.25)
    with pytest.raises(NoCapacity):
        sizing.admit(A, largest + 2, content())
    assert sizing.predict_served(largest + 2) == UNFIT_BYTES


def test_what_nobody_is_sure_of_never_says_that_a_model_cannot_fit(sizing: Sizing, capacity: CapacitySettings) -> None:
    """The whole usable capacity at most: with more ModelMesh would not call loadModel."""
    disk = a_spec("p", disk_size_bytes=2048 * MIB)
    predicted = (sizing.predict_about(2048 * MIB), sizing.predict_at_least(2048 * MIB), sizing.predict_blind(disk))
    assert set(predicted) == {capacity.usable_bytes}


def test_an_incomplete_listing_predicts_at_least_the_default(sizing: Sizing) -> None:
    assert sizing.predict_at_least(10) == 1_000_000
    assert sizing.predict_at_least(80_000_000) == 100_000_000


def test_a_given_size_beats_everything_that_fits(sizing: Sizing) -> None:
    assert sizing.given(GIVEN) == sizing.measured(GIVEN, content(GIVEN), 12_000, 7) == 500 * MIB
    assert sizing.given(a_spec("p", size_hint_bytes=2048 * MIB)) == UNFIT_BYTES
    with pytest.raises(NoCapacity, match="given as 2048 MiB"):
        sizing.admit(a_spec("p", size_hint_bytes=2048 * MIB), 1, content())


def test_disk_size_is_file_bytes(sizing: Sizing) -> None:
    """`disk_size_bytes` counts files: it is multiplied."""
    assert sizing.predict_blind(a_spec("p", model_id="a", model_type="onnx", disk_size_bytes=1_000_000)) == 1_250_000


def test_a_measured_size_is_remembered_for_what_is_asked_under_any_id(sizing: Sizing) -> None:
    sizing.measured(A, content(), 1_000_000, 33 * MIB)
    assert sizing.predict_blind(a_spec("models/a", model_id="other", model_type="onnx")) == 33 * MIB
    assert sizing.predict_blind(a_spec("models/b", model_id="a", model_type="onnx")) == sizing.default_bytes
    assert sizing.predict_blind(a_spec("models/a", model_id="a", model_type="onnx", storage_key="other")) == sizing.default_bytes


def test_what_was_remembered_beats_the_estimate_while_the_listing_is_the_same(sizing: Sizing) -> None:
    """A size that fitted: files × multiplier would say that it does not."""
    sizing.remember(content(), 33 * MIB)
    sizing.admit(A, 2048 * MIB, content())
    with pytest.raises(NoCapacity):
        sizing.admit(A, 2048 * MIB, content(etag="e2"))


def test_sizes_that_were_asked_for_long_ago_are_forgotten(sizing: Sizing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adapter.lifecycle.sizing._REMEMBERED", 2)
    specs = [a_spec(path) for path in "abc"]
    for spec in specs:
        sizing.measured(spec, content(spec), 1, 33 * MIB)
    assert [sizing.remembered(spec) for spec in specs] == [None, *((content(spec), 33 * MIB) for spec in specs[1:])]


def test_a_report_above_the_usable_capacity_is_a_fact_against_any_word(sizing: Sizing) -> None:
    """Loaded, measured and refused; then refused unmeasured, for as long as the listing is the same."""
    for spec in (A, GIVEN):
        with pytest.raises(NoCapacity) as refused:
            sizing.measured(spec, content(spec), 1_000_000, 2048 * MIB)
        assert refused.value.text == (
            "model does not fit and is unloaded again: Triton's backend reports 2048 MiB (2147483648 bytes), but the usable capacity "
            "is 1014 MiB (1063010304 bytes) (capacity 1024 MiB (1073741824 bytes) less ModelMesh's reserve for unloads)"
        )
        with pytest.raises(NoCapacity, match=r"does not fit: it took 2048 MiB .* when it was loaded last, but"):
            sizing.admit(spec, 1_000_000, content(spec))
        sizing.admit(spec, 1_000_000, content(spec, etag="e2"))
    assert sizing.given(GIVEN) is None, "storage must tell whether it is the same"
    assert (sizing.predict_blind(GIVEN), sizing.predict_blind(A)) == (500 * MIB, sizing.default_bytes)


def test_what_has_no_version_is_tried_anew(sizing: Sizing) -> None:
    """An equal listing proves nothing then; a prediction goes by it all the same, and is not sure."""
    with pytest.raises(NoCapacity):
        sizing.measured(A, content(etag=""), 1_000_000, 2048 * MIB)
    sizing.admit(A, 1_000_000, content(etag=""))
    assert sizing.predict_again(content(etag=""), 2048 * MIB) > UNFIT_BYTES


def test_a_model_that_is_loaded_again_keeps_the_size_that_modelmesh_was_told(sizing: Sizing) -> None:
    assert sizing.restored(content(), 33 * MIB, 44 * MIB) == 33 * MIB
    with pytest.raises(NoCapacity, match="Triton's backend reports 2048 MiB"):
        sizing.restored(content(), 33 * MIB, 2048 * MIB)


def test_a_model_that_nobody_measured_is_what_triton_reports_or_its_files_say(sizing: Sizing) -> None:
    assert (sizing.adopted(1_000_000, 7_000_000), sizing.adopted(1_000_000), sizing.adopted(0)) == (7_000_000, 1_250_000, 8193)
