"""Models of an operator: registered as the command line says, asked with zeros of the shape that Triton tells."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from tritonclient.grpc import service_pb2 as v2

from tests.mesh.announced import FatalError
from tests.mesh.ground import LoadError
from tests.mesh.inference import InferenceError
from tests.mesh.mesh import Mesh
from tests.mesh.population import Case, model_key
from tests.mesh.runtime import Model

BYTES_OF = {
    "BOOL": 1, "UINT8": 1, "INT8": 1, "UINT16": 2, "INT16": 2, "FP16": 2, "BF16": 2, "UINT32": 4, "INT32": 4, "FP32": 4,
    "UINT64": 8, "INT64": 8, "FP64": 8,
}  # fmt: skip
EMPTY_TEXT = struct.pack("<I", 0)


@dataclass(frozen=True)
class Registration:
    """What the command line says of models."""

    paths: Sequence[str]
    """In turn; `{n}` is the number of the model."""
    model_type: str
    key: str | None = None

    def model(self, number: int) -> Model:
        """One of them."""
        path = self.paths[number % len(self.paths)].replace("{n}", str(number))
        return Model(f"sim-{number}", self.model_type, path, model_key(self.model_type) if self.key is None else self.key)


async def cases_of(mesh: Mesh, registration: Registration, count: int) -> list[Case]:
    """
    Make `count` models. One for each path is loaded for its inputs; ModelMesh has been started for that, and ends again.

    Raises:
        FatalError: ModelMesh cannot start, or one of them cannot be loaded, with the reason.
    """
    await mesh.start()
    models = [registration.model(number) for number in range(count)]
    requests: dict[str, bytes] = {}
    for number, model in enumerate(models):
        template = registration.paths[number % len(registration.paths)]
        if template not in requests:
            mesh.register(model)
            requests[template] = await _zeros(mesh, model)
    await mesh.crash()
    return [Case(model, requests[registration.paths[number % len(registration.paths)]]) for number, model in enumerate(models)]


async def _zeros(mesh: Mesh, model: Model) -> bytes:
    asks = v2.ModelMetadataRequest().SerializeToString()
    try:
        answer = await mesh.infer(model.model_id, asks, method="ModelMetadata")
    except (LoadError, InferenceError) as error:
        raise FatalError(f"{model.path}: {error}") from None
    return zeros(v2.ModelMetadataResponse.FromString(answer))


def zeros(metadata: v2.ModelMetadataResponse) -> bytes:
    """A `ModelInfer` request; variable dimensions are 1, texts are empty."""
    request = v2.ModelInferRequest()
    for tensor in metadata.inputs:
        shape = [max(1, size) for size in tensor.shape]
        request.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=shape)
        count = math.prod(shape)
        one = BYTES_OF.get(tensor.datatype)
        request.raw_input_contents.append(EMPTY_TEXT * count if one is None else bytes(one * count))
    return bytes(request.SerializeToString())
