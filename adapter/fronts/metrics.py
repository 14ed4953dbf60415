"""Metrics of the HTTP fronts, declared when a front is on. Labels hold the pattern of a route, never a path."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

from adapter.telemetry.metrics import PREFIX, REGISTRY

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 180.0, 360.0)
SECONDS = Histogram(
    f"{PREFIX}_http_request_seconds",
    "Duration of a request of an HTTP front, to the end of its answer",
    ("front", "method", "route", "status"),
    registry=REGISTRY,
    buckets=_SECONDS,
)
IN_FLIGHT = Gauge(f"{PREFIX}_http_requests", "Requests that an HTTP front works on", ("front",), registry=REGISTRY)
CONNECTIONS = Gauge(f"{PREFIX}_http_connections", "Connections to an HTTP front", ("front",), registry=REGISTRY)
REFUSED = Counter(
    f"{PREFIX}_http_refused_total",
    "Requests that an HTTP front refused without work: too_many, memory, restricted, draining",
    ("front", "reason"),
    registry=REGISTRY,
)
TABLE = (SECONDS, IN_FLIGHT, CONNECTIONS, REFUSED)
