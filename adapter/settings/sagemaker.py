"""The HTTP front of SageMaker's multi-model contract."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from adapter.units import BOOLEAN, OPTIONAL_PORT, PATHS, choice, setting

PLATFORM_PORT = 8080
"""Where SageMaker calls a container. Source: AWS, "Custom Inference Code with Hosting Services"."""


@dataclass(frozen=True, kw_only=True)
class SageMakerSettings:
    """The HTTP front of SageMaker's multi-model contract."""

    port: int = setting(
        OPTIONAL_PORT,
        "SAGEMAKER_PORT",
        None,
        "Port of SageMaker's multi-model contract over HTTP; 0 = off. Default: `SAGEMAKER_BIND_TO_PORT`; without it 8080 when "
        "`SAGEMAKER_MULTI_MODEL` is true, else 0",
    )
    bind_to_port: int = setting(OPTIONAL_PORT, "SAGEMAKER_BIND_TO_PORT", "0", "The same, as SageMaker itself says it to a container")
    is_multi_model: bool = setting(
        BOOLEAN, "SAGEMAKER_MULTI_MODEL", "false", "Set by SageMaker in a container of a multi-model endpoint: turns this front on"
    )
    model_roots: tuple[Path, ...] = setting(
        PATHS,
        "SAGEMAKER_MODEL_ROOTS",
        "/opt/ml/models",
        "Folders, joined by colons, below which the `url` of a load must lie, links followed; mounted at the same paths for Triton",
    )
    has_local_endpoints: bool = setting(
        BOOLEAN,
        "SAGEMAKER_LOCAL_ENDPOINTS",
        "false",
        "Also serve `/endpoints/{name}/invocations`, which lets a client of SageMaker's runtime call this container",
    )
    answers_as: str = setting(
        choice("contract", "triton", "mms"),
        "SAGEMAKER_ANSWERS_AS",
        "contract",
        "Whose answers are imitated where clients expect them: `triton`: `modelUrl` is the parent folder of the model, every failed invoke "
        "is 400; `mms` (multi-model-server): the status text of a load is `Workers scaled`",
    )

    schema: str = setting(
        choice("infer", "generate", "generate_stream"),
        "SAGEMAKER_TRITON_INFERENCE_TYPE",
        "infer",
        "What JSON asks for in an invocation: `infer`: its form says it (V2, LMI, or generate); else always `generate`, or its stream",
    )

    def __post_init__(self) -> None:
        """The port in force, where none was named."""
        if self.port is None:
            object.__setattr__(self, "port", self.bind_to_port or (PLATFORM_PORT if self.is_multi_model else 0))
