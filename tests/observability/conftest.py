"""One real run for the tests that look at it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chart import install
from tests.observability.scene import Scene, scene
from tests.real import parts

PLAYED_SECONDS = 12


@pytest.fixture(scope="session")
def promtool() -> Path:
    return parts.or_skip(install.prometheus) / "promtool"


@pytest.fixture(scope="module")
def played(promtool: Path) -> Iterator[Scene]:
    """Traffic and faults in one pod: some seconds, and the time that the faults take."""
    with scene() as running:
        running.play(PLAYED_SECONDS)
        yield running
