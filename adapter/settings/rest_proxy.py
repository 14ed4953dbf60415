"""The variables of KServe's REST proxy, as ModelMesh Serving's controller sets them: the V2 front then stands in its place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from adapter.units import BOOLEAN, BYTES, OPTIONAL_PORT, PATH, PORT, Endpoint, setting


@dataclass(frozen=True, kw_only=True)
class RestProxySettings:
    """The variables of KServe's REST proxy: V2 REST before ModelMesh."""

    listen_port: int = setting(
        OPTIONAL_PORT,
        "REST_PROXY_LISTEN_PORT",
        "0",
        "Port of V2 REST before ModelMesh, as KServe's REST proxy has it; `V2_REST_PORT` beats it; 0 = off. Without "
        "`CONTAINER_MEM_REQ_BYTES` the process is this proxy alone: no volume, no Triton, no calls of ModelMesh",
    )
    grpc_port: int = setting(
        PORT, "REST_PROXY_GRPC_PORT", "8033", "ModelMesh's port of inference on localhost; `V2_REST_ENDPOINT` beats it"
    )
    max_message_bytes: int = setting(
        BYTES, "REST_PROXY_GRPC_MAX_MSG_SIZE_BYTES", "16Mi", "Longest message to and from ModelMesh; ModelMesh has a limit of its own"
    )
    uses_tls: bool = setting(BOOLEAN, "REST_PROXY_USE_TLS", "false", "Speak TLS with ModelMesh, and trust the pod's own certificate alone")
    skips_verify: bool = setting(
        BOOLEAN, "REST_PROXY_SKIP_VERIFY", "false", "Is accepted and has no effect: whoever has the pod's own certificate is ModelMesh"
    )
    certificate: Path | None = setting(
        PATH, "MM_TLS_KEY_CERT_PATH", None, "The pod's certificate chain (PEM); a process that is the proxy alone speaks HTTPS with it"
    )
    key: Path | None = setting(PATH, "MM_TLS_PRIVATE_KEY_PATH", None, "Its private key (PEM)")

    @property
    def endpoint(self) -> Endpoint:
        """Where ModelMesh is."""
        return Endpoint(host="localhost", port=self.grpc_port)

    def problems(self) -> Iterator[str]:
        """TLS, and nobody to trust."""
        if self.listen_port and self.uses_tls and (self.certificate is None or self.key is None):
            yield "REST_PROXY_USE_TLS is on, but MM_TLS_KEY_CERT_PATH and MM_TLS_PRIVATE_KEY_PATH are not both set"
