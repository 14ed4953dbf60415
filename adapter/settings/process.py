"""The process itself: its ports and logs, Triton beside it, and its end."""

from __future__ import annotations

import re
from collections.abc import Iterator

from adapter.settings import kinds
from adapter.settings.kinds import Group, Secret, setting
from adapter.units import Endpoint

RESTRICTED_HEADER = "triton-grpc-protocol-"
"""And the key: the header that Triton compares. Source: Triton's inference_protocols.md, "Limit Endpoint Access"."""
_KEY = re.compile(r"[a-z0-9_.-]+")
"""Source: gRPC over HTTP/2, Header-Name. Triton compares a key as it was written, and gRPC carries small letters only."""
_VALUE = re.compile(r"[!-~](?:[ -~]{,4094}[!-~])?")
"""
Source: gRPC over HTTP/2, ASCII-Value; spaces at its ends may be taken away on the way. gRPC allows 8 KiB for all headers of a call
(grpc/include/grpc/impl/channel_arg_names.h, `max_metadata_size`).
"""


class SpiSettings(Group):
    """Where ModelMesh reaches the adapter."""

    port: int = setting("ADAPTER_PORT", kinds.OPTIONAL_PORT, "8085")
    """Port of `mmesh.ModelRuntime` on the loopback interface; 0 = off, for HTTP fronts without ModelMesh."""
    endpoint: Endpoint | None = setting("ADAPTER_ENDPOINT", kinds.ENDPOINT, None)
    """`port:N`, `host:N` or `unix:/path`; overrides `ADAPTER_PORT`."""
    reflection: bool = setting("GRPC_REFLECTION", kinds.BOOLEAN, "false")
    """Serve gRPC reflection, for debugging with grpcurl."""

    @property
    def listen(self) -> Endpoint | None:
        """The endpoint in force; None: ModelMesh has none."""
        return self.endpoint or (Endpoint(host="localhost", port=self.port) if self.port else None)


class TritonSettings(Group):
    """How the adapter reaches Triton."""

    port: int = setting("RUNTIME_PORT", kinds.PORT, "8001")
    """Triton's gRPC port on localhost."""
    endpoint: Endpoint | None = setting("RUNTIME_ENDPOINT", kinds.ENDPOINT, None)
    """
    `port:N`, `host:N` or `unix:/path`; overrides `RUNTIME_PORT`. A Triton started with `--grpc-address unix:/p/t.sock` is
    `unix:/p/t.sock:8001`.
    """
    unload_timeout_seconds: float = setting("UNLOAD_TIMEOUT_SECONDS", kinds.SECONDS, "170")
    """Longest time for a whole unload; below ModelMesh's own 180 s."""
    load_threads: int = setting("TRITON_LOAD_THREADS", kinds.LOADS, "4")
    """Triton's `--model-load-thread-count`; should be more than `LOADING_CONCURRENCY`."""
    silent_seconds: float = setting("TRITON_SILENT_SECONDS", kinds.SECONDS, "60")
    """A Triton that accepts connections and answers nothing for this time hangs."""
    metrics_endpoint: Endpoint = setting("TRITON_METRICS_ENDPOINT", kinds.ENDPOINT, "127.0.0.1:8002")
    """`port:N` or `host:N` of Triton's own metrics, for the memory of GPUs."""
    restricted_key: str | None = setting("TRITON_RESTRICTED_KEY", kinds.TEXT, None)
    """KEY of Triton's `--grpc-restricted-protocol=…:KEY=VALUE`."""
    restricted_value: Secret | None = setting("TRITON_RESTRICTED_VALUE", kinds.SECRET, None)
    """Its VALUE; never shown."""
    restricted_value_file: Secret | None = setting("TRITON_RESTRICTED_VALUE_FILE", kinds.SECRET_FILE, None)
    """File that holds the value, instead of `TRITON_RESTRICTED_VALUE`; read at start."""

    def problems(self) -> Iterator[str]:
        """Half of a restriction, two values for it, or one that no call to Triton can carry. No text holds the value."""
        value = self.restricted_value or self.restricted_value_file
        if self.restricted_value is not None and self.restricted_value_file is not None:
            yield "TRITON_RESTRICTED_VALUE and TRITON_RESTRICTED_VALUE_FILE are both set; set one of them"
        if (self.restricted_key is None) != (value is None):
            yield "TRITON_RESTRICTED_KEY and its value (TRITON_RESTRICTED_VALUE, or TRITON_RESTRICTED_VALUE_FILE) need each other"
        if self.restricted_key is not None and (not _KEY.fullmatch(self.restricted_key) or self.restricted_key.endswith("-bin")):
            yield (
                "TRITON_RESTRICTED_KEY cannot be part of a gRPC header: it is KEY alone of Triton's "
                "--grpc-restricted-protocol=…:KEY=VALUE; write small letters, digits, '_', '-' and '.', here and there, without '-bin' "
                "at the end"
            )
        if value is not None and not _VALUE.fullmatch(value.text):
            name = "TRITON_RESTRICTED_VALUE" if self.restricted_value else "TRITON_RESTRICTED_VALUE_FILE"
            yield f"{name}: a gRPC header carries 1 to 4096 printable ASCII characters, in one line, without spaces at its ends"

    @property
    def call_headers(self) -> tuple[tuple[str, str], ...]:
        """What every call to Triton carries: the header of the restricted protocol, or nothing."""
        value = self.restricted_value or self.restricted_value_file
        return () if self.restricted_key is None or value is None else ((f"{RESTRICTED_HEADER}{self.restricted_key}", value.text),)

    @property
    def reach(self) -> Endpoint:
        """The endpoint in force."""
        return self.endpoint or Endpoint(host="localhost", port=self.port)


class CompanionSettings(Group):
    """Triton as a child of the adapter."""

    command: tuple[str, ...] | None = setting("TRITON_COMMAND", kinds.COMMAND, None)
    """`serve` starts this program beside itself, as `tritonserver --model-control-mode=explicit …`."""
    exit_seconds: float = setting("TRITON_EXIT_SECONDS", kinds.SECONDS, "10")
    """Time for that program to end, after `GRACE_PERIOD_SECONDS`; then it is killed."""


class TelemetrySettings(Group):
    """What operators see."""

    metrics_port: int = setting("METRICS_PORT", kinds.OPTIONAL_PORT, "9464")
    """`/metrics`, `/healthz`, `/readyz`, `/healthz/triton` over HTTP on all interfaces; 0 = off."""
    log_level: str = setting("LOG_LEVEL", kinds.LOG_LEVEL, "info")
    """debug, info, warning or error."""
    log_format: str = setting("LOG_FORMAT", kinds.LOG_FORMAT, "auto")
    """`json`, `text`, or `auto`: text on a terminal, else JSON."""


class LifetimeSettings(Group):
    """The end of the process."""

    grace_seconds: float = setting("GRACE_PERIOD_SECONDS", kinds.SECONDS, "25")
    """Time after SIGTERM to finish or undo what runs; below the pod's grace period."""
