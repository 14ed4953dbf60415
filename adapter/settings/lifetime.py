"""The end of the process."""

from __future__ import annotations

from dataclasses import dataclass, field

from adapter import units
from adapter.units import setting


@dataclass(frozen=True, kw_only=True)
class LifetimeSettings:
    """The end of the process."""

    grace_seconds: float = field(
        metadata=setting(
            units.SECONDS,
            "GRACE_PERIOD_SECONDS",
            "25",
            "Time after SIGTERM to finish or undo what runs; below the pod's grace period",
        )
    )
