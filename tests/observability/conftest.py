"""One real run for the tests that look at it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.chart import install
from tests.observability.scene import Scene, scene
from tests.real import parts

PLAYED_SECONDS = 30


@dataclass(frozen=True)
class Played:
    """A scene that is over, with Prometheus still there."""

    scene: Scene
    start: float
    end: float


@pytest.fixture(scope="session")
def promtool() -> Path:
    return parts.or_skip(install.prometheus) / "promtool"


@pytest.fixture(scope="session")
def played(promtool: Path) -> Iterator[Played]:
    """Traffic and faults in one pod: half a minute, and the time that the faults take."""
    with scene(["modelmesh-serving-triton-2.x-5d8f7c9b6d-x2x9q"]) as running:
        start = time.time()
        running.play(PLAYED_SECONDS)
        yield Played(running, start, time.time())
