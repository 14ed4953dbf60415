"""The HTTP front of SageMaker's multi-model contract."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from adapter.units import BOOLEAN, OPTIONAL_PORT, PATHS, choice, setting


@dataclass(frozen=True, kw_only=True)
class SageMakerSettings:
    """The HTTP front of SageMaker's multi-model contract."""

    port: int = setting(OPTIONAL_PORT, "SAGEMAKER_PORT", "0", "Port of SageMaker's multi-model contract over HTTP; 0 = off")
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
