"""How the adapter reaches Triton."""

from __future__ import annotations

from dataclasses import dataclass

from adapter.units import ENDPOINT, PORT, SECONDS, Endpoint, setting


@dataclass(frozen=True, kw_only=True)
class TritonSettings:
    """How the adapter reaches Triton."""

    port: int = setting(PORT, "RUNTIME_PORT", "8001", "Triton's gRPC port on localhost")
    endpoint: Endpoint | None = setting(
        ENDPOINT,
        "RUNTIME_ENDPOINT",
        None,
        "`port:N`, `host:N` or `unix:/path`; beats `RUNTIME_PORT`. "
        "A Triton started with `--grpc-address unix:/p/t.sock` is `unix:/p/t.sock:8001`",
    )
    unload_timeout_seconds: float = setting(
        SECONDS,
        "UNLOAD_TIMEOUT_SECONDS",
        "170",
        "Longest time for a whole unload, waiting for other calls and for a purge included; then the unload is answered with an "
        "error that names the obstacle, and ModelMesh repeats it. Below ModelMesh's own 180 s",
    )

    @property
    def target(self) -> str:
        """Triton, in gRPC's form."""
        return self.reach.target

    @property
    def reach(self) -> Endpoint:
        """The endpoint in force."""
        return self.endpoint or Endpoint(host="localhost", port=self.port)
