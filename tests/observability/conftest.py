"""One real run for the tests that look at it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chart import install
from tests.observability.scene import Played, scene
from tests.real import parts

PLAYED_SECONDS = 12


@pytest.fixture(scope="session")
def promtool() -> Path:
    return parts.or_skip(install.prometheus) / "promtool"


@pytest.fixture(scope="module")
def played(promtool: Path) -> Iterator[Played]:
    """Traffic and faults in one pod: some seconds, and the time that the faults take."""
    with scene(["modelmesh-serving-triton-2.x-5d8f7c9b6d-x2x9q"]) as running:
        start = time.time()
        running.play(PLAYED_SECONDS)
        yield Played(running, start, time.time())
