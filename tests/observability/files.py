"""The chart's alerts, its dashboard and its scrape config, as tests see them: what is asked of Prometheus, and what the questions name."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import promql_parser as promql
import yaml

from tests.real.children import TOP

FILES = TOP / "deploy" / "helm" / "modelmesh-triton-adapter" / "files"
ALERTS = FILES / "alerts.yaml"
DASHBOARD = FILES / "dashboard.json"
PAGE = TOP / "deploy" / "docs" / "observability.md"
TARGET_LABELS = frozenset({"namespace", "pod", "container"})
"""What a PodMonitor, or the documented scrape config, says of each target."""
_MODEL = frozenset({"model", "version"})
TRITON = {
    "nv_inference_request_success": _MODEL,
    "nv_inference_request_failure": _MODEL | {"reason"},
    "nv_inference_request_duration_us": _MODEL,
    "nv_inference_queue_duration_us": _MODEL,
    "nv_inference_compute_infer_duration_us": _MODEL,
    "nv_gpu_memory_used_bytes": frozenset({"gpu_uuid"}),
    "nv_gpu_memory_total_bytes": frozenset({"gpu_uuid"}),
}
"""Triton's metrics with their labels. Inference is compared with the real Triton's; without a GPU there are none of the GPU's."""


@dataclass(frozen=True)
class Selector:
    """A metric in a question: its name, and for each label that is asked for, the values (of a pattern each alternative)."""

    name: str
    values: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Query:
    """One question of a panel."""

    expression: str
    legend: str


@dataclass(frozen=True)
class Panel:
    """A panel that shows something; rows are none."""

    title: str
    unit: str
    queries: tuple[Query, ...]
    lines: frozenset[str]
    """Legends of queries that are limits: drawn dashed, outside of the stack."""
    raw: Mapping[str, Any]


def alerts() -> list[dict[str, Any]]:
    """All rules, in order."""
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    """As it is imported."""
    read: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return read


def documented() -> list[dict[str, Any]]:
    """The page's scrape configs, for a Prometheus without the operator."""
    (block,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    configs: list[dict[str, Any]] = yaml.safe_load(block)["scrape_configs"]
    return configs


def panels() -> list[Panel]:
    """Without rows."""
    return [_panel(raw) for raw in dashboard()["panels"] if raw["type"] != "row"]


def filled(expression: str, *, rate_seconds: int, range_seconds: int) -> str:
    """A panel's question as Grafana would send it, for all namespaces and pods."""
    values = {"$namespace": ".*", "$pod": ".*", "$__rate_interval": f"{rate_seconds}s", "$__range": f"{range_seconds}s"}
    for name, value in values.items():
        expression = expression.replace(name, value)
    return expression


def selectors(expression: str) -> list[Selector]:
    """Every metric that the expression asks for."""
    return [selector for selector, _ in _walked(promql.parse(expression), frozenset())]


def grouped(expression: str) -> list[tuple[Selector, frozenset[str]]]:
    """Every metric with the labels by which something around the metric is aggregated."""
    return list(_walked(promql.parse(expression), frozenset()))


def matched(expression: str) -> frozenset[str]:
    """Labels on which both sides of operators must agree (`on`)."""
    found: set[str] = set()

    def visit(node: promql.Expr) -> None:
        if isinstance(node, promql.BinaryExpr) and node.modifier is not None and node.modifier.matching is not None:
            found.update(node.modifier.matching.labels)

    promql.walk(promql.parse(expression), visit)
    return frozenset(found)


def _panel(raw: Mapping[str, Any]) -> Panel:
    field = raw["fieldConfig"]
    return Panel(
        title=raw["title"],
        unit=field["defaults"]["unit"],
        queries=tuple(Query(target["expr"], target["legendFormat"]) for target in raw["targets"]),
        lines=frozenset(override["matcher"]["options"] for override in field["overrides"]),
        raw=raw,
    )


def _walked(node: promql.Expr, labels: frozenset[str]) -> Iterator[tuple[Selector, frozenset[str]]]:
    match node:
        case promql.VectorSelector():
            values = {matcher.name: tuple(matcher.value.split("|")) for matcher in node.matchers.matchers}
            yield Selector(node.name or "", values), labels
        case promql.MatrixSelector():
            yield from _walked(node.vector_selector, labels)
        case promql.AggregateExpr():
            by = frozenset(node.modifier.labels) if node.modifier is not None else frozenset()
            yield from _walked(node.expr, labels | by)
        case promql.BinaryExpr():
            yield from _walked(node.lhs, labels)
            yield from _walked(node.rhs, labels)
        case promql.Call():
            for argument in node.args:
                yield from _walked(argument, labels)
        case promql.ParenExpr() | promql.UnaryExpr() | promql.SubqueryExpr():
            yield from _walked(node.expr, labels)
