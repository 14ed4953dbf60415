"""
The nouns of `adapter.inference` as Triton's messages, and back; statuses as failures; messages as JSON. Pure.

An answer's elements are raw bytes, or typed `contents`: ModelMesh's runtimes may give either. Source: the V2 predict protocol, gRPC.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping
from typing import Any

from grpc import StatusCode

from adapter.inference import (
    DATATYPES,
    Failure,
    InferenceFailed,
    InferRequest,
    InferResponse,
    ModelInfo,
    Parameter,
    Tensor,
    TensorInfo,
    joined,
)
from adapter.stubs import service_pb2
from adapter.telemetry.redaction import redact
from adapter.triton.reason import one_line

FINAL = "triton_final_response"
"""Parameter of a response: whether it is the last one. Source: Triton's `docs/protocol/extension_parameters`, decoupled models."""
WANTS_EMPTY_FINAL = "triton_enable_empty_final_response"
_PRIORITY = "priority"
"""The only parameter that Triton takes as UINT64. Source: Triton server `grpc/infer_handler.cc`, `SetInferenceRequestMetadata`."""
_FAILURES: dict[StatusCode, Failure] = {
    StatusCode.INVALID_ARGUMENT: Failure.INVALID,
    StatusCode.OUT_OF_RANGE: Failure.INVALID,
    StatusCode.ALREADY_EXISTS: Failure.INVALID,
    StatusCode.FAILED_PRECONDITION: Failure.INVALID,
    StatusCode.NOT_FOUND: Failure.NOT_FOUND,
    StatusCode.UNAVAILABLE: Failure.UNAVAILABLE,
    StatusCode.RESOURCE_EXHAUSTED: Failure.UNAVAILABLE,
    StatusCode.UNIMPLEMENTED: Failure.UNSUPPORTED,
    StatusCode.PERMISSION_DENIED: Failure.DENIED,
    StatusCode.UNAUTHENTICATED: Failure.DENIED,
    StatusCode.DEADLINE_EXCEEDED: Failure.TIMEOUT,
    StatusCode.CANCELLED: Failure.TIMEOUT,
}
_LOCAL_LIMIT = re.compile(r"(?:Received|Sent) message larger than max|CLIENT: (?:Received|Sent) message")
"""gRPC's RESOURCE_EXHAUSTED for a message above the channel's limit: the same request never works."""
_UNKNOWN_MODEL = "Request for unknown model: '"
"""No such model or version, or it is not at ready state (for which Triton has UNAVAILABLE). Source: Triton core `model_lifecycle.cc`."""
_AWAY = re.compile(r"failed to connect to all addresses|DNS resolution failed|errors resolving|empty address list")
_BROKEN = ("Stream removed", "RST_STREAM", "Socket closed", "recvmsg:", "Broken pipe", "GOAWAY")
"""Beginnings of gRPC's own words for a connection that broke during a call."""
_LATER = ("Exceeds maximum queue size", "Server exiting", "Server not ready")
_TEXTS = frozenset({"inference.ModelSequenceBatching.InitialState.dims"})
"""64-bit numbers that Triton leaves as protobuf's JSON has them: as texts."""
_DIGITS_OF_FP32 = range(6, 10)


def request_of(request: InferRequest) -> Any:
    """A ModelInferRequest. The parameter that asks for a final response is the stream's own."""
    message = service_pb2.ModelInferRequest(model_name=request.model, model_version=request.version, id=request.id)
    _set(message.parameters, request.parameters)
    for tensor in request.inputs:
        _set(message.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape).parameters, tensor.parameters)
        message.raw_input_contents.append(tensor.data)
    for name, parameters in request.outputs.items():
        _set(message.outputs.add(name=name).parameters, parameters)
    return message


def response_of(message: Any, *, is_stream: bool = False) -> InferResponse:
    """
    Of a ModelInferResponse; one of a stream is final when it says so.

    Raises:
        InferenceFailed: INTERNAL: it contradicts itself.
    """
    parameters = _parameters(message.parameters)
    is_final = bool(parameters.pop(FINAL, not is_stream))
    raw = message.raw_output_contents
    if raw and len(raw) != len(message.outputs):
        raise InferenceFailed(Failure.INTERNAL, f"the inference server's answer has {len(message.outputs)} outputs and {len(raw)} contents")
    outputs = tuple(
        Tensor(
            name=output.name,
            datatype=output.datatype,
            shape=tuple(output.shape),
            data=raw[number] if raw else _packed(output),
            parameters=_parameters(output.parameters),
        )
        for number, output in enumerate(message.outputs)
    )
    names = {"model": message.model_name, "version": message.model_version, "id": message.id}
    return InferResponse(**names, parameters=parameters, outputs=outputs, is_final=is_final)


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
    )


