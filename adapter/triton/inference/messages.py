"""
The nouns of `adapter.inference` as Triton's messages, and back. Pure.

An answer's elements are raw bytes, or typed `contents`: ModelMesh's runtimes may give either. Source: the V2 predict protocol, gRPC.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Any

from adapter.inference import Failure, InferenceFailed, InferRequest, InferResponse, ModelInfo, Parameter, Tensor, TensorInfo
from adapter.stubs import service_pb2

FINAL = "triton_final_response"
"""Parameter of a response: whether it is the last one. Source: Triton's `docs/protocol/extension_parameters`, decoupled models."""
WANTS_EMPTY_FINAL = "triton_enable_empty_final_response"
_INT64 = 2**63
_UINT64 = 2**64
_PRIORITY = "priority"
"""The only parameter that Triton takes as UINT64. Source: Triton server `grpc/infer_handler.cc`, `SetInferenceRequestMetadata`."""
_TYPED: Mapping[str, tuple[str, str]] = {
    "BOOL": ("bool_contents", "?"), "INT8": ("int_contents", "b"), "INT16": ("int_contents", "h"), "INT32": ("int_contents", "i"),
    "INT64": ("int64_contents", "q"), "UINT8": ("uint_contents", "B"), "UINT16": ("uint_contents", "H"), "UINT32": ("uint_contents", "I"),
    "UINT64": ("uint64_contents", "Q"), "FP32": ("fp32_contents", "f"), "FP64": ("fp64_contents", "d"),
}  # fmt: skip
"""Datatype → its field of InferTensorContents, and how `struct` packs an element."""


def request_of(request: InferRequest) -> Any:
    """A ModelInferRequest. The parameter that asks for a final response is the stream's own."""
    message = service_pb2.ModelInferRequest(model_name=request.model, model_version=request.version, id=request.id)
    _set(message.parameters, request.parameters)
    for tensor in request.inputs:
        given = message.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        _set(given.parameters, tensor.parameters)
        message.raw_input_contents.append(tensor.data)
    for wanted in request.outputs:
        _set(message.outputs.add(name=wanted.name).parameters, wanted.parameters)
    return message


def response_of(message: Any, *, is_stream: bool = False) -> InferResponse:
    """
    Of a ModelInferResponse; one of a stream is final when it says so.

    Raises:
        InferenceFailed: INTERNAL: it contradicts itself.
    """
    parameters = _parameters(message.parameters)
    final = parameters.pop(FINAL, not is_stream)
    return InferResponse(
        model=message.model_name,
        version=message.model_version,
        id=message.id,
        parameters=parameters,
        outputs=tuple(_outputs(message)),
        is_final=bool(final),
    )


def is_refusal(message: Any) -> bool:
    """Of a ModelStreamInferResponse: whether it is an error that the model had no part in."""
    return bool(message.error_message) and not message.infer_response.model_name


def is_last(message: Any) -> bool:
    """Of a ModelStreamInferResponse: whether Triton sends nothing after it."""
    response = message.infer_response
    return is_refusal(message) or (FINAL in response.parameters and bool(response.parameters[FINAL].bool_param))


def info_of(metadata: Any, config: Any) -> ModelInfo:
    """Of a ModelMetadataResponse and a ModelConfig."""
    return ModelInfo(
        name=metadata.name,
        versions=tuple(metadata.versions),
        platform=metadata.platform,
        inputs=_infos(metadata.inputs),
        outputs=_infos(metadata.outputs),
        is_decoupled=config.model_transaction_policy.decoupled,
        max_batch_size=config.max_batch_size,
        optional_inputs=frozenset(entry.name for entry in config.input if entry.optional),
        parameters={name: value.string_value for name, value in config.parameters.items()},
    )


def _infos(entries: Iterable[Any]) -> tuple[TensorInfo, ...]:
    return tuple(TensorInfo(name=entry.name, datatype=entry.datatype, shape=tuple(entry.shape)) for entry in entries)


def _outputs(message: Any) -> Iterable[Tensor]:
    raw = message.raw_output_contents
    if raw and len(raw) != len(message.outputs):
        raise InferenceFailed(Failure.INTERNAL, f"the inference server's answer has {len(message.outputs)} outputs and {len(raw)} contents")
    for number, output in enumerate(message.outputs):
        yield Tensor(
            name=output.name,
            datatype=output.datatype,
            shape=tuple(output.shape),
            data=raw[number] if raw else _packed(output),
            parameters=_parameters(output.parameters),
        )


def _packed(output: Any) -> bytes:
    """Typed contents as raw bytes. FP16 and BF16 have none: without raw contents such an output can only be empty."""
    if output.datatype == "BYTES":
        return b"".join(struct.pack("<I", len(text)) + text for text in output.contents.bytes_contents)
    name, code = _TYPED.get(output.datatype, ("", ""))
    values = getattr(output.contents, name) if name else ()
    try:
        return struct.pack(f"<{len(values)}{code}", *values)
    except struct.error as error:
        words = f"the inference server's answer has a number that is no {output.datatype}, in {output.name!r}"
        raise InferenceFailed(Failure.INTERNAL, words) from error


def _set(target: Any, parameters: Mapping[str, Parameter]) -> None:
    for name, value in parameters.items():
        if isinstance(value, bool):
            target[name].bool_param = value
        elif isinstance(value, int) and -_INT64 <= value < _INT64:
            target[name].int64_param = value
        elif name == _PRIORITY and isinstance(value, int) and 0 <= value < _UINT64:
            target[name].uint64_param = value
        elif isinstance(value, (int, float)):
            target[name].double_param = float(value)  # also a larger integer, as Triton's own HTTP front gives it
        else:
            target[name].string_param = value


def _parameters(entries: Any) -> dict[str, Parameter]:
    found: dict[str, Parameter] = {}
    for name, value in entries.items():
        kind = value.WhichOneof("parameter_choice")
        if kind is not None:
            found[name] = getattr(value, kind)
    return found
