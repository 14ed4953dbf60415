"""Predictions: above 8 KiB, never above the usable capacity, and learned."""

from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adapter.errors import NoCapacity
from adapter.lifecycle.facts import UNFIT_BYTES, Facts
from adapter.lifecycle.registry import Model, Registry
from adapter.model import Listing, ModelSpec, SourceFile
from adapter.records import Content, Digests
from adapter.settings import read_group
from adapter.settings.capacity import CapacitySettings
from adapter.telemetry.metrics import MODEL_BYTES
from tests.builders import a_spec
from tests.fakes.memory import UntoldMemory
from tests.fakes.world import FakeJournal, Process, World
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
def sizes(capacity: CapacitySettings) -> Facts:
    return Facts(mock.create_autospec(Registry), capacity, FakeJournal(World(), Process()), UntoldMemory())


def of(content: Content | None, size_bytes: int = 0) -> Model:
    return Model("a", content=content, size_bytes=size_bytes)


def measured(sizes: Facts, spec: ModelSpec, file_bytes: int, reported_bytes: int, of: Content | None = None) -> int:
    """The size of a model that is admitted, and then loaded."""
    model = Model("a", asked=spec, content=of or content(spec))
    assert model.content is not None
    sizes.admit(model, spec, file_bytes, model.content)
    sizes.measured(model, reported_bytes)
    return model.size_bytes


def from_files(sizes: Facts, file_bytes: int, *, is_sure: bool) -> int:
    """What is predicted of files."""
    return sizes.predicted(sizes.from_files(file_bytes), is_sure=is_sure)


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
    """To the unit of 8 KiB. A model that is predicted a unit more is never loaded, and no error says why."""
    there = Announced(capacity_bytes=capacity_bytes, default_bytes=default_bytes, threads=threads, timeout_ms=30_000)

    assert announcing(capacity_bytes, default_bytes, threads).usable_bytes == there.usable_units * UNIT_BYTES


@pytest.mark.parametrize("file_bytes", [0, 1, 227, 6554])
def test_no_prediction_is_8_kib_or_less(sizes: Facts, file_bytes: int) -> None:
    """ModelMesh never retries a failed model that it believes to be that small."""
    assert from_files(sizes, file_bytes, is_sure=True) == from_files(sizes, file_bytes, is_sure=False) == 8193


def test_a_model_that_cannot_fit_is_predicted_small_and_refused(sizes: Facts) -> None:
    """A prediction above the capacity would never lead to a loadModel, and no error would say why."""
    assert from_files(sizes, 2048 * MIB, is_sure=True) == UNFIT_BYTES > 8192
    with pytest.raises(NoCapacity, match=r"does not fit: 2048 MiB .* of files × 1.25 = 2560 MiB .*, but the usable capacity is 1014 MiB"):
        sizes.admit(of(None), A, 2048 * MIB, content())


def test_refusal_and_small_prediction_share_one_line(sizes: Facts, capacity: CapacitySettings) -> None:
    largest = int(capacity.usable_bytes / 1.25)
    sizes.admit(of(None), A, largest, content())
    assert from_files(sizes, largest, is_sure=True) == int(largest * 1.25)
    with pytest.raises(NoCapacity):
        sizes.admit(of(None), A, largest + 2, content())
    assert from_files(sizes, largest + 2, is_sure=True) == UNFIT_BYTES


def test_an_unsure_prediction_never_says_that_a_model_cannot_fit(sizes: Facts, capacity: CapacitySettings) -> None:
    """The whole usable capacity at most: with more ModelMesh would not call loadModel."""
    disk = a_spec("p", disk_size_bytes=2048 * MIB)
    predicted = (from_files(sizes, 2048 * MIB, is_sure=False), sizes.blind(disk))
    assert set(predicted) == {capacity.usable_bytes}


def test_a_given_size_beats_everything_that_fits(sizes: Facts) -> None:
    assert sizes.given(GIVEN) == measured(sizes, GIVEN, 12_000, 7) == 500 * MIB
    assert sizes.given(a_spec("p", size_hint_bytes=2048 * MIB)) == UNFIT_BYTES
    with pytest.raises(NoCapacity, match="given as 2048 MiB"):
        sizes.admit(of(None), a_spec("p", size_hint_bytes=2048 * MIB), 1, content())


def test_disk_size_is_file_bytes(sizes: Facts) -> None:
    """`disk_size_bytes` counts files: it is multiplied."""
    assert sizes.blind(a_spec("p", model_id="a", model_type="onnx", disk_size_bytes=1_000_000)) == 1_250_000


def test_a_measured_size_is_remembered_for_what_is_asked_under_any_id(sizes: Facts) -> None:
    measured(sizes, A, 1_000_000, 33 * MIB)
    assert sizes.blind(a_spec("models/a", model_id="other", model_type="onnx")) == 33 * MIB
    assert sizes.blind(a_spec("models/b", model_id="a", model_type="onnx")) == sizes.default_bytes()
    assert sizes.blind(a_spec("models/a", model_id="a", model_type="onnx", storage_key="other")) == sizes.default_bytes()


def test_what_was_remembered_beats_the_estimate_while_the_listing_is_the_same(sizes: Facts) -> None:
    """A size that fitted: files × multiplier would say that it does not."""
    sizes.remember(content(), 33 * MIB)
    sizes.admit(of(None), A, 2048 * MIB, content())
    with pytest.raises(NoCapacity):
        sizes.admit(of(None), A, 2048 * MIB, content(etag="e2"))


