"""The HTTP fronts, and what they share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from adapter.settings import kinds
from adapter.settings.capacity import memory_bytes
from adapter.settings.kinds import Group, Secret, choice, setting
from adapter.units import Endpoint

PLATFORM_PORT = 8080
"""Where SageMaker calls a container. Source: AWS, "Custom Inference Code with Hosting Services"."""
ROLLING_BATCH = choice("word", "auto", "disable", "vllm", "lmi-dist", "trtllm", "scheduler")
"""As DJL Serving names them: which engine batches is the model's own affair here."""


class HttpSettings(Group):
    """What all HTTP fronts share."""

    address: str = setting("HTTP_ADDRESS", kinds.ADDRESS, "0.0.0.0")  # noqa: S104 - called from outside the pod
    """Address that the HTTP fronts listen on."""
    max_body_bytes: int = setting("HTTP_MAX_BODY_BYTES", kinds.SIZE, "64Mi")
    """Longest body of a request, counted after it was decompressed; a longer one is refused with 413."""
    bodies_bytes: int = setting("HTTP_BODIES_BYTES", kinds.SIZE, None)
    """
    Memory that the bodies of all requests may take; the process that parses large ones may take as much again. Default: a quarter
    of this container's limit.
    """
    max_connections: int = setting("HTTP_MAX_CONNECTIONS", kinds.CONNECTIONS, "1024")
    """Connections to one HTTP front at a time."""
    max_requests: int = setting("HTTP_MAX_REQUESTS", kinds.REQUESTS, "256")
    """Requests of one HTTP front at a time; one more is refused with 503."""
    tls_cert: Path | None = setting("HTTP_TLS_CERT", kinds.PATH, None)
    """Certificate chain (PEM): the HTTP fronts speak HTTPS; needs `HTTP_TLS_KEY`."""
    tls_key: Path | None = setting("HTTP_TLS_KEY", kinds.PATH, None)
    """Its private key (PEM)."""
    restricted_api: Secret | None = setting("HTTP_RESTRICTED_API", kinds.SECRET, None)
    """Calls that need a header, as `model-repository,model-config:X-Admin=secret`, joined by `;`; without it they get 403."""
    restricted_api_file: Secret | None = setting("HTTP_RESTRICTED_API_FILE", kinds.SECRET_FILE, None)
    """File that holds it, instead of `HTTP_RESTRICTED_API`; read at start."""

    def __post_init__(self) -> None:
        """The bound in force, where none was given."""
        if self.bodies_bytes is None:
            object.__setattr__(self, "bodies_bytes", memory_bytes() // 4)

    @property
    def rules(self) -> str:
        """The text of `HTTP_RESTRICTED_API` or of its file."""
        return (self.restricted_api or self.restricted_api_file or Secret("")).text

    def problems(self) -> Iterator[str]:
        """Half of a key pair, or two texts for one."""
        if self.restricted_api is not None and self.restricted_api_file is not None:
            yield "HTTP_RESTRICTED_API and HTTP_RESTRICTED_API_FILE are both set; set one of them"
        if (self.tls_cert is None) != (self.tls_key is None):
            yield "HTTP_TLS_CERT and HTTP_TLS_KEY need each other, and one of them is not set"


class SageMakerSettings(Group):
    """The HTTP front of SageMaker's multi-model contract."""

    port: int = setting("SAGEMAKER_PORT", kinds.OPTIONAL_PORT, None)
    """
    Port of SageMaker's multi-model contract over HTTP; 0 = off. Default: `SAGEMAKER_BIND_TO_PORT`; without it 8080 when
    `SAGEMAKER_MULTI_MODEL` is true, else 0.
    """
    bind_to_port: int = setting("SAGEMAKER_BIND_TO_PORT", kinds.OPTIONAL_PORT, "0")
    """The same, set by SageMaker."""
    is_multi_model: bool = setting("SAGEMAKER_MULTI_MODEL", kinds.BOOLEAN, "false")
    """Set by SageMaker: turns this front on."""
    model_roots: tuple[Path, ...] = setting("SAGEMAKER_MODEL_ROOTS", kinds.PATHS, "/opt/ml/models")
    """Folders, joined by colons, that the `url` of a load must be in; mounted at the same paths for Triton."""
    has_local_endpoints: bool = setting("SAGEMAKER_LOCAL_ENDPOINTS", kinds.BOOLEAN, "false")
    """Also serve `/endpoints/{name}/invocations`, for clients of SageMaker's runtime."""
    schema: str = setting("SAGEMAKER_TRITON_INFERENCE_TYPE", choice("word", "infer", "generate", "generate_stream"), "infer")
    """
    Meaning of JSON in an invocation. `infer`: its form says it (V2, LMI or generate). `generate`, `generate_stream`:
    always that.
    """

    def __post_init__(self) -> None:
        """The port in force, where none was named."""
        if self.port is None:
            object.__setattr__(self, "port", self.bind_to_port or (PLATFORM_PORT if self.is_multi_model else 0))


class V2Settings(Group):
    """The HTTP front of the V2 inference protocol."""

    port: int = setting("V2_REST_PORT", kinds.OPTIONAL_PORT, "0")
    """Port of the V2 inference protocol over HTTP; 0 = off."""
    endpoint: Endpoint | None = setting("V2_REST_ENDPOINT", kinds.ENDPOINT, None)
    """V2 gRPC server that answers it. `port:8033` is ModelMesh, for models of any pod. Default: this pod's Triton."""
    has_repository: bool = setting("V2_REPOSITORY_API", kinds.BOOLEAN, "false")
    """Open the model repository API, `/v2/repository/...`: clients can load and unload models."""

    def problems(self) -> Iterator[str]:
        """Two that exclude each other."""
        if self.has_repository and self.endpoint is not None:
            yield "V2_REPOSITORY_API is for this pod's Triton, and V2_REST_ENDPOINT names another server"


class RestProxySettings(Group):
    """The variables of KServe's REST proxy: V2 REST before ModelMesh."""

    listen_port: int = setting("REST_PROXY_LISTEN_PORT", kinds.OPTIONAL_PORT, "0")
    """Port of V2 REST before ModelMesh, as of KServe's proxy; `V2_REST_PORT` overrides it; 0 = off."""
    grpc_port: int = setting("REST_PROXY_GRPC_PORT", kinds.PORT, "8033")
    """ModelMesh's port of inference on localhost; `V2_REST_ENDPOINT` overrides it."""
    max_message_bytes: int = setting("REST_PROXY_GRPC_MAX_MSG_SIZE_BYTES", kinds.SIZE, "16Mi")
    """Longest message to and from ModelMesh."""
    uses_tls: bool = setting("REST_PROXY_USE_TLS", kinds.BOOLEAN, "false")
    """Speak TLS with ModelMesh, and trust the pod's own certificate alone."""
    certificate: Path | None = setting("MM_TLS_KEY_CERT_PATH", kinds.PATH, None)
    """The pod's certificate chain (PEM); the proxy alone speaks HTTPS with it."""
    key: Path | None = setting("MM_TLS_PRIVATE_KEY_PATH", kinds.PATH, None)
    """Its private key (PEM)."""

    @property
    def endpoint(self) -> Endpoint:
        """Where ModelMesh is."""
        return Endpoint(host="localhost", port=self.grpc_port)

    def problems(self) -> Iterator[str]:
        """TLS without a trusted certificate."""
        if self.listen_port and self.uses_tls and (self.certificate is None or self.key is None):
            yield "REST_PROXY_USE_TLS is on, but MM_TLS_KEY_CERT_PATH and MM_TLS_PRIVATE_KEY_PATH are not both set"


class LlmSettings(Group):
    """The HTTP front for language models. A model's own `serving.properties` overrides what begins with `OPTION_`."""

    port: int = setting("LMI_PORT", kinds.OPTIONAL_PORT, "0")
    """Port of the LMI, TGI and OpenAI schemas over HTTP; 0 = off."""
    model: str | None = setting("LMI_MODEL", kinds.TEXT, None)
    """The model of paths that name none (`/invocations`, `/generate`). Default: the only model that is loaded."""
    is_tgi_compatible: bool = setting("OPTION_TGI_COMPAT", kinds.BOOLEAN, "false")
    """Answer `/invocations` and `/predictions` as TGI does: a list, token details, SSE."""
    output_formatter: str = setting("OPTION_OUTPUT_FORMATTER", choice("word", "auto", "json", "jsonlines", "sse"), "auto")
    """Form of a stream. `jsonlines` and `sse` stream by default; `auto`: `jsonlines`, with TGI `sse`."""
    is_streaming: bool = setting("OPTION_ENABLE_STREAMING", kinds.BOOLEAN, "false")
    """Stream by default."""
    rolling_batch: str = setting("OPTION_ROLLING_BATCH", ROLLING_BATCH, "auto")
    """Schema. `disable`: always the dynamic one; else the rolling one for a prompt, the dynamic one for a list."""
