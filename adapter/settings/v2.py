"""The HTTP front of the V2 inference protocol."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from adapter.units import BOOLEAN, ENDPOINT, OPTIONAL_PORT, Endpoint, choice, setting


@dataclass(frozen=True, kw_only=True)
class V2Settings:
    """The HTTP front of the V2 inference protocol."""

    port: int = setting(OPTIONAL_PORT, "V2_REST_PORT", "0", "Port of the V2 inference protocol over HTTP; 0 = off")
    endpoint: Endpoint | None = setting(
        ENDPOINT,
        "V2_REST_ENDPOINT",
        None,
        "Which V2 gRPC server answers it: `port:8033` is ModelMesh, which finds a model in any pod. Default: this pod's Triton",
    )
    has_repository: bool = setting(
        BOOLEAN,
        "V2_REPOSITORY_API",
        "false",
        "Open the model repository API: `/v2/repository/...`. Whoever reaches the port can then load models of Triton's folder, or of a "
        "request, and unload every model. Directories there that the adapter has not placed are then left alone",
    )
    non_finite: str = setting(
        choice("literal", "null", "error"),
        "V2_NON_FINITE",
        "literal",
        "How NaN and infinities are written as JSON: `literal` (NaN, Infinity, as Triton does), `null`, or `error` (the request fails)",
    )

    def problems(self) -> Iterator[str]:
        """Two that exclude each other."""
        if self.has_repository and self.endpoint is not None:
            yield "V2_REPOSITORY_API is for this pod's Triton, and V2_REST_ENDPOINT names another server"
