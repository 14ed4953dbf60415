"""How long an unload takes is guessed from those of the same kind; the guess follows what was seen, and is forgotten when it is old."""

from __future__ import annotations

import pytest

from adapter.model import Layout, SourceFile
from adapter.triton.expected import KINDS, LONGEST_SECONDS, Expected, kind_of


def known(*kinds: str, seconds: float = 1.0) -> Expected:
    """After two unloads of each kind."""
    expected = Expected()
    for kind in kinds * 2:
        expected.found_held(kind, seconds, seconds)
    return expected


def layout(*paths: str, size_bytes: int = 1000) -> Layout:
    return Layout({path: SourceFile(path, size_bytes, "") for path in paths}, {"config.pbtxt": b"whatever"})


def test_what_is_not_known_is_looked_at_at_once() -> None:
    assert Expected().seconds("new") == 0.0


@pytest.mark.parametrize("order", [1, -1])
def test_of_the_first_two_the_shorter_is_taken_as_it_was_seen(order: int) -> None:
    expected = Expected()
    for held, free in [(1.0, 1.2), (60.0, 60.1)][::order]:
        assert expected.seconds("python") == 0.0
        expected.found_held("python", held, free)
    assert expected.seconds("python") == 1.1


def test_a_first_look_that_found_it_free_makes_the_next_one_earlier_down_to_nothing() -> None:
    expected = known("python")
    seen = []
    for _ in range(100):
        expected.found_free("python")
        seen.append(expected.seconds("python"))

    assert seen == sorted(seen, reverse=True)
    assert seen[0] == 0.9
    assert seen[-1] == 0.0


def test_no_guess_is_longer_than_somebody_who_asks_may_be_left_without_words() -> None:
    expected = known("huge", seconds=100.0)
    assert expected.seconds("huge") == LONGEST_SECONDS


def test_so_many_kinds_are_remembered() -> None:
    expected = known("first", *(f"kind {number}" for number in range(KINDS - 1)))
    assert expected.seconds("first") == 1.0
    expected.found_free("another")

    assert expected.seconds("first") == 0.0
    assert expected.seconds("kind 0") == 1.0


def test_models_of_a_backend_and_size_are_of_one_kind() -> None:
    """Whatever their names and configs are."""
    assert kind_of(layout("1/model.py", "1/w.npy")) == kind_of(layout("7/model.py", "7/other.npy", size_bytes=1020))
    assert kind_of(layout("1/model.onnx")) != kind_of(layout("1/model.plan"))
    assert kind_of(layout("1/model.onnx")) != kind_of(layout("1/model.onnx", size_bytes=10**9))
    assert kind_of(layout()) == kind_of(layout())
