"""What operators see."""

from __future__ import annotations

from dataclasses import dataclass

from adapter.units import LOG_FORMAT, LOG_LEVEL, OPTIONAL_PORT, setting


@dataclass(frozen=True, kw_only=True)
class TelemetrySettings:
    """What operators see."""

    metrics_port: int = setting(
        OPTIONAL_PORT, "METRICS_PORT", "9464", "`/metrics`, `/healthz`, `/readyz`, `/healthz/triton` over HTTP on all interfaces; 0 = off"
    )
    log_level: str = setting(LOG_LEVEL, "LOG_LEVEL", "info", "debug, info, warning or error")
    log_format: str = setting(LOG_FORMAT, "LOG_FORMAT", "auto", "`json`, `text`, or `auto`: text on a terminal, else JSON")
