"""The default runtime against the adapter's commands and its settings: what neither the simulator nor the CRD knows."""

from __future__ import annotations

import re
from typing import Any

import pytest

from adapter.cli import main
from tests.chart import matrix
from tests.chart.soundness import ADAPTER, TRITON

RUNTIME = matrix.case("default")


@pytest.fixture
def containers() -> dict[str, dict[str, Any]]:
    return {container["name"]: container for container in RUNTIME.runtime()["spec"]["containers"]}


def test_tritons_probe_asks_the_adapter_and_then_triton_within_its_time(containers: dict[str, dict[str, Any]]) -> None:
    probe = containers[TRITON]["livenessProbe"]
    script = probe["exec"]["command"][-1]

    assert re.findall(r"http://[^\s)]+", script) == ["http://127.0.0.1:9464/healthz/triton", "http://127.0.0.1:8000/v2/health/live"]
    assert sum(int(seconds) for seconds in re.findall(r"--max-time (\d+)", script)) < probe["timeoutSeconds"] < probe["periodSeconds"]


def test_the_adapter_is_started_and_probed_by_commands_that_exist(containers: dict[str, dict[str, Any]]) -> None:
    for command in (containers[ADAPTER]["command"], containers[ADAPTER]["livenessProbe"]["exec"]["command"]):
        assert command[0] == "modelmesh-triton-adapter"
        with pytest.raises(SystemExit) as ended:
            main([*command[1:], "--help"])
        assert ended.value.code == 0
