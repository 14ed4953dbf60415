"""Every metric, label and value that alerts and dashboard ask for is one that the adapter, Triton or ModelMesh has."""

from __future__ import annotations

import re
import typing

import pytest
from grpc import StatusCode

from adapter._pb import model_runtime_pb2
from adapter.lifecycle.states import State
from adapter.model import Drift
from adapter.spi import codec
from adapter.telemetry import metrics
from tests.observability.files import TARGET_LABELS, TRITON, alerts, grouped, matched, panels
from tests.tables import metrics_markdown

MODELMESH: dict[str, frozenset[str]] = {"modelmesh_instance_lru_age_seconds": frozenset()}
"""Source: modelmesh `Metric.java`."""
PROMETHEUS: dict[str, frozenset[str]] = {"up": frozenset()}
VALUES = {
    "method": {method.name for method in model_runtime_pb2.DESCRIPTOR.services_by_name["ModelRuntime"].methods},
    "code": {code.name for code in StatusCode},
    "reason": set(codec.REASONS),
    "state": {state.value for state in State},
    "outcome": {"restored", "refused", "crashed", "ended"},
    "kind": {
        "placed", "idle", "staging", "trash", "load", "unload", "used", "base", "reserve", "limit", "measured", *typing.get_args(Drift),
    },
    "container": {"triton", "triton-adapter"},
    "namespace": {"$namespace"},
    "pod": {"$pod"},
}  # fmt: skip
ASKED = [(rule["alert"], rule["expr"]) for rule in alerts()] + [
    (panel.title, re.sub(r"\[\$\w+\]", "[1m]", query.expression)) for panel in panels() for query in panel.queries
]
"""With ranges that can be parsed."""


def adapters() -> dict[str, frozenset[str]]:
    """What the adapter exports: each name as Prometheus shows it, with its labels."""
    found: dict[str, frozenset[str]] = {}
    for metric in metrics.TABLE:
        family = next(iter(metric.describe()))
        labels = frozenset(metric._labelnames)
        if family.type == "histogram":
            found |= {f"{family.name}_bucket": labels | {"le"}, f"{family.name}_sum": labels, f"{family.name}_count": labels}
        else:
            found[f"{family.name}_total" if family.type == "counter" else family.name] = labels
    samples = [sample.name for family in metrics.REGISTRY.collect() for sample in family.samples]
    return found | dict.fromkeys((name for name in samples if name.startswith("process_")), frozenset())


EXPORTED = adapters() | TRITON | MODELMESH | PROMETHEUS


@pytest.mark.parametrize("expression", [pytest.param(expression, id=f"{name}-{number}") for number, (name, expression) in enumerate(ASKED)])
def test_each_metric_has_the_labels_that_are_asked_for(expression: str) -> None:
    for selector, by in grouped(expression):
        assert selector.name in EXPORTED
        assert set(selector.values) | by <= EXPORTED[selector.name] | TARGET_LABELS
        for label, values in selector.values.items():
            assert set(values) <= VALUES[label]
    assert matched(expression) <= TARGET_LABELS


def test_alerts_and_dashboard_ask_for_most_of_what_the_adapter_exports() -> None:
    """What neither alerts nor dashboard show: duplicates of what is shown, and sums."""
    asked = {
        selector.name.removesuffix("_bucket").removesuffix("_count").removesuffix("_sum")
        for _, expression in ASKED
        for selector, _ in grouped(expression)
    }
    exported = {name.split("`")[1] for name in metrics_markdown(metrics.TABLE).splitlines()[2:]}

    assert exported - asked == {
        "triton_adapter_capacity_bytes", "triton_adapter_pulled_files_total", "triton_adapter_index_polls_total",
        "triton_adapter_load_bytes",  # of single loads: the verb `load` shows them
    }  # fmt: skip
