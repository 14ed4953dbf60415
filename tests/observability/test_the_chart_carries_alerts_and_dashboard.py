"""What the chart makes of the two files is what is in them, and the ports that it has scraped are there."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart import install
from tests.chart.render import VALUES, render
from tests.observability.files import ALERTS, dashboard, documented
from tests.real import parts


@pytest.fixture(scope="module")
def objects() -> dict[str, dict[str, Any]]:
    """By kind, with monitoring on."""
    parts.or_skip(install.helm)
    return {found["kind"]: found for found in render(VALUES / "observability.yaml")}


def test_the_rules_are_those_of_the_file(objects: dict[str, dict[str, Any]], promtool: Path, tmp_path: Path) -> None:
    """Templates of alerts go through Helm as they are."""
    rules = objects["PrometheusRule"]["spec"]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules))

    assert rules == yaml.safe_load(ALERTS.read_text())
    subprocess.run([promtool, "check", "rules", tmp_path / "rules.yaml"], capture_output=True, timeout=60, check=True)


def test_the_dashboard_is_that_of_the_file(objects: dict[str, dict[str, Any]]) -> None:
    (content,) = objects["ConfigMap"]["data"].values()

    assert json.loads(content) == dashboard()
    assert objects["ConfigMap"]["metadata"]["labels"]["grafana_dashboard"] == "yes"


def test_monitor_policy_and_scrape_config_speak_of_the_same_ports(objects: dict[str, dict[str, Any]]) -> None:
    containers = objects["ServingRuntime"]["spec"]["containers"]
    declared = {port["name"]: port["containerPort"] for container in containers for port in container["ports"]}
    opened = {port["port"] for rule in objects["NetworkPolicy"]["spec"]["ingress"] for port in rule["ports"]}
    kept = documented()[0]["relabel_configs"][0]["regex"].split("|")

    assert {container["name"] for container in containers} == {"triton", "triton-adapter"}
    assert sorted(kept) == sorted(declared) == sorted(port["port"] for port in objects["PodMonitor"]["spec"]["podMetricsEndpoints"])
    assert set(declared.values()) <= opened
