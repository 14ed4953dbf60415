"""Triton's messages of inference, in short: written and read as tensors with their contents."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from adapter.inference import ModelInfo, Parameter, add_input, parameters_of, set_parameters
from adapter.stubs import model_config_pb2, service_pb2

NONE: Mapping[str, Parameter] = {}
Info = service_pb2.ModelMetadataResponse.TensorMetadata


class Tensor(NamedTuple):
    """One input or output."""

    name: str
    datatype: str
    shape: Sequence[int]
    data: bytes
    parameters: Mapping[str, Parameter] = NONE


def texts(name: str, *values: str | bytes, shape: Sequence[int] | None = None) -> Tensor:
    """A tensor of BYTES."""
    data = b"".join(struct.pack("<I", len(value)) + value for value in (v.encode() if isinstance(v, str) else v for v in values))
    return Tensor(name, "BYTES", tuple(shape or (len(values),)), data)


def request_of(
    model: str,
    *inputs: Tensor,
    version: str = "",
    id: str = "",
    parameters: Mapping[str, Parameter] = NONE,
    outputs: Mapping[str, Mapping[str, Parameter]] = NONE,  # type: ignore[assignment]
) -> Any:
    """A ModelInferRequest; `outputs`: name → parameters."""
    request = service_pb2.ModelInferRequest(model_name=model, model_version=version, id=id)
    set_parameters(request, parameters)
    for name, wanted in outputs.items():
        set_parameters(request.outputs.add(name=name), wanted)
    for tensor in inputs:
        set_parameters(add_input(request, *tensor[:4]), tensor.parameters)
    return request


def response_of(model: str, *outputs: Tensor, id: str = "", parameters: Mapping[str, Parameter] = NONE) -> Any:
    """A ModelInferResponse of version 1."""
    response = service_pb2.ModelInferResponse(model_name=model, model_version="1", id=id)
    set_parameters(response, parameters)
    for tensor in outputs:
        response.raw_output_contents.append(tensor.data)
        set_parameters(response.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape), tensor.parameters)
    return response


def tensors_of(message: Any) -> list[Tensor]:
    """The inputs of a request, or the outputs of a response."""
    is_request = isinstance(message, service_pb2.ModelInferRequest)
    entries, contents = (message.inputs, message.raw_input_contents) if is_request else (message.outputs, message.raw_output_contents)
    pairs = zip(entries, contents, strict=True)
    return [Tensor(entry.name, entry.datatype, tuple(entry.shape), data, parameters_of(entry)) for entry, data in pairs]


def info_of(name: str, inputs: Sequence[Any], outputs: Sequence[Any] = (), *, batch: int = 0, is_decoupled: bool = False) -> ModelInfo:
    """What a model says of itself; inputs and outputs are of the kind `Info`."""
    metadata = service_pb2.ModelMetadataResponse(name=name, versions=["1"], inputs=inputs, outputs=outputs)
    config = model_config_pb2.ModelConfig(max_batch_size=batch)
    config.model_transaction_policy.decoupled = is_decoupled
    return ModelInfo(metadata, config)
