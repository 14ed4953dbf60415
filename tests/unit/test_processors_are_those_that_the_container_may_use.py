"""The affinity mask says how many processors there are, and the quota of the container's cgroup how many may be used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from adapter.workers import processors

MASK = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("text", "count"),
    [("max 100000", MASK), ("50000 100000", 1), ("150000 100000", min(MASK, 2)), ("6400000 100000", min(MASK, 64)), ("", MASK)],
)
def test_processors(tmp_path: Path, text: str, count: int) -> None:
    quota = tmp_path / "cpu.max"
    assert processors(quota) == MASK, "no cgroup"
    quota.write_text(text + "\n")
    assert processors(quota) == count
