"""What operators see."""

from __future__ import annotations

from dataclasses import dataclass, field

from adapter import units
from adapter.units import setting


@dataclass(frozen=True, kw_only=True)
class TelemetrySettings:
    """What operators see."""

    metrics_port: int = field(
        metadata=setting(
            units.OPTIONAL_PORT, "METRICS_PORT", "9464", "`/metrics`, `/healthz`, `/readyz` over HTTP on all interfaces; 0 = off"
        )
    )
    log_level: str = field(metadata=setting(units.LOG_LEVEL, "LOG_LEVEL", "info", "debug, info, warning or error"))
    log_format: str = field(
        metadata=setting(units.LOG_FORMAT, "LOG_FORMAT", "auto", "`json`, `text`, or `auto`: text on a terminal, else JSON")
    )
