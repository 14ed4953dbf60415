"""Of samples and intervals: what was alone is exact, what overlaps in part is told apart, what cannot be told is never wild."""

from __future__ import annotations

import math
import random

from hypothesis import given
from hypothesis import strategies as st

from adapter.memory.attribution import Change, Sample, bounds, measure
from adapter.records import Measure
from adapter.units import MIB


def load(model: str, begin: float, end: float) -> Change:
    return Change(model, begin, end)


def test_without_a_sample_on_either_side_nothing_is_said() -> None:
    alone = load("a", 1.0, 2.0)
    assert bounds(alone, [alone], [Sample(0.5, 100), Sample(1.9, 150)]) is None
    assert bounds(alone, [alone], [Sample(1.5, 100), Sample(2.9, 150)]) is None
    assert bounds(load("a", 1.0, math.inf), [], [Sample(0.5, 100), Sample(2.9, 150)]) is None


def test_loads_that_overlap_in_part_are_told_apart() -> None:
    """A sample between the end of the first and the begin of the third splits the growth."""
    first, second, third = load("a", 1, 2), load("b", 1.5, 5), load("c", 6, 7)
    samples = [Sample(0, 0), Sample(2.5, 100), Sample(5.5, 100), Sample(8, 170)]
    changes = [first, second, third]

    assert bounds(third, changes, samples) == (70, 70)
    low, high = bounds(first, changes, samples) or (0, 0)
    assert (low, high) == (0, 100)
    assert bounds(second, changes, samples) == (0, 100)


def test_a_load_that_takes_more_while_it_runs_makes_its_neighbour_no_larger() -> None:
    """ONNX Runtime holds a model twice while it reads it: the small one that ends meanwhile has not taken that."""
    large, small = load("large", 1, 9), load("small", 2, 4)
    samples = [Sample(0, 0), Sample(5, 709), Sample(10, 445)]

    assert bounds(small, [large, small], samples) == (0, 445)
    assert bounds(large, [large, small], samples) == (0, 445)


def test_what_a_neighbour_frees_as_it_ends_makes_a_load_no_smaller() -> None:
    large, small = load("large", 1, 9), load("small", 6, 7)
    samples = [Sample(0, 0), Sample(5, 709), Sample(7.5, 300), Sample(10, 445)]

    assert bounds(small, [large, small], samples) == (0, 300)


def test_what_two_loads_took_less_what_one_may_have_taken_is_the_other_ones() -> None:
    first, second = load("a", 1, 3), load("b", 2, 5)
    samples = [Sample(0, 0), Sample(1.5, 90), Sample(3.5, 110), Sample(6, 500)]

    assert bounds(first, [first, second], samples) == (0, 110)
    assert bounds(second, [first, second], samples) == (390, 500)


def test_a_known_neighbour_leaves_the_rest() -> None:
    """A python model is known by its own processes: what is left is the other one's."""
    known, other = Change("python", 1, 2, least=60, most=60), load("onnx", 1, 2)
    assert bounds(other, [known, other], [Sample(0, 0), Sample(3, 100)]) == (40, 40)


def test_what_cannot_be_told_stays_an_estimate_within_its_bounds() -> None:
    assert measure(0, 100 * MIB, 60 * MIB) == Measure(60 * MIB, "estimated", 100 * MIB)
    assert measure(0, 100 * MIB, 600 * MIB).size_bytes == 100 * MIB
    assert measure(50 * MIB, 100 * MIB, MIB).size_bytes == 50 * MIB
    assert measure(80 * MIB, 100 * MIB, 600 * MIB) == Measure(100 * MIB, "measured", 20 * MIB)
    assert measure(0, 3 * MIB, 600 * MIB) == Measure(3 * MIB, "measured", 3 * MIB)


@given(st.integers(0, 2**32), st.integers(1, 8))
def test_the_truth_is_always_within_the_bounds(seed: int, count: int) -> None:
    """Loads and unloads at any time; loads may take more while they run than at their end; samples at any time."""
    choice = random.Random(seed)
    changes, steps, true = [], [], []
    for number in range(count):
        begin = choice.uniform(0, 10)
        end = begin + choice.uniform(0.01, 5)
        size = choice.randrange(1, 1000)
        is_unload = choice.random() < 0.3
        change = Change(str(number), begin, end, -size, 0) if is_unload else Change(str(number), begin, end)
        changes.append(change)
        moment, later = sorted([choice.uniform(begin, end), choice.uniform(begin, end)])
        more = choice.choice([0, size, 1000])
        steps += [(moment, -size)] if is_unload else [(moment, size + more), (later, -more)]
        true.append(-size if is_unload else size)
    times = sorted([-1.0, 20.0, *(choice.uniform(-1, 20) for _ in range(choice.randrange(12)))])
    samples = [Sample(at, 10_000 + sum(size for moment, size in steps if moment <= at)) for at in times]

    for change, size in zip(changes, true, strict=True):
        low, high = bounds(change, changes, samples) or (math.nan, math.nan)
        assert low <= size <= high
        if count == 1:
            assert low == high
