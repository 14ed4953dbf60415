"""The real Prometheus over the real Triton and the adapter: every panel shows data, alerts are told in whole sentences."""

from __future__ import annotations

import os
import re
from pathlib import Path

import grpc
import pytest

from tests.observability.files import TARGET_LABELS, TRITON, Panel, alerts, filled, panels
from tests.observability.picture import drawn
from tests.observability.scene import SETTINGS, Played
from tests.real.polls import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]  # the run counts in the first test
WITHOUT_DATA = {"GPU memory", "ModelMesh: age of the least recently used model"}
"""There is no GPU, and no ModelMesh."""
MEASURED = {"Announced, measured, limit", "Largest models"}
STEP_SECONDS = 1


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: panel.title)
def test_every_question_of_a_panel_is_answered(played: Played, panel: Panel) -> None:
    """And each legend finds its labels in the answer."""
    if panel.title in MEASURED and not played.scene.is_measured:
        pytest.skip("no control group can be made here for Triton and its reporter")
    for query in panel.queries:
        expression = filled(query.expression, rate_seconds=20, range_seconds=round(played.end - played.start))
        series = played.scene.prometheus.query_range(expression, played.start, played.end, STEP_SECONDS)

        assert (series == []) == (panel.title in WITHOUT_DATA)
        for label in re.findall(r"\{\{(\w+)\}\}", query.legend):
            assert all(label in found["metric"] for found in series)


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule["alert"])
def test_prometheus_evaluates_every_alert(played: Played, rule: dict[str, str]) -> None:
    """As it does each second."""
    groups = played.scene.prometheus.ask("rules")["groups"]
    (found,) = [each for group in groups for each in group["rules"] if each["name"] == rule["alert"]]

    assert (found["health"], found.get("lastError")) == ("ok", None)


def test_an_alert_is_told_in_whole_sentences(played: Played) -> None:
    """Three loads of what is not there."""
    for _ in range(3):
        with pytest.raises(grpc.RpcError):
            played.scene.pods[0].mesh.load("bad", "python", "nowhere")

    def told() -> dict[str, str] | None:
        found = [alert for alert in played.scene.prometheus.ask("alerts")["alerts"] if alert["labels"].get("reason") == "source_not_found"]
        return found[0]["annotations"] if found else None

    said = until(told, "an alert")
    assert said["summary"] == "Models in models cannot be loaded because of what they are (source_not_found)"
    assert re.match(r"About \d+(\.\d+)? loads in 30 minutes failed with source_not_found: ", said["description"])


def test_settings_are_told_as_numbers(played: Played) -> None:
    ask = played.scene.prometheus.query

    assert float(ask("triton_adapter_load_timeout_seconds")[0]["value"][1]) == int(SETTINGS["LOADTIME_TIMEOUT"]) / 1000
    assert float(ask("triton_adapter_capacity_bytes")[0]["value"][1]) == 160 * 2**20
    assert 0.9 * 160 * 2**20 < float(ask("triton_adapter_usable_bytes")[0]["value"][1]) < 160 * 2**20
    assert float(ask("triton_adapter_ready")[0]["value"][1]) == 1


def test_the_real_triton_has_the_metrics_of_inference(played: Played) -> None:
    """With the labels that are written down for the check of names."""
    for name, labels in TRITON.items():
        if name.startswith("nv_inference"):
            series = played.scene.prometheus.query(f"last_over_time({name}[10m])")
            assert series
            assert {label for found in series for label in found["metric"]} - {"__name__", "instance", "job", *TARGET_LABELS} <= labels


def test_the_dashboard_can_be_drawn(played: Played, tmp_path: Path) -> None:
    """Every panel with its title; only those without data say so. DASHBOARD_PICTURE names the file to write."""
    drawing = drawn(played.scene.prometheus, played.start, played.end)

    assert all(panel.title in drawing for panel in panels())
    assert drawing.count("no data in this run") == len(WITHOUT_DATA) + (not played.scene.is_measured)
    Path(os.environ.get("DASHBOARD_PICTURE") or tmp_path / "dashboard.svg").write_text(drawing)
