"""How many lanes a pull ends with, over links that are modelled: latency, a bound on each connection, one on all together."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.storage.pull import growth as room
from adapter.storage.pull.growth import BUSY_BY_KERNEL, FIRST_LANES, Growth, Work

MB = 1_000_000


@dataclass(frozen=True)
class Link:
    """What so many connections move."""

    latency: float
    """Seconds from a connection's begin to its first byte."""
    each: float
    """Bytes a second that one connection gives at most."""
    whole: float
    """The same, of all together."""
    lost: float = 0.0
    """Part of it that each connection beyond the first four costs: they share a processor."""

    def rate(self, lanes: int) -> float:
        return min(lanes * self.each, self.whole) * max(0.1, 1 - self.lost * max(0, lanes - 4))


@dataclass
class Run:
    """A pull over a link, in virtual time."""

    link: Link
    ceiling: int

    def __post_init__(self) -> None:
        self.now = self.progress = 0.0
        self.growth = Growth(self.ceiling, 0.0, Work.MOVING)
        self.starts = [self.link.latency] * self.growth.lanes
        self.most = self.fewest = self.growth.lanes

    def until(self, end: float, link: Link | None = None) -> int:
        self.link = link or self.link
        while self.now < end:
            step = self.growth.look_seconds
            self.progress += self.link.rate(sum(start <= self.now for start in self.starts)) * step
            self.now += step
            self.growth.look(self.now, self.progress, are_all_moving=all(start < self.now for start in self.starts))
            lanes = self.growth.lanes
            self.starts = self.starts[:lanes] + [self.now + self.link.latency] * (lanes - len(self.starts))
            self.most, self.fewest = max(self.most, lanes), min(self.fewest, lanes)
        return self.growth.lanes


LINKS = {
    "loopback: the processor is all there is": (Link(0.0, 500 * MB, 1500 * MB, lost=0.02), (4, 4)),
    "loopback, and one connection nearly fills it": (Link(0.0, 1200 * MB, 1500 * MB), (4, 4)),
    "10 ms, 50 MB/s each, as much as there are": (Link(0.02, 50 * MB, 10_000 * MB), (64, 64)),
    "30 ms, 50 MB/s each, 1.6 GB/s in all": (Link(0.06, 50 * MB, 1600 * MB), (32, 40)),
    "30 ms, 50 MB/s each, 400 MB/s in all": (Link(0.06, 50 * MB, 400 * MB), (8, 10)),
    "a narrow line": (Link(0.06, 50 * MB, 100 * MB), (4, 4)),
    "far away and slow": (Link(0.4, MB, 40 * MB), (40, 50)),
}


@pytest.mark.parametrize("name", LINKS)
def test_a_pull_ends_near_the_best_number(name: str) -> None:
    """As few as move all that can be moved; more only for the moment of a try."""
    link, (fewest, most) = LINKS[name]
    run = Run(link, 64)
    assert fewest <= min(run.until(6 + hundredth / 100) for hundredth in range(100)) <= most


@pytest.mark.parametrize("latency", [0.01, 0.03])
def test_where_the_network_is_real_there_are_many_within_a_second(latency: float) -> None:
    """A model of 2 GiB takes two seconds there."""
    run = Run(Link(2 * latency, 50 * MB, 10_000 * MB), 64)
    assert run.until(0.35) >= 16
    assert run.until(0.7) == 64


def test_small_files_far_away_get_many_lanes_too() -> None:
    """20 ms a file, and one processor that manages 1500 a second; a file counts as 256 KiB."""
    worth = 64 * 1024 + 256 * 1024
    assert 20 <= Run(Link(0.04, worth / 0.02, 1500 * worth), 64).until(3.0) <= 40


def test_what_brought_nothing_is_taken_back_and_tried_less_and_less() -> None:
    """A try costs a tenth of a second."""
    run = Run(Link(0.0, 500 * MB, 1000 * MB, lost=0.02), 64)
    with_more = 0.0
    for hundredth in range(2000):
        run.until(hundredth / 100)
        with_more += 0.01 if run.growth.lanes > FIRST_LANES else 0.0
    assert with_more < 20 * 0.05


def test_a_pull_whose_neighbours_have_gone_takes_what_they_had() -> None:
    """The whole link is ten times as wide from the fifth second on."""
    run = Run(Link(0.02, 50 * MB, 200 * MB), 64)
    assert run.until(5.0) <= 8
    assert run.until(25.0, Link(0.02, 50 * MB, 2000 * MB)) >= 32


def test_a_lane_that_never_begins_keeps_nobody_from_deciding() -> None:
    """Its thread may be another pull's."""
    growth = Growth(64, 0.0, Work.MOVING)
    for step in range(1, 400):
        growth.look(step * 0.025, 100 * math.sin(step) + step * MB, are_all_moving=False)
    assert growth.lanes == FIRST_LANES


def test_a_store_that_gives_nothing_gets_no_more_lanes() -> None:
    """They would only keep more threads waiting; once bytes come, lanes are added."""
    growth = Growth(64, 0.0, Work.MOVING)
    for step in range(1000):
        growth.look(step * 0.01, 0.0, are_all_moving=step > 10)
        assert growth.lanes == FIRST_LANES
    run = Run(Link(0.02, 50 * MB, 10_000 * MB), 64)
    run.growth, run.now = growth, 10.0
    assert run.until(13.0) == 64


