"""
Requests of `mmesh.ModelRuntime` ↔ the nouns of `adapter.model`.

Owns the meaning of modelType and modelKey. Refuses what it does not understand with a sentence that
names the field and the type that was found, and never quotes a value: modelKey may hold credentials
and error texts are shown to users. Knows no state.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from typing import Any, NoReturn, Protocol

from adapter import parameters
from adapter.errors import InvalidRequest
from adapter.model import MAX_SIZE_BYTES, RESERVED_IDS, ModelSpec, id_problem

_MOST_CHARACTERS = {"name": 1024, "value": 64 * 1024}
"""Of a storage parameter. A certificate chain or a token has less; what a request may bring is kept in several places."""

_MOST_PARAMETERS = 256
"""Of one request: each is looked at while all other calls wait."""


class ModelRequest(Protocol):
    """What `loadModel` and `predictModelSize` have in common."""

    modelId: str  # noqa: N815 - names of the contract
    modelType: str  # noqa: N815
    modelPath: str  # noqa: N815
    modelKey: str  # noqa: N815


def decode(request: ModelRequest, reserved: Collection[str] = RESERVED_IDS) -> ModelSpec:
    """
    The model that a request names; `reserved` has the ids that no model may have.

    Raises:
        InvalidRequest: the request could never work.
    """
    if problem := id_problem(request.modelId, reserved):
        raise InvalidRequest(problem)
    key = _ModelKey(request.modelKey)
    own, params = parameters.split(key.params())
    return ModelSpec(
        model_id=request.modelId,
        model_type=key.model_type() or type_of_label(request.modelType),
        path=_checked_path("modelPath", request.modelPath),
        storage_key=key.text("storage_key"),
        storage_params=params,
        bucket=key.text("bucket"),
        schema_path=_checked_path("modelKey field schema_path", key.text("schema_path") or "") or None,
        disk_size_bytes=key.size("disk_size_bytes"),
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


class _ModelKey:
    """The JSON object of modelKey, whose field names match without regard to case, an exact match first."""

    def __init__(self, text: str) -> None:
        self._fields = _parse_object(text) if text.strip() else {}

    def text(self, name: str) -> str | None:
        """A string; null and the empty string are absent."""
        return _text(f"modelKey field {name}", _field(self._fields, name))

    def size(self, name: str) -> int | None:
        """A count of bytes."""
        value = _field(self._fields, name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            _refuse(f"modelKey field {name}", "a whole number of bytes", value)
        if not 0 <= value <= MAX_SIZE_BYTES:
            raise InvalidRequest(f"modelKey field {name} must be from 0 to {MAX_SIZE_BYTES} bytes")
        return value

    def model_type(self) -> str:
        """Lower case, without a version; empty when absent."""
        value = _field(self._fields, "model_type")
        if isinstance(value, dict):
            name = _text("modelKey field model_type.name", _field(value, "name"))
        elif value is None or isinstance(value, str):
            name = _text("modelKey field model_type", value)
        else:
            _refuse("modelKey field model_type", "a string or an object with a name", value)
        return _bare_type(name or "")

    def params(self) -> dict[str, str]:
        """The storage parameters; null and empty values are absent. Raises InvalidRequest, also where they are very many or long."""
        value = _field(self._fields, "storage_params")
        if value is None:
            return {}
        if not isinstance(value, dict):
            _refuse("modelKey field storage_params", "an object of strings", value)
        if len(value) > _MOST_PARAMETERS:
            raise InvalidRequest(f"modelKey field storage_params has {len(value)} entries, expected at most {_MOST_PARAMETERS}")
        found = ((_short("a name in modelKey field storage_params", name, "name"), inner) for name, inner in value.items())
        texts = ((name, where := f"modelKey field storage_params[{name[:64]!r}]", _text(where, inner)) for name, inner in found)
        return {name: _short(where, text, "value") for name, where, text in texts if text}


def _parse_object(text: str) -> dict[str, Any]:
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
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise InvalidRequest(f"modelKey is not valid JSON: {name} is not a JSON number")


def _field(fields: dict[str, Any], name: str) -> Any:
    if name in fields:
        return fields[name]
    return next(_alike(fields, name), None)


def _alike(fields: dict[str, Any], name: str) -> Iterator[Any]:
    """Values whose names differ in case only, the last one first, as the Go adapter's decoder has it."""
    return (value for found, value in reversed(fields.items()) if found.lower() == name)


def _text(where: str, value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        _refuse(where, "a string", value)
    return _checked_text(where, value) or None


def _checked_text(where: str, text: str) -> str:
    if "\0" in text:
        raise InvalidRequest(f"{where} contains a NUL character")
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        raise InvalidRequest(f"{where} contains half of a surrogate pair, which is not a character")
    return text


def _short(where: str, text: str, what: str) -> str:
    if len(text) > _MOST_CHARACTERS[what]:
        raise InvalidRequest(f"{where} has {len(text)} characters, expected at most {_MOST_CHARACTERS[what]}")
    return _checked_text(where, text)


def _checked_path(where: str, path: str) -> str:
    """A path that stays below where it starts. Whether it may be absolute depends on who reads it."""
    _checked_text(where, path)
    if ".." in path.split("/"):
        raise InvalidRequest(f"{where} contains '..', which could lead out of the model's folder")
    return path


def _bare_type(name: str) -> str:
    return name.partition(":")[0].strip().lower()


def _refuse(where: str, expected: str, value: Any) -> NoReturn:
    raise InvalidRequest(f"{where} must be {expected}, found {_kind(value)}")


def _kind(value: Any) -> str:
    kinds = {
        type(None): "null",
        bool: "a boolean",
        int: "a number",
        float: "a number with a decimal point or an exponent",
        str: "a string",
        list: "an array",
        dict: "an object",
    }
    return kinds[type(value)]
