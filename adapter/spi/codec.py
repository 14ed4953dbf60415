"""
Both ways of `mmesh.ModelRuntime`: requests → the nouns of `adapter.model`, failures → gRPC status. Knows no state.

Owns the meaning of modelType and modelKey. Refuses what it does not understand with a sentence that
names the field and the type that was found, and never quotes a value: modelKey may hold credentials
and error texts are shown to users.

Codes say what the caller may conclude; a neighbour's code is never passed through. ModelMesh treats
all codes of a failed load alike, stores the text in its registry and shows it to users. A text of
more than about 8 KB on the wire is lost whole, as observed with ModelMesh's Java client.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Any, NoReturn, TypeVar
from urllib.parse import quote, unquote

from grpc import StatusCode

from adapter import errors, parameters
from adapter._pb import model_runtime_pb2 as pb
from adapter.errors import AdapterError, InvalidRequest
from adapter.model import MAX_SIZE_BYTES, RESERVED_IDS, ModelSpec, id_problem, is_utf8
from adapter.telemetry.redaction import in_one_line

_FAMILIES = (AdapterError, errors.Rejected, errors.SourceError, errors.ServerError)
"""Classes that say whose fault it was; what is raised is one of their children."""
KINDS: list[type[AdapterError]] = [
    kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, AdapterError) and kind not in _FAMILIES
]
"""All failures that may be raised, but for an unforeseen one."""
REASONS = [AdapterError.reason, *(kind.reason for kind in KINDS)]
"""All that a failure may give: the label of logs and metrics."""

MAX_WIRE_BYTES = 4096
"""Bound of a text as gRPC percent-encodes it; far below the 8 KiB of headers that ModelMesh's client accepts."""
_CUT = "..."
_PRINTABLE = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")
_PART_OF_A_BYTE = re.compile("%.?$")
_SHOWN_BYTES = 1024
"""Of the wire, for an id, and for phases: more than the longest valid id costs."""

_MOST_PARAMETERS = 256
"""Of one request: each is looked at while all other calls wait."""
_KINDS = {
    type(None): "null",
    bool: "a boolean",
    int: "a number",
    float: "a number with a decimal point or an exponent",
    str: "a string",
    list: "an array",
    dict: "an object",
}
T = TypeVar("T")


# ---- requests


def decode(request: pb.LoadModelRequest | pb.PredictModelSizeRequest, reserved: Collection[str] = RESERVED_IDS) -> ModelSpec:
    """
    The model that a request names; `reserved` has the ids that no model may have.

    Raises:
        InvalidRequest: the request could never work.
    """
    if problem := id_problem(request.modelId, reserved):
        raise InvalidRequest(problem)
    key = _object_of(request.modelKey)
    own, params = parameters.split(_params(key.get("storage_params")))
    return ModelSpec(
        model_id=request.modelId,
        model_type=_model_type(key.get("model_type")) or type_of_label(request.modelType),
        path=_path("modelPath", request.modelPath) or "",
        storage_key=_text("modelKey field storage_key", key.get("storage_key")),
        storage_params=params,
        bucket=_text("modelKey field bucket", key.get("bucket")),
        schema_path=_path("modelKey field schema_path", key.get("schema_path")),
        disk_size_bytes=_size("modelKey field disk_size_bytes", key.get("disk_size_bytes")),
        **own,
    )


def type_of_label(label: str) -> str:
    """
    Model type of a request's modelType: `mt:onnx:1|pv:grpc-v2` and `onnx` are `onnx`, `rt:triton-2.x` is unknown.

    Source: the labels that the ModelMesh controller makes of a predictor.
    """
    first = label.partition("|")[0].strip().lower()
    if first.startswith(("rt:", "pv:")):
        return ""
    return _bare_type(first.removeprefix("mt:"))