def _infos(entries: Iterable[Any]) -> tuple[TensorInfo, ...]:
    return tuple(TensorInfo(name=entry.name, datatype=entry.datatype, shape=tuple(entry.shape)) for entry in entries)


def _packed(output: Any) -> bytes:
    """Typed contents as raw bytes. FP16 and BF16 have none: without raw contents such an output can only be empty."""
    code, name = DATATYPES.get(output.datatype, ("", ""))
    values = getattr(output.contents, name) if name else ()
    if not code:
        return joined(values)
    try:
        return struct.pack(f"<{len(values)}{code}", *values)
    except struct.error as error:
        words = f"the inference server's answer has a number that is no {output.datatype}, in {output.name!r}"
        raise InferenceFailed(Failure.INTERNAL, words) from error


def _set(target: Any, parameters: Mapping[str, Parameter]) -> None:
    for name, value in parameters.items():
        if isinstance(value, bool):
            target[name].bool_param = value
        elif isinstance(value, str):
            target[name].string_param = value
        elif isinstance(value, int) and -(2**63) <= value < 2**63:
            target[name].int64_param = value
        elif name == _PRIORITY and isinstance(value, int) and 0 <= value < 2**64:
            target[name].uint64_param = value
        else:
            target[name].double_param = float(value)  # also a larger integer, as Triton's own HTTP front gives it


def _parameters(entries: Any) -> dict[str, Parameter]:
    kinds = {name: value.WhichOneof("parameter_choice") for name, value in entries.items()}
    return {name: getattr(entries[name], kind) for name, kind in kinds.items() if kind is not None}


def failure_of(code: StatusCode, details: str, request_id: str = "") -> InferenceFailed:
    """
    Of a call's status, with the server's own words in one line.

    Args:
        code: as gRPC has it.
        details: as gRPC has them.
        request_id: the request's own, which Triton writes before its words.
    """
    text = _words(details, request_id)
    failure = _FAILURES.get(code, Failure.INTERNAL)
    if text.startswith(_UNKNOWN_MODEL):
        failure = Failure.NOT_FOUND
    elif code is StatusCode.RESOURCE_EXHAUSTED and _LOCAL_LIMIT.search(text):
        failure = Failure.INVALID
    elif code is StatusCode.UNAVAILABLE and _AWAY.search(text):
        text = f"the inference server is away: {text.rpartition(': ')[2]}"
    elif text.startswith(_BROKEN):
        failure, text = Failure.UNAVAILABLE, f"the connection to the inference server broke: {text}"
    return InferenceFailed(failure, text)


def failure_in_stream(text: str, is_models: bool, request_id: str = "") -> InferenceFailed:
    """
    Of an error's text in an answer of a stream: it has no code, so the words decide.

    Args:
        text: `error_message`.
        is_models: the answer names its model: the model has failed. Else the request was never taken.
        request_id: as above.
    """
    text = _words(text, request_id)
    if text.startswith(_UNKNOWN_MODEL):
        return InferenceFailed(Failure.NOT_FOUND, text)
    if text.startswith(_LATER):
        return InferenceFailed(Failure.UNAVAILABLE, text)
    return InferenceFailed(Failure.INTERNAL if is_models else Failure.INVALID, text)


def _words(details: str, request_id: str) -> str:
    """Triton's `[request id: …]` is of no use to the caller who has sent that id. Source: Triton core `infer_request.h`."""
    for own in (request_id, "<id_unknown>"):
        details = details.removeprefix(f"[request id: {own}]")
    return redact(one_line(details, moment="while it answered"))


def json_of(message: Any) -> dict[str, Any]:
    """
    The message as the object of JSON that Triton's own HTTP front gives.

    Names of the fields as they are, what is unset too, 64-bit numbers as numbers, FP32 in its shortest form. Source: measured on
    Triton 2.51 against `/config` and `/stats`; Triton core `ModelConfigToJson`, over protobuf's JSON.
    """
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            entry = field.message_type.fields_by_name["value"]
            found[field.name] = {str(key): _value(entry, value[key]) for key in value}
        elif field.is_repeated:
            found[field.name] = [_value(field, one) for one in value]
        elif not field.has_presence or message.HasField(field.name):
            found[field.name] = _value(field, value)
    return found


def _value(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return json_of(value)
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        return value if named is None else named.name  # of a newer Triton
    if field.type == field.TYPE_FLOAT:
        return _shortest(value)
    return str(value) if field.full_name in _TEXTS else value


def _shortest(value: float) -> float:
    """The double with the fewest digits that is the same as FP32."""
    same = struct.pack("<f", value)
    texts = (float(f"{value:.{digits}g}") for digits in _DIGITS_OF_FP32)
    return next((found for found in texts if struct.pack("<f", found) == same), value)
