"""How far a pull is: series while it runs, and a line in the log from time to time."""

from __future__ import annotations

import asyncio
from unittest import mock

import pytest
from structlog.testing import capture_logs

from adapter.lifecycle import operation
from adapter.telemetry.metrics import REGISTRY


def series() -> dict[str, float]:
    labels = ({"model_id": "m", "kind": kind} for kind in operation.BYTES)
    found = {each["kind"]: REGISTRY.get_sample_value("triton_adapter_load_bytes", each) for each in labels}
    return {kind: value for kind, value in found.items() if value is not None}


async def test_a_pull_has_series_until_its_end_and_a_line_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    assert operation.LOG_SECONDS == 10
    monkeypatch.setattr(operation, "LOG_SECONDS", 0.01)
    load = operation.Operation("load", mock.Mock(model_id="m"))
    load.waits.bytes_of_pull = lambda: (3, 8)
    with capture_logs() as told:
        load.enter("pull")
        assert series() == {"done": 3, "expected": 8}
        async with asyncio.timeout(10):
            while len(told) < 2:
                await asyncio.sleep(0.01)
        load.enter("place")
        assert series() == {}
        lines = len(told)
        await asyncio.sleep(0.05)
    assert len(told) == lines
    assert told[0] == {"event": "load.progress", "log_level": "info", "model_id": "m", "done_bytes": 3, "expected_bytes": 8}
