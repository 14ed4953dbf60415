"""The affinity mask says how many processors there are, and the quota of the container's cgroup how many may be used."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from adapter.workers import processors

MASK = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("files", "count"),
    [
        pytest.param({}, MASK, id="no cgroup"),
        pytest.param({"cpu.max": "max 100000"}, MASK, id="v2, none"),
        pytest.param({"cpu.max": "50000 100000"}, 1, id="v2, half a processor"),
        pytest.param({"cpu.max": "150000 100000"}, min(MASK, 2), id="v2, one and a half"),
        pytest.param({"cpu.max": "6400000 100000"}, min(MASK, 64), id="v2, more than there are"),
        pytest.param({"cpu.max": ""}, MASK, id="v2, empty"),
        pytest.param({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, MASK, id="v1, none"),
        pytest.param({"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "100000"}, 1, id="v1, one"),
        pytest.param({"cpu/cpu.cfs_quota_us": "100000"}, MASK, id="v1, half of the files"),
    ],
)
def test_processors(tmp_path: Path, files: Mapping[str, str], count: int) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    assert processors(tmp_path) == count
