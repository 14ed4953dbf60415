"""The process itself: who reaches it and sees it, the program beside it, and its end."""

from __future__ import annotations

from dataclasses import dataclass

from adapter.settings.kinds import BOOLEAN, COMMAND, ENDPOINT, LOG_FORMAT, LOG_LEVEL, OPTIONAL_PORT, SECONDS, Group, setting
from adapter.units import Endpoint


@dataclass(frozen=True, kw_only=True)
class SpiSettings(Group):
    """Where ModelMesh reaches the adapter."""

    port: int = setting("ADAPTER_PORT", OPTIONAL_PORT, "8085")
    """Port of `mmesh.ModelRuntime` on the loopback interface; 0 = off, for HTTP fronts without ModelMesh."""
    endpoint: Endpoint | None = setting("ADAPTER_ENDPOINT", ENDPOINT, None)
    """`port:N`, `host:N` or `unix:/path`; overrides `ADAPTER_PORT`."""
    reflection: bool = setting("GRPC_REFLECTION", BOOLEAN, "false")
    """Serve gRPC reflection, for debugging with grpcurl."""

    @property
    def listen(self) -> Endpoint | None:
        """The endpoint in force; None: ModelMesh has none."""
        return self.endpoint or (Endpoint(host="localhost", port=self.port) if self.port else None)


@dataclass(frozen=True, kw_only=True)
class CompanionSettings(Group):
    """Triton as a child of the adapter."""

    command: tuple[str, ...] | None = setting("TRITON_COMMAND", COMMAND, None)
    """
    `serve` starts this program beside itself, as `tritonserver --model-control-mode=explicit …`. Default: Triton runs
    elsewhere.
    """
    exit_seconds: float = setting("TRITON_EXIT_SECONDS", SECONDS, "10")
    """Time for that program to end, after `GRACE_PERIOD_SECONDS`; then it is killed."""


@dataclass(frozen=True, kw_only=True)
class TelemetrySettings(Group):
    """What operators see."""

    metrics_port: int = setting("METRICS_PORT", OPTIONAL_PORT, "9464")
    """`/metrics`, `/healthz`, `/readyz`, `/healthz/triton` over HTTP on all interfaces; 0 = off."""
    log_level: str = setting("LOG_LEVEL", LOG_LEVEL, "info")
    """debug, info, warning or error."""
    log_format: str = setting("LOG_FORMAT", LOG_FORMAT, "auto")
    """`json`, `text`, or `auto`: text on a terminal, else JSON."""


@dataclass(frozen=True, kw_only=True)
class LifetimeSettings(Group):
    """The end of the process."""

    grace_seconds: float = setting("GRACE_PERIOD_SECONDS", SECONDS, "25")
    """Time after SIGTERM to finish or undo what runs; below the pod's grace period."""
