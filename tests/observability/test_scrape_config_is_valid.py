"""
The documented configuration for a Prometheus without the operator: the real one takes it, and gives the right labels to the right ports.

Debian's Prometheus cannot discover pods, so the test lists what discovery would find, by Prometheus's names for it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.observability.files import TARGET_LABELS, documented
from tests.observability.server import Prometheus
from tests.real.polls import until

POD = "modelmesh-serving-triton-2.x-5d8f7c9b6d-x2x9q"
PORTS = (
    ("triton", "triton-metrics", 8002),
    ("triton-adapter", "adapter-metrics", 9464),
    ("mm", "grpc", 8033),
    ("mm", "prometheus", 2112),
    ("rest-proxy", "http", 8008),
)
"""Container, name of the port, port: all that a pod of the runtime declares."""


def discovered() -> list[dict[str, Any]]:
    """The ports of one pod."""
    pod = {"__meta_kubernetes_namespace": "models", "__meta_kubernetes_pod_name": POD}
    names = ("__meta_kubernetes_pod_container_name", "__meta_kubernetes_pod_container_port_name")
    return [{"targets": [f"127.0.0.1:{port}"], "labels": pod | dict(zip(names, place, strict=True))} for *place, port in PORTS]


def test_the_ports_of_metrics_are_scraped_with_the_labels_that_alerts_ask_for(promtool: Path) -> None:
    configs = documented()
    assert all(config.pop("kubernetes_sd_configs") == [{"role": "pod"}] for config in configs)

    with Prometheus([config | {"static_configs": discovered()} for config in configs]) as prometheus:
        targets = until(lambda: prometheus.ask("targets", state="active")["activeTargets"], "targets")

    place = {"namespace": "models", "pod": POD}
    found = {target["scrapeUrl"]: {name: target["labels"].get(name) for name in TARGET_LABELS} for target in targets}
    assert found == {
        "http://127.0.0.1:8002/metrics": place | {"container": "triton"},
        "http://127.0.0.1:9464/metrics": place | {"container": "triton-adapter"},
        "https://127.0.0.1:2112/metrics": place | {"container": None},
    }
