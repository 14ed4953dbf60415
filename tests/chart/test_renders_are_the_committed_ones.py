"""What the chart makes of each values file is written down; `python -m tests.chart.golden` accepts a change."""

from __future__ import annotations

import difflib

import pytest

from tests.chart import golden, matrix


@pytest.mark.parametrize("case", matrix.values(), ids=lambda case: case.name)
def test_the_render_is_the_committed_one(case: matrix.Case) -> None:
    kept = golden.path(case).read_text() if golden.path(case).exists() else ""

    changes = difflib.unified_diff(kept.splitlines(), golden.rendered(case).splitlines(), "committed", "now", lineterm="", n=2)

    if text := "\n".join(changes):
        pytest.fail(f"{case.name}: run `python -m tests.chart.golden` if this is meant\n{text}", pytrace=False)


def test_there_is_no_render_without_a_values_file() -> None:
    assert {found.name for found in golden.GOLDEN.iterdir()} == {golden.path(case).name for case in matrix.values()}
