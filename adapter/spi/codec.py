"""
Requests of `mmesh.ModelRuntime` ↔ the nouns of `adapter.model`.

Owns the meaning of modelType and modelKey. Refuses what it does not understand with a sentence that
names the field and the type that was found, and never quotes a value: modelKey may hold credentials
and error texts are shown to users. Knows no state.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Any, NoReturn

from adapter import parameters
from adapter._pb import model_runtime_pb2 as pb
from adapter.errors import InvalidRequest
from adapter.model import MAX_SIZE_BYTES, RESERVED_IDS, ModelSpec, id_problem

_MOST_NAME, _MOST_VALUE = 1024, 64 * 1024
"""Characters of a storage parameter. A certificate chain or a token has less; what a request may bring is kept in several places."""
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
        path=_path("modelPath", request.modelPath),
        storage_key=_text("modelKey field storage_key", key.get("storage_key")),
        storage_params=params,
        bucket=_text("modelKey field bucket", key.get("bucket")),
        schema_path=_path("modelKey field schema_path", key.get("schema_path")) or None,
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
    except RecursionError:
        raise InvalidRequest("modelKey is not usable JSON: it is nested too deeply") from None
    except ValueError:  # Python refuses to read numbers of more than 4300 digits
        raise InvalidRequest("modelKey is not usable JSON: a number in it has too many digits") from None
    if not isinstance(value, dict):
        _refuse("modelKey", "a JSON object", value)
    return _folded(value)


def _refuse_constant(name: str) -> NoReturn:
    raise InvalidRequest(f"modelKey is not valid JSON: {name} is not a JSON number")


def _folded(fields: dict[str, Any]) -> dict[str, Any]:
    """Names match without regard to case: an exact match first, then the last one, as the Go adapter's decoder has it."""
    return {name.lower(): value for name, value in fields.items()} | fields


def _model_type(value: Any) -> str:
    """Lower case, without a version; empty when absent."""
    if isinstance(value, dict):
        return _bare_type(_text("modelKey field model_type.name", _folded(value).get("name")) or "")
    if not isinstance(value, str | None):
        _refuse("modelKey field model_type", "a string or an object with a name", value)
    return _bare_type(_text("modelKey field model_type", value) or "")


def _size(where: str, value: Any) -> int | None:
    """A count of bytes."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        _refuse(where, "a whole number of bytes", value)
    if not 0 <= value <= MAX_SIZE_BYTES:
        raise InvalidRequest(f"{where} must be from 0 to {MAX_SIZE_BYTES} bytes")
    return value


def _params(value: Any) -> dict[str, str]:
    """The storage parameters; null and empty values are absent. Raises InvalidRequest, also where they are very many or long."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        _refuse("modelKey field storage_params", "an object of strings", value)
    if len(value) > _MOST_PARAMETERS:
        raise InvalidRequest(f"modelKey field storage_params has {len(value)} entries, expected at most {_MOST_PARAMETERS}")
    texts = {}
    for name, inner in value.items():
        _checked("a name in modelKey field storage_params", name, _MOST_NAME)
        if text := _text(f"modelKey field storage_params[{name[:64]!r}]", inner, _MOST_VALUE):
            texts[name] = text
    return texts


def _text(where: str, value: Any, most: int | None = None) -> str | None:
    """A string; null and the empty string are absent."""
    if value is None:
        return None
    if not isinstance(value, str):
        _refuse(where, "a string", value)
    return _checked(where, value, most) or None


def _checked(where: str, text: str, most: int | None = None) -> str:
    if most is not None and len(text) > most:
        raise InvalidRequest(f"{where} has {len(text)} characters, expected at most {most}")
    if "\0" in text:
        raise InvalidRequest(f"{where} contains a NUL character")
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        raise InvalidRequest(f"{where} contains half of a surrogate pair, which is not a character")
    return text


def _path(where: str, value: Any) -> str:
    """A path that stays below where it starts. Whether it may be absolute depends on who reads it."""
    path = _text(where, value) or ""
    if ".." in path.split("/"):
        raise InvalidRequest(f"{where} contains '..', which could lead out of the model's folder")
    return path


def _bare_type(name: str) -> str:
    return name.partition(":")[0].strip().lower()


def _refuse(where: str, expected: str, value: Any) -> NoReturn:
    raise InvalidRequest(f"{where} must be {expected}, found {_KINDS[type(value)]}")
