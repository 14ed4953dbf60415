"""What models take of memory is measured beside a real Triton: in a control group of its own, with the reporter. Small form of a proof."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.prove.memory import measured
from tests.prove.pods import cells, kinds, pod, readyz
from tests.prove.report import columns
from tests.real.install import CannotRunError
from tests.real.polls import until


@pytest.mark.long
def test_models_are_measured_and_predicted_by_that(tmp_path: Path) -> None:
    """ONNX and python models, of several instances too, and an ensemble."""
    try:
        lines = measured(kinds(is_whole=False), tmp_path, look_seconds=12)
    except CannotRunError as error:
        pytest.skip(str(error))
    assert [problem for line in lines for problem in line.problems] == [], columns([cells(line) for line in lines])


def test_capacity_is_measured(tmp_path: Path) -> None:
    """The limit less what Triton takes with no model."""
    try:
        with pod(tmp_path, CAPACITY_SOURCE="measured", MEM_BUFFER_BYTES="1MiB") as (running, group):
            group.limit(1 << 30)
            until(lambda: running.mesh.start().capacityInBytes < 1 << 30, "a capacity that is measured")
            assert 800 << 20 < running.mesh.start().capacityInBytes < (1 << 30) - (2 << 20), "more than the buffer of 1 MiB"
            assert "sizes are estimates" not in readyz(running)
    except CannotRunError as error:
        pytest.skip(str(error))
