"""
The nouns of inference, and what a front may ask of a V2 server: Triton, or ModelMesh in front of it.

A tensor's elements are raw bytes as gRPC carries them (little endian, row-major; BYTES: each element after its length in 4 bytes).
Nothing here knows gRPC or HTTP. Source of names and types: the V2 predict protocol, its gRPC part.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Protocol

from adapter.errors import AdapterError

Parameter = bool | int | float | str
"""Value of a parameter of a request, a tensor or a response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One input or output."""

    name: str
    datatype: str
    """BOOL, UINT8 … FP16, BF16, FP32, FP64, BYTES."""
    shape: Sequence[int]
    data: bytes
    parameters: Mapping[str, Parameter] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedOutput:
    """An output that the caller names."""

    name: str
    parameters: Mapping[str, Parameter] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class InferRequest:
    """One inference."""

    model: str
    inputs: Sequence[Tensor]
    version: str = ""
    id: str = ""
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    outputs: Sequence[WantedOutput] = ()
    """None named: all that the model has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InferResponse:
    """One answer; a decoupled model gives any number of them."""

    model: str
    version: str
    id: str
    parameters: Mapping[str, Parameter]
    outputs: Sequence[Tensor]
    is_final: bool = True
    """The last of a stream. One that is final may have no outputs: then the stream had ended before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorInfo:
    """What a model says of one of its inputs or outputs."""

    name: str
    datatype: str
    shape: Sequence[int]
    """-1 for a dimension of any size; the batch dimension included, where the model has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """ModelMetadata, and what of ModelConfig decides how a model is asked."""

    name: str
    versions: Sequence[str]
    platform: str
    inputs: Sequence[TensorInfo]
    outputs: Sequence[TensorInfo]
    is_decoupled: bool = False
    max_batch_size: int = 0
    optional_inputs: frozenset[str] = frozenset()
    parameters: Mapping[str, str] = field(default_factory=dict)
    """Of the config (`parameters { key … string_value … }`)."""


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """ServerMetadata."""

    name: str
    version: str
    extensions: Sequence[str]


class Failure(Enum):
    """What a caller may conclude from a failed inference. Each front has its own status for each."""

    INVALID = "invalid"
    """The caller's mistake: Triton says INVALID_ARGUMENT, OUT_OF_RANGE, ALREADY_EXISTS or FAILED_PRECONDITION."""
    NOT_FOUND = "not_found"
    """No such model or version, or it is not loaded."""
    UNAVAILABLE = "unavailable"
    """Triton is away or stopping, or a queue is full: the same request may work later."""
    UNSUPPORTED = "unsupported"
    """UNIMPLEMENTED: as a decoupled model that is asked for one answer."""
    DENIED = "denied"
    """PERMISSION_DENIED, UNAUTHENTICATED."""
    TIMEOUT = "timeout"
    """DEADLINE_EXCEEDED, or CANCELLED by the server."""
    INTERNAL = "internal"
    """The model or its backend has failed."""


class InferenceFailed(AdapterError):
    """An inference, or a question about a model, that brought no answer. The text is the server's own, in one line."""

    reason: ClassVar[str] = "inference"

    def __init__(self, failure: Failure, text: str) -> None:
        super().__init__(text)
        self.failure = failure


class Inference(Protocol):
    """
    A V2 gRPC server. Every call raises InferenceFailed; a call that is cancelled is cancelled in the server, too.

    None of them waits for a server that is away: it fails with UNAVAILABLE at once, or within the connection's first attempt.
    """

    async def infer(self, request: InferRequest, *, headers: Mapping[str, str] | None = None) -> InferResponse:
        """One answer (ModelInfer). `headers` go with the call as metadata: ModelMesh reads some."""

    def stream(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        """
        All answers, each as soon as it is there (ModelStreamInfer, one stream for one request).

        The last one `is_final`. Whoever stops early closes the generator (`contextlib.aclosing`), which cancels the call.
        """

    async def is_live(self) -> bool:
        """ServerLive. False also when the server is away, or has not answered within a second."""

    async def is_ready(self) -> bool:
        """ServerReady, likewise."""

    async def is_model_ready(self, model: str, version: str = "") -> bool:
        """ModelReady. False also for a model that Triton does not know; ModelMesh raises NOT_FOUND for one that it does not know."""

    async def server_info(self) -> ServerInfo:
        """ServerMetadata."""

    async def model_info(self, model: str, version: str = "", *, max_age_seconds: float = 0) -> ModelInfo:
        """
        ModelMetadata and ModelConfig in one.

        Args:
            model: its name.
            version: empty for whichever the server takes.
            max_age_seconds: take an earlier answer that is so young. Nobody tells of a reload: a request that was built from it
                and refused is to be built again from a fresh one.
        """

    async def model_config(self, model: str, version: str = "") -> Mapping[str, Any]:
        """ModelConfig as the JSON object that Triton's HTTP front gives."""

    async def model_statistics(self, model: str = "", version: str = "") -> Mapping[str, Any]:
        """ModelStatistics as the JSON object that Triton's HTTP front gives."""
