"""The end of the process."""

from __future__ import annotations

from dataclasses import dataclass

from adapter.units import SECONDS, setting


@dataclass(frozen=True, kw_only=True)
class LifetimeSettings:
    """The end of the process."""

    grace_seconds: float = setting(
        SECONDS, "GRACE_PERIOD_SECONDS", "25", "Time after SIGTERM to finish or undo what runs; below the pod's grace period"
    )
