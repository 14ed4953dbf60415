"""Loads on the real Triton as they were recorded (`python -m tests.prove.memory --record`): alone, and four at once."""

from __future__ import annotations

import json
from pathlib import Path

from tests.prove.memory_at_once import lines_of
from tests.prove.pods import is_near

LINES = lines_of(json.loads(Path(__file__).with_name("loads_at_once.json").read_text()))
FOUR = [line for line in LINES if line.loaded == "four at once"]
ALONE = [line for line in LINES if line.loaded == "alone"]


def test_what_is_called_measured_is_near_the_truth() -> None:
    """By processes all, within 10 % alone and 25 % at once, or 4 MiB; by growth alone, what is called so."""
    assert len(FOUR) >= 16
    assert [problem for line in LINES for problem in line.problems] == []


def test_processes_tell_models_apart_that_are_loaded_at_once() -> None:
    assert all(is_near(line.told, line.true, 0.02) for line in FOUR)


def test_growth_is_a_model_that_is_loaded_alone() -> None:
    assert {line.source_by_growth for line in ALONE} == {"measured"}


def test_growth_that_four_may_have_taken_is_an_estimate_of_each() -> None:
    """They begin together, and each takes more while it runs than at its end: nothing tells them apart."""
    assert {line.source_by_growth for line in FOUR} == {"estimated"}