def test_what_was_seen_counts_more_than_a_smaller_size_that_was_given(sizes: Facts) -> None:
    sizes.remember(content(GIVEN), 600 * MIB, "measured", "python")
    assert sizes.given(GIVEN) == measured(sizes, GIVEN, 12_000, 0) == 600 * MIB

    sizes.remember(content(GIVEN, etag="e2"), 400 * MIB, "measured", "python")
    assert sizes.given(GIVEN) == 500 * MIB


def test_a_prediction_is_never_below_what_was_measured(sizes: Facts) -> None:
    """Of the same content: another measurement, a report, an estimate, or what an earlier process believed."""
    sizes.remember(content(), 40 * MIB, "measured")
    for size, source in ((30 * MIB, "measured"), (20 * MIB, "reported"), (10 * MIB, "files"), (5 * MIB, "estimated")):
        sizes.remember(content(), size, source)
        assert sizes.blind(A) == 40 * MIB
    sizes.remember(content(etag="e2"), 3 * MIB)
    assert sizes.blind(A) == 3 * MIB


def test_what_was_measured_counts_more_than_larger_files(sizes: Facts) -> None:
    sizes.remember(content(), 40 * MIB, "measured")
    assert measured(sizes, A, 200 * MIB, 0) == sizes.blind(A) == 40 * MIB
    assert sizes.is_final(of(content()))


def test_python_models_are_predicted_by_their_median_once_five_were_measured(sizes: Facts) -> None:
    another = a_spec("new", model_type="python")
    for number in range(5):
        assert sizes.estimate(another, 12_000) == 15_000
        spec = a_spec(f"p{number}", model_type="python:3")
        sizes.remember(content(spec), (number + 1) * 100 * MIB, "measured", spec.model_type)
    assert sizes.estimate(another, 12_000) == 300 * MIB
    assert sizes.estimate(another, 400 * MIB) == 500 * MIB, "more files than that are more memory"
    assert sizes.estimate(a_spec("new", model_type="onnx"), 12_000) == 15_000
    with pytest.raises(NoCapacity, match="the median of python models"):
        for number in range(5):
            spec = a_spec(f"q{number}", model_type="python")
            sizes.remember(content(spec), 4096 * MIB, "measured", "python")
            sizes.remember(content(a_spec(f"r{number}", model_type="python")), 4096 * MIB, "measured", "python")
        sizes.admit(of(None), another, 12_000, content(another))


def test_a_report_above_the_usable_capacity_is_a_fact_against_any_word(sizes: Facts) -> None:
    """Loaded, measured and refused; then refused unmeasured, for as long as the listing is the same."""
    for spec in (A, GIVEN):
        with pytest.raises(NoCapacity) as refused:
            measured(sizes, spec, 1_000_000, 2048 * MIB)
        assert refused.value.text == (
            "model does not fit and is unloaded again: Triton's backend reports 2048 MiB (2147483648 bytes), but the usable capacity "
            "is 1014 MiB (1063010304 bytes) (capacity 1024 MiB (1073741824 bytes) less ModelMesh's reserve for unloads)"
        )
        with pytest.raises(NoCapacity, match=r"does not fit: it took 2048 MiB .* when it was loaded last, but"):
            sizes.admit(of(None), spec, 1_000_000, content(spec))
        sizes.admit(of(None), spec, 1_000_000, content(spec, etag="e2"))
    assert sizes.given(GIVEN) is None, "storage must tell whether it is the same"
    assert (sizes.blind(GIVEN), sizes.blind(A)) == (500 * MIB, sizes.default_bytes())


def test_what_has_no_version_is_tried_anew(sizes: Facts) -> None:
    """An equal listing proves nothing then; a prediction goes by it all the same, and is not sure."""
    with pytest.raises(NoCapacity):
        measured(sizes, A, 1_000_000, 2048 * MIB, content(etag=""))
    sizes.admit(of(None), A, 1_000_000, content(etag=""))
    assert sizes.predicted(2048 * MIB) > UNFIT_BYTES


def test_a_model_that_is_loaded_again_keeps_the_size_that_modelmesh_was_told(sizes: Facts) -> None:
    model = Model("a", asked=A, content=content(), size_bytes=33 * MIB, confirmed=1.0)
    sizes.measured(model, 44 * MIB)
    assert model.size_bytes == 33 * MIB
    with pytest.raises(NoCapacity, match="Triton's backend reports 2048 MiB"):
        sizes.measured(model, 2048 * MIB)


def test_a_model_without_a_measurement_is_what_triton_reports_or_its_files_say(sizes: Facts) -> None:
    assert (sizes.adopted(1_000_000, 7_000_000), sizes.adopted(1_000_000), sizes.adopted(0)) == (7_000_000, 1_250_000, 8193)


def test_the_twenty_largest_models_are_series_that_go_with_them(capacity: CapacitySettings) -> None:
    MODEL_BYTES.clear()  # of other tests
    registry = mock.create_autospec(Registry)
    sizes = Facts(registry, capacity, FakeJournal(World(), Process()), UntoldMemory())
    models = [Model(f"m{number}", content=content(), size_bytes=number * MIB) for number in range(25)]
    sizes.remember(content(), 10 * MIB)
    sizes.remember(content(), 12 * MIB, "measured")

    def shown(loaded: list[Model]) -> dict[tuple[str, str], float]:
        registry.all_in.return_value = loaded
        sizes.show()
        return {(each.labels["model_id"], each.labels["kind"]): each.value for metric in MODEL_BYTES.collect() for each in metric.samples}

    found = shown(models)
    assert {model for model, _ in found} == {f"m{number}" for number in range(5, 25)}
    assert [found["m24", kind] for kind in ("told", "predicted", "measured")] == [24 * MIB, 10 * MIB, 12 * MIB]
    assert {model for model, _ in shown(models[:2])} == {"m0", "m1"}
    assert shown([]) == {}
