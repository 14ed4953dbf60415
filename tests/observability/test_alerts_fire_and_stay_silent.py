"""Each alert has series that fire it and a near miss, for the real promtool; and says what a person needs at night."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.spi import codec
from tests.observability.files import ALERTS, alerts, selectors
from tests.real.children import TOP

RULES = sorted(Path(__file__).with_name("rules").glob("*.yaml"))
ALERT_NAMES = [rule["alert"] for rule in alerts()]
NO_FAULT = {"draining", "superseded", "abandoned", "not_loaded", "unload_unfinished"}
"""Reasons of failed loads that are no fault, or that no load has: the adapter ends, or a later call came first."""


def run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def cases() -> list[dict[str, Any]]:
    return [case for path in RULES for case in yaml.safe_load(path.read_text())["tests"]]


def fired(case: dict[str, Any]) -> set[str]:
    """What a case says that fires."""
    samples = case["promql_expr_test"][0]["exp_samples"]
    return {re.findall(r'alertname="(\w+)"', sample["labels"])[0] for sample in samples}


def test_promtool_accepts_the_rules(promtool: Path) -> None:
    run(promtool, "check", "rules", ALERTS)


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.stem)
def test_alerts_fire_and_stay_silent(promtool: Path, path: Path) -> None:
    """Exactly those that a case lists."""
    run(promtool, "test", "rules", path)


@pytest.mark.parametrize("alert", ALERT_NAMES)
def test_each_alert_has_a_case_that_fires_it_and_a_near_miss(alert: str) -> None:
    named = [(case["name"].partition(":")[0], fired(case)) for case in cases()]

    assert any(name == alert and alert in alerts for name, alerts in named)
    assert [alerts for name, alerts in named if name == f"{alert}, near miss" and alert not in alerts]
    assert all(alert in alerts for name, alerts in named if name == alert)


def test_an_alert_has_one_name_and_there_are_few() -> None:
    assert len(set(ALERT_NAMES)) == len(ALERT_NAMES) <= 16


@pytest.mark.parametrize("rule", alerts(), ids=ALERT_NAMES)
def test_an_alert_says_what_a_person_needs_at_night(rule: dict[str, Any]) -> None:
    """Where, how many, for how long, and what to read."""
    said = rule["annotations"]

    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert "$labels.namespace" in said["summary"]
    assert re.search(r"\d|\$value", said["description"])
    assert set(said) == {"summary", "description", "runbook_url"}
    assert "://" not in str(said)
    page, _, anchor = said["runbook_url"].partition("#")
    headings = re.findall(r"^##+ (.+)$", (TOP / page).read_text(), re.MULTILINE)
    assert anchor in [heading.lower().replace(" ", "-") for heading in headings]


def test_every_reason_of_a_failed_load_raises_an_alert() -> None:
    """A new reason must be watched by an alert."""
    watched = {
        reason
        for rule in alerts()
        for selector in selectors(rule["expr"])
        if selector.name == "triton_adapter_failures_total" and selector.values.get("method", ("loadModel",)) == ("loadModel",)
        for reason in selector.values["reason"]
    }

    assert watched == set(codec.REASONS) - NO_FAULT
