"""Triton as a child of the adapter, for a container that holds both."""

from __future__ import annotations

from dataclasses import dataclass

from adapter.units import COMMAND, SECONDS, setting


@dataclass(frozen=True, kw_only=True)
class CompanionSettings:
    """Triton as a child of the adapter."""

    command: tuple[str, ...] | None = setting(
        COMMAND,
        "TRITON_COMMAND",
        None,
        "`serve` starts this program beside itself, as `tritonserver --model-control-mode=explicit …`; words are split as by a shell, and "
        "nothing else is. SIGTERM drains the adapter and then ends the program; when the program ends by itself, so does the adapter. "
        "Default: Triton runs elsewhere",
    )
    exit_seconds: float = setting(
        SECONDS, "TRITON_EXIT_SECONDS", "10", "Time for that program to end, after `GRACE_PERIOD_SECONDS`; then it is killed"
    )