def _object_of(text: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        fault = re.split(r":| \(| at$", error.msg)[0].lower()  # what follows a colon may quote the text
        raise InvalidRequest(f"modelKey is not valid JSON: {fault} at line {error.lineno} column {error.colno}") from None
    except (RecursionError, ValueError):  # Python refuses to read numbers of more than 4300 digits
        raise InvalidRequest("modelKey is not usable JSON: it is nested too deeply, or a number in it has too many digits") from None
    return _folded(_typed("modelKey", value, dict, "a JSON object"))


def _refuse_constant(name: str) -> NoReturn:
    raise InvalidRequest(f"modelKey is not valid JSON: {name} is not a JSON number")


def _folded(fields: dict[str, Any]) -> dict[str, Any]:
    """Names match without regard to case: an exact match first, then the last one, as the Go adapter's decoder has it."""
    return {name.lower(): value for name, value in fields.items()} | fields


def _model_type(value: Any) -> str:
    """Lower case, without a version; empty when absent."""
    where = "modelKey field model_type"
    if isinstance(value, dict):
        where, value = f"{where}.name", _folded(value).get("name")
    return _bare_type(_text(where, value) or "")


def _size(where: str, value: Any) -> int | None:
    """A count of bytes."""
    if value is None:
        return None
    size = _typed(where, value, int, "a whole number of bytes")
    if not 0 <= size <= MAX_SIZE_BYTES:
        raise InvalidRequest(f"{where} must be from 0 to {MAX_SIZE_BYTES} bytes")
    return size


def _params(value: Any) -> dict[str, str]:
    """The storage parameters; null and empty values are absent. Raises InvalidRequest, also where they are very many."""
    where = "modelKey field storage_params"
    params = _typed(where, {} if value is None else value, dict, "an object of strings")
    if len(params) > _MOST_PARAMETERS:
        raise InvalidRequest(f"{where} has {len(params)} entries, expected at most {_MOST_PARAMETERS}")
    for name in params:
        _text(f"a name in {where}", name)
    texts = {name: _text(f"{where}[{name[:64]!r}]", text) for name, text in params.items()}
    return {name: text for name, text in texts.items() if text}


def _text(where: str, value: Any) -> str | None:
    """A string; null and the empty string are absent."""
    if value is None:
        return None
    text = _typed(where, value, str, "a string")
    if "\0" in text:
        raise InvalidRequest(f"{where} contains a NUL character")
    if not is_utf8(text):
        raise InvalidRequest(f"{where} contains half of a surrogate pair, which is not a character")
    return text or None


def _path(where: str, value: Any) -> str | None:
    """A path that stays below where it starts. Whether it may be absolute depends on who reads it."""
    path = _text(where, value)
    if path and ".." in path.split("/"):
        raise InvalidRequest(f"{where} contains '..', which could lead out of the model's folder")
    return path


def _bare_type(name: str) -> str:
    return name.partition(":")[0].strip().lower()


def _typed(where: str, value: Any, kind: type[T], expected: str) -> T:
    """The value, if it is of this very type: a boolean is not a number."""
    if type(value) is not kind:
        raise InvalidRequest(f"{where} must be {expected}, found {_KINDS[type(value)]}")
    return value


# ---- failures


def code_of(error: AdapterError, method: str = "") -> StatusCode:
    """
    The code of a failure.

    `runtimeStatus` never says DEADLINE_EXCEEDED: ModelMesh would end its process.
    Source: modelmesh `SidecarModelMesh.java` 661-672.
    """
    code = StatusCode[error.code]
    if code is StatusCode.DEADLINE_EXCEEDED and method == "runtimeStatus":
        return StatusCode.UNAVAILABLE
    return code


def text_of(error: AdapterError) -> str:
    """One line: the root cause, then ` (model 'x'; list 0.1 s, pull 26.8 s)`, within `MAX_WIRE_BYTES` on the wire."""
    places = (error.model_id and f"model '{shown(error.model_id, _SHOWN_BYTES)}'", error.phases and shown(error.phases, _SHOWN_BYTES))
    tail = f" ({'; '.join(filter(None, places))})" if any(places) else ""
    return shown(error.text or error.reason, MAX_WIRE_BYTES - len(on_wire(tail))) + tail


def shown(text: str, budget: int = MAX_WIRE_BYTES) -> str:
    """A text made safe to show: one line, no secrets; all of it, or its beginning and `...`, in no more than `budget` bytes of the wire."""
    text = in_one_line(text)
    encoded = on_wire(text)
    if len(encoded) <= budget:
        return text
    return unquote(_PART_OF_A_BYTE.sub("", encoded[: budget - len(_CUT)]), errors="ignore") + _CUT


def on_wire(text: str) -> str:
    """A grpc-message: what is not printable ASCII, and '%', takes three bytes. Source: gRPC over HTTP/2, Status-Message."""
    return quote(text, safe=_PRINTABLE)
