"""Where ModelMesh reaches the adapter."""

from __future__ import annotations

from dataclasses import dataclass

from adapter.units import BOOLEAN, ENDPOINT, OPTIONAL_PORT, Endpoint, setting


@dataclass(frozen=True, kw_only=True)
class SpiSettings:
    """Where ModelMesh reaches the adapter."""

    port: int = setting(
        OPTIONAL_PORT,
        "ADAPTER_PORT",
        "8085",
        "Port of `mmesh.ModelRuntime` on the loopback interface; 0 = off, for HTTP fronts without ModelMesh",
    )
    endpoint: Endpoint | None = setting(ENDPOINT, "ADAPTER_ENDPOINT", None, "`port:N`, `host:N` or `unix:/path`; beats `ADAPTER_PORT`")
    reflection: bool = setting(BOOLEAN, "GRPC_REFLECTION", "false", "Serve gRPC reflection, for debugging with grpcurl")

    @property
    def listen(self) -> Endpoint | None:
        """The endpoint in force; None: ModelMesh has none."""
        return self.endpoint or (Endpoint(host="localhost", port=self.port) if self.port else None)
