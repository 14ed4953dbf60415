"""What the ledger makes of a Triton's life: sizes, base, reserve, and what it never says."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Collection

import pytest

from adapter.memory.attribution import LEAST_SPREAD_BYTES, MOST_SPREAD
from adapter.memory.devices import Device
from adapter.memory.ledger import DEVICE_LAG_SECONDS, MOST_SAMPLES, Ledger
from adapter.memory.report import Report, Stub
from adapter.records import Measure
from adapter.units import MIB


class Rig:
    """A ledger, the time, and a Triton's memory in MiB."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.told: dict[str, list[Measure]] = {}
        self.ledger.on_measured = lambda model, found: self.told.setdefault(model, []).append(found)
        self.at = 100.0
        self.used = 40.0
        self.booked = 0.0
        self.look()

    def look(self, later: Collection[int] = (), **stubs: tuple[int, float]) -> None:
        """A report half a second later; model → process id and its MiB. `later`: processes that are there and not told."""
        self.at += 0.5
        found = {pid: Stub(model, int(mib * MIB)) for model, (pid, mib) in stubs.items()}
        self.ledger.seen(Report(self.at, int(self.used * MIB), 1 << 40, 0, found, frozenset(later)), int(self.booked * MIB))

    def move(self, model: str, *states: str, mib: float = 0.0) -> None:
        for state in states:
            self.at += 0.01
            self.ledger.moved(model, state, self.at, int(mib * MIB))

    def load(self, model: str, mib: float, estimate: float = 1.0) -> None:
        """Alone, between two looks."""
        self.look()
        self.move(model, "pulling", "loading", mib=estimate)
        self.used += mib
        self.move(model, "loaded", mib=estimate)
        self.look()

    def size(self, model: str) -> Measure:
        """What was told last, in MiB."""
        size, source, spread = self.told[model][-1]
        return Measure(size // MIB, source, spread // MIB)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_load_alone_is_measured_at_the_next_look(rig: Rig) -> None:
    rig.move("a", "pulling", "loading")
    rig.used += 50
    rig.move("a", "loaded")
    assert rig.ledger.is_unsettled("a") and rig.ledger.is_watching and not rig.told
    rig.look()
    assert rig.size("a") == Measure(50, "measured", 0)
    assert not rig.ledger.is_unsettled("a") and not rig.ledger.is_watching
    assert rig.ledger.base_bytes == 40 * MIB


def test_two_at_once_stay_estimates_within_what_grew_and_are_measured_when_loaded_alone(rig: Rig) -> None:
    rig.move("a", "loading", mib=70)
    rig.move("b", "loading", mib=500)
    rig.used += 100
    rig.move("a", "loaded", mib=70)
    rig.move("b", "loaded", mib=500)
    rig.look()
    assert (rig.size("a"), rig.size("b")) == (Measure(70, "estimated", 100), Measure(100, "estimated", 100))
    rig.move("b", "unloading", mib=100)
    rig.used -= 40
    rig.move("b", "absent")
    rig.look()
    rig.load("b", 40)
    assert rig.size("b") == Measure(40, "measured", 0)


def test_python_models_are_known_by_their_processes_however_many_load(rig: Rig) -> None:
    for model in ("p", "q", "onnx"):
        rig.move(model, "loading", mib=1)
    rig.used += 20
    rig.look(p=(1, 7), q=(2, 9))
    rig.used += 80
    for model in ("p", "q", "onnx"):
        rig.move(model, "loaded", mib=1)
    rig.look(later=[2], p=(1, 25))
    assert not rig.told.get("q"), "its process was not looked at since it was loaded"
    rig.look(later=[1], q=(2, 35))
    assert (rig.size("p"), rig.size("q")) == (Measure(25, "measured", 0), Measure(35, "measured", 0))
    assert rig.size("onnx").size_bytes <= 100


def test_a_process_that_is_not_told_yet_is_waited_for(rig: Rig) -> None:
    """Of more than twenty."""
    rig.move("p", "loading", "loaded")
    rig.look(later=[2], p=(1, 20))
    assert not rig.told
    rig.look(later=[1], p=(2, 30))
    assert rig.size("p") == Measure(50, "measured", 0)


def test_a_report_without_processes_says_nothing_of_them(rig: Rig) -> None:
    """It was not asked for them: before the load began, the reporter told every five seconds."""
    rig.move("p", "loading", "loaded")
    rig.at += 0.5
    rig.ledger.seen(Report(rig.at, int(rig.used * MIB), None, 0), 0)
    assert not rig.told
    rig.look(p=(1, 20))
    assert rig.size("p") == Measure(20, "measured", 0)


def test_a_process_that_has_ended_is_not_waited_for(rig: Rig) -> None:
    """As the one in which Triton completes a config."""
    rig.move("p", "loading")
    rig.look(p=(1, 17))
    rig.move("p", "loaded")
    rig.look(p=(2, 30))
    assert rig.size("p") == Measure(30, "measured", 0)


def test_a_bundles_inner_models_are_its_own(rig: Rig) -> None:
    rig.move("both", "loading")
    rig.used += 60
    rig.move("both", "loaded")
    rig.at += 0.5
    stubs = {1: Stub("both~inner~scale", 20 * MIB), 2: Stub("both~inner~shift", 30 * MIB)}
    rig.ledger.seen(Report(rig.at, int(rig.used * MIB), None, 0, stubs, frozenset()), 0)
    assert rig.size("both") == Measure(50, "measured", 0)


def test_a_young_models_processes_may_grow_and_an_old_ones_go_to_the_reserve(rig: Rig) -> None:
    rig.move("p", "loading")
    rig.used += 30
    rig.move("p", "loaded")
    rig.look(p=(1, 30))
    rig.booked = 30
    rig.at += 30
    rig.used += 70
    rig.look(p=(1, 100))
    assert rig.size("p") == Measure(100, "measured", 0)
    assert rig.ledger.reserve_bytes == 70 * MIB
    rig.at += 600
    rig.used += 10
    rig.look(p=(1, 110))
    assert rig.size("p").size_bytes == 100
    assert rig.ledger.reserve_bytes == 80 * MIB


def test_what_is_told_of_processes_is_not_below_the_truth_while_they_are_young(rig: Rig) -> None:
    rig.move("p", "loading", "loaded")
    for step in range(50):
        true = 30 + step * 0.1
        rig.look(p=(1, true))
        assert true * MIB <= rig.told["p"][-1].size_bytes <= (true + 0.3) * MIB
    assert len(rig.told["p"]) < 25, "not each of the steps is noted"


def test_what_unloads_do_not_give_back_widens_the_bounds_of_later_loads(rig: Rig) -> None:
    """A heap that keeps 30 MiB: the next model of 50 seems to take 20."""
    rig.load("a", 50)
    rig.load("other", 10)
    rig.look()
    rig.move("a", "unloading", mib=50)
    rig.used -= 20
    rig.move("a", "absent")
    rig.look()
    rig.load("b", 20, estimate=48)
    assert rig.size("b") == Measure(48, "estimated", 30)
    rig.load("c", 20)
    assert rig.size("c").size_bytes < 24, "it was used again once"


def test_a_load_is_measured_after_more_changes_than_are_kept(rig: Rig) -> None:
    """The reporter had nothing to tell meanwhile."""
    rig.ledger._changes = deque(maxlen=5)
    rig.look()
    rig.ledger.seen_devices({"g": Device(0, 1 << 40)}, rig.at)
    rig.move("a", "loading", "loaded")
    for number in range(5):
        rig.move(f"m{number}", "loading", "loaded")
    rig.used += 50
    rig.at += 10
    rig.look()
    rig.ledger.seen_devices({"g": Device(0, 1 << 40)}, rig.at)
    assert rig.size("a").source == "estimated"
    assert not rig.ledger.is_watching


@pytest.mark.parametrize("is_late", [True, False])
def test_a_load_without_a_sample_of_before_is_not_waited_for(rig: Rig, is_late: bool) -> None:
    """It was longer than all samples that are kept; or the first metrics of a GPU came after its begin."""
    rig.look()
    rig.move("a", "loading")
    for _ in range(0 if is_late else MOST_SAMPLES):
        rig.look()
    rig.move("a", "loaded")
    rig.ledger.seen_devices({"g": Device(0, 1 << 40)} if is_late else {}, rig.at)
    rig.look()
    assert not rig.ledger.is_unsettled("a")
    assert not rig.ledger.is_watching


def test_gpus_count_once_their_metrics_are_new_enough(rig: Rig) -> None:
    """A GPU's numbers are two seconds old; the largest GPU is the model's size."""
    rig.ledger.seen_devices({"g0": Device(100 * MIB, 1 << 40), "g1": Device(0, 1 << 40)}, rig.at)
    rig.look()
    rig.move("a", "loading")
    rig.used += 5
    rig.move("a", "loaded")
    grown = {"g0": Device(400 * MIB, 1 << 40), "g1": Device(250 * MIB, 1 << 40)}
    rig.look()
    rig.ledger.seen_devices(grown, rig.at + 1)
    assert "a" not in rig.told
    rig.ledger.seen_devices(grown, rig.at + DEVICE_LAG_SECONDS)
    assert rig.size("a") == Measure(300, "measured", 0)


def test_another_triton_begins_anew(rig: Rig) -> None:
    rig.load("a", 50)
    rig.ledger.seen_devices({"g0": Device(100 * MIB, 1 << 40)}, rig.at)
    assert rig.ledger.fullest(1)
    rig.move("a", "lost")
    assert rig.ledger.fullest(1) is None, "not told of the new one yet"
    rig.used = 35
    rig.look()
    assert rig.ledger.base_bytes == 35 * MIB
    rig.move("a", "loading", mib=50)
    rig.used += 50
    rig.move("a", "loaded", mib=50)
    rig.look()
    assert rig.size("a").size_bytes == 50


def test_no_history_leads_to_a_wild_number() -> None:
    """Random loads, of which some take more while they run, unloads and looks: what is called measured is true within its spread."""
    for seed in range(150):
        choice, rig, true = random.Random(seed), Rig(), dict[str, float]()
        running: dict[str, tuple[str, float]] = {}
        transient: dict[str, float] = {}
        rig.look()
        for number in range(60):
            step = choice.random()
            if step < 0.35:
                running[f"m{number}"] = "loading", choice.choice([1, 5, 20, 80])
                rig.move(f"m{number}", "loading", mib=10)
                transient[f"m{number}"] = choice.choice([0, 10, 200])
                rig.used += transient[f"m{number}"]
            elif step < 0.45 and true:
                model = choice.choice(sorted(true))
                running[model] = "unloading", true.pop(model)
                rig.move(model, "unloading", mib=10)
            elif step < 0.75 and running:
                model = choice.choice(sorted(running))
                kind, size = running.pop(model)
                rig.used -= transient.pop(model, 0)
                rig.used += size if kind == "loading" else -size
                if kind == "loading":
                    true[model] = size
                rig.move(model, "loaded" if kind == "loading" else "absent", mib=10)
            else:
                rig.look()
            for model, (found, *_) in rig.told.items():
                size, source, _ = found
                if model in true and source == "measured":
                    wrong = abs(size / MIB - true[model])
                    assert wrong <= max(LEAST_SPREAD_BYTES / MIB, MOST_SPREAD * true[model]) + 0.01, (seed, model, size / MIB, true[model])
                assert size <= 61 * 80 * MIB