@given(
    latency=st.floats(0, 0.4), each=st.floats(0.1, 2000), whole=st.floats(0.1, 5000), ceiling=st.integers(1, 64), lost=st.floats(0, 0.02)
)
def test_over_any_link_a_pull_is_never_stuck_and_never_beyond_its_ceiling(
    latency: float, each: float, whole: float, ceiling: int, lost: float
) -> None:
    """It moves most of what could be moved, with any number of lanes."""
    link = Link(latency, each * MB, whole * MB, lost)
    run = Run(link, ceiling)
    lanes = run.until(30.0)
    assert run.most <= ceiling and run.fewest >= min(ceiling, 2)
    assert link.rate(lanes) >= 0.6 * max(link.rate(count) for count in range(1, ceiling + 1))


def test_no_more_are_tried_while_this_process_has_all_of_a_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lanes would wait for each other. When there is time again, it is tried."""
    monkeypatch.setattr(room, "PROCESSORS", FIRST_LANES)
    growth, cpu_seconds = Growth(64, 0.0, Work.DECRYPTING), 0.0
    for step in range(1, 300):
        now = step * 0.01
        cpu_seconds += 0.01 if now < 1.0 else 0.004
        growth.look(now, step * MB, are_all_moving=True, cpu_seconds=cpu_seconds)
        if now < 1.0:
            assert growth.lanes == FIRST_LANES
        if growth.lanes > FIRST_LANES:
            return
    raise AssertionError("it was never tried")


def test_where_the_kernel_moves_the_bytes_one_busy_processor_is_no_bound() -> None:
    """Sixteen connections over a network take as much, and sixty-four move more. Two thirds of all processors are one."""
    growth = Growth(64, 0.0, Work.MOVING)
    for step in range(1, 100):
        growth.look(step * 0.01, step * growth.lanes * MB, are_all_moving=True, cpu_seconds=step * 0.01 * 0.99 * BUSY_BY_KERNEL)
    assert growth.lanes == 64

    growth = Growth(64, 0.0, Work.MOVING)
    for step in range(1, 100):
        growth.look(step * 0.01, step * growth.lanes * MB, are_all_moving=True, cpu_seconds=step * 0.01 * 1.01 * BUSY_BY_KERNEL)
        assert growth.lanes == FIRST_LANES


def numbers(work: Work, rates: dict[int, int], seconds: float = 3.0, *, busy: float = 1.0) -> list[int]:
    """Of lanes of a pull, of which so many move so many MB/s while the process has so much of a processor."""
    growth, progress, found = Growth(64, 0.0, work), 0.0, [FIRST_LANES]
    for step in range(1, int(seconds * 100)):
        progress += rates[growth.lanes] * MB * 0.01
        growth.look(step * 0.01, progress, are_all_moving=True, cpu_seconds=step * 0.01 * busy)
        if growth.lanes != found[-1]:
            found.append(growth.lanes)
    return found


@pytest.fixture(params=[(Work.DECRYPTING, 1), (Work.DECRYPTING, 2), (Work.ASKING, 2)])
def busy(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> tuple[Work, int]:
    """A work that keeps processors busy, and how many lanes keep nobody from Python's lock."""
    work, processors = request.param
    monkeypatch.setattr(room, "PROCESSORS", processors)
    return work, processors if work is Work.DECRYPTING else 1


@pytest.mark.parametrize("rate", [900, 560, 1500])
def test_fewer_lanes_stay_where_more_do_hardly_more(busy: tuple[Work, int], rate: int) -> None:
    """As anywhere, a seventh more is not worth them."""
    work, fewer = busy
    assert numbers(work, {fewer: rate, 4: 640}) == [4, fewer]


def test_more_lanes_come_back_where_fewer_do_less(busy: tuple[Work, int]) -> None:
    """It is tried again, later and later."""
    work, fewer = busy
    assert numbers(work, {fewer: 300, 4: 640}, 2.0) == [4, fewer, 4]
    assert numbers(work, {fewer: 300, 4: 640}, 30.0).count(fewer) <= 6


def test_a_few_lanes_that_get_nothing_are_joined_by_others(busy: tuple[Work, int]) -> None:
    """One connection that hangs does not keep the rest of the pull waiting for as long as it may."""
    work, fewer = busy
    growth, progress = Growth(64, 0.0, work), 0.0
    for step in range(1, 1000):
        if growth.lanes == fewer and step > 200:
            break
        progress += (640 if growth.lanes == FIRST_LANES else 900) * MB * 0.01
        growth.look(step * 0.01, progress, are_all_moving=True, cpu_seconds=step * 0.01)
    assert growth.lanes == fewer
    for later in range(step, step + 1000):
        growth.look(later * 0.01, progress, are_all_moving=True, cpu_seconds=step * 0.01)
    assert growth.lanes == FIRST_LANES


def test_as_many_lanes_as_processors_decrypt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "PROCESSORS", FIRST_LANES)
    assert numbers(Work.DECRYPTING, {FIRST_LANES: 640}) == [FIRST_LANES]


def test_lanes_that_wait_for_the_network_stay(busy: tuple[Work, int]) -> None:
    work, fewer = busy
    assert fewer not in numbers(work, {4: 200, 16: 800, 64: 900, 19: 800, 18: 800}, 1.0, busy=0.5)


def test_no_fewer_are_tried_where_the_kernel_moves_the_bytes() -> None:
    assert numbers(Work.MOVING, {FIRST_LANES: 640}, busy=2 * BUSY_BY_KERNEL) == [FIRST_LANES]
