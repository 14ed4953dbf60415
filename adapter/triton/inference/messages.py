"""
Answers of V2 servers in one form; statuses as failures; messages as JSON. Pure.

An answer's elements are raw bytes, or typed `contents`: ModelMesh's runtimes may give either. Source: the V2 predict protocol, gRPC.
"""

from __future__ import annotations

import re
import struct
from typing import Any

from google.protobuf.json_format import MessageToDict
from grpc import StatusCode

from adapter.inference import DATATYPES, Failure, InferenceFailed, is_final, joined
from adapter.telemetry.redaction import redact
from adapter.triton.reason import one_line

WANTS_EMPTY_FINAL = "triton_enable_empty_final_response"
_FAILURES: dict[StatusCode, Failure] = {
    **dict.fromkeys((StatusCode.INVALID_ARGUMENT, StatusCode.OUT_OF_RANGE), Failure.INVALID),
    **dict.fromkeys((StatusCode.ALREADY_EXISTS, StatusCode.FAILED_PRECONDITION), Failure.INVALID),
    StatusCode.NOT_FOUND: Failure.NOT_FOUND,
    **dict.fromkeys((StatusCode.UNAVAILABLE, StatusCode.RESOURCE_EXHAUSTED), Failure.UNAVAILABLE),
    StatusCode.UNIMPLEMENTED: Failure.UNSUPPORTED,
    **dict.fromkeys((StatusCode.PERMISSION_DENIED, StatusCode.UNAUTHENTICATED), Failure.DENIED),
    **dict.fromkeys((StatusCode.DEADLINE_EXCEEDED, StatusCode.CANCELLED), Failure.TIMEOUT),
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


def completed(response: Any) -> Any:
    """
    A ModelInferResponse that has raw contents for each of its outputs.

    Raises:
        InferenceFailed: INTERNAL: it contradicts itself.
    """
    raw, outputs = response.raw_output_contents, response.outputs
    if not raw:
        raw.extend([_packed(output) for output in outputs])
    elif len(raw) != len(outputs):
        raise InferenceFailed(Failure.INTERNAL, f"the inference server's answer has {len(outputs)} outputs and {len(raw)} contents")
    return response


def is_refusal(message: Any) -> bool:
    """Of a ModelStreamInferResponse: whether it is an error that the model had no part in."""
    return bool(message.error_message) and not message.infer_response.model_name


def is_last(message: Any) -> bool:
    """Of a ModelStreamInferResponse: whether Triton sends nothing after it."""
    return is_refusal(message) or is_final(message.infer_response)


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
    The message as the object of JSON that Triton's own HTTP front gives: protobuf's JSON, but with 64-bit numbers as numbers.

    Names of the fields as they are, what is unset too. Source: measured on Triton 2.51 against `/config` and `/stats`; Triton core
    `ModelConfigToJson`.
    """
    found = MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
    return _with_numbers(message.DESCRIPTOR, found)


def _with_numbers(kind: Any, found: dict[str, Any]) -> dict[str, Any]:
    for field in (kind.fields_by_name[name] for name in found):
        value, inner = found[field.name], field.message_type
        if inner is not None and inner.GetOptions().map_entry:
            found[field.name] = {key: _value(inner.fields_by_name["value"], one) for key, one in value.items()}
        else:
            found[field.name] = [_value(field, one) for one in value] if field.is_repeated else _value(field, value)
    return found


def _value(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return _with_numbers(field.message_type, value)
    is_long = field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64) and field.full_name not in _TEXTS
    return int(value) if is_long else value
