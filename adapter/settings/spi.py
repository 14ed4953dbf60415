"""Where ModelMesh reaches the adapter."""

from __future__ import annotations

from dataclasses import dataclass, field

from adapter import units
from adapter.units import Endpoint, setting


@dataclass(frozen=True, kw_only=True)
class SpiSettings:
    """Where ModelMesh reaches the adapter."""

    port: int = field(metadata=setting(units.PORT, "ADAPTER_PORT", "8085", "Port of `mmesh.ModelRuntime` on the loopback interface"))
    endpoint: Endpoint | None = field(
        metadata=setting(units.ENDPOINT, "ADAPTER_ENDPOINT", None, "`port:N`, `host:N` or `unix:/path`; beats `ADAPTER_PORT`")
    )
    reflection: bool = field(
        metadata=setting(units.BOOLEAN, "GRPC_REFLECTION", "false", "Serve gRPC reflection, for debugging with grpcurl")
    )

    @property
    def listen(self) -> Endpoint:
        """The endpoint in force."""
        return self.endpoint or Endpoint(host="localhost", port=self.port)
