"""A place for the verb `models`, and logs as they were before."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from adapter.telemetry.http import TelemetryServer
from tests.fakes.logging_state import untouched_logging
from tests.fakes.triton import FakeTriton
from tests.real.ports import free_ports
from tests.verbs.models import Place


@pytest.fixture(autouse=True)
def _untouched_logging() -> Iterator[None]:
    with untouched_logging():
        yield


@pytest.fixture
def readiness() -> list[str]:
    """Why the adapter that is alive is not ready; empty: it is."""
    return []


@pytest.fixture(params=["dead"])
async def place(request: pytest.FixtureRequest, tmp_path: Path, readiness: list[str]) -> AsyncIterator[Place]:
    """With an adapter that is dead, or alive by `indirect` parametrization."""
    (tmp_path / "_triton_models").mkdir()
    (tmp_path / "_adapter").mkdir()
    (port,) = free_ports(1)
    with ExitStack() as stack:
        if request.param == "alive":
            server = TelemetryServer(port=port, readiness=lambda: "; ".join(readiness) or None)
            stack.enter_context(closing(server))
        async with FakeTriton(tmp_path / "_triton_models") as triton:
            yield Place(tmp_path, triton, port)
