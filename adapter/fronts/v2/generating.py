"""
The generate extension's flat objects → `InferRequest`, and answers → flat objects. Pure.

A key that is the name of an input is that tensor: one element, or a list of them. Every other key is a parameter of the request;
so it goes for the keys of the object `parameters`. Source: Triton's `docs/protocol/extension_generate.md`; for shapes, for elements that
stand alone, and for the texts that Triton's own tests look for: `http_server.cc`, `generate_endpoint_test.py`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import orjson

from adapter.fronts.answers import HttpError
from adapter.fronts.bodies import parsed
from adapter.fronts.v2.elements import DATATYPES, as_json, packed
from adapter.fronts.v2.requests import check_whole, id_of
from adapter.inference import InferRequest, InferResponse, ModelInfo, Parameter, Tensor, TensorInfo

PARAMETERS = "parameters"
_ID = "id"
_KINDS = {"BYTES": (str, "attempt to access JSON non-string as string"), "BOOL": (bool, "attempt to access JSON non-boolean as boolean")}

_NO_KEYS: frozenset[str] = frozenset()


class Object(dict[str, Any]):
    """A JSON object that knows which keys it was given twice; the last value counts."""

    __slots__ = ("twice",)  # a body may have a million of them

    def __init__(self, pairs: Sequence[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.twice = _NO_KEYS
        if len(self) < len(pairs):
            self.twice = frozenset(key for key, number in Counter(key for key, _ in pairs).items() if number > 1)


def object_of(text: bytes) -> Object:
    """
    The body of a request.

    Raises:
        HttpError: 400: it is no JSON object, or is nested too deep.
    """
    value = parsed(text, objects=Object)
    if not isinstance(value, Object):
        raise HttpError(400, "the body must be a JSON object")
    return value


def requested(info: ModelInfo, version: str, value: Object) -> InferRequest:
    """
    What a model is asked by such an object; whether inputs are missing, the model decides.

    Raises:
        HttpError: 400, with the name of the key that is wrong.
    """
    known = {entry.name: entry for entry in info.inputs}
    inputs: dict[str, Tensor] = {}
    parameters: dict[str, Parameter] = {}
    request_id = id_of(value.get(_ID, "") if _ID not in known else "")

    nested = value.get(PARAMETERS, Object(()))
    if not isinstance(nested, Object) or PARAMETERS in known:
        raise HttpError(400, f"{PARAMETERS!r} must be an object, and cannot be the name of an input")
    own = {_ID, PARAMETERS} - known.keys()
    for entries, key in [(value, key) for key in value if key not in own] + [(nested, key) for key in nested]:
        given = entries[key]
        if key in known:
            if key in inputs or key in entries.twice:
                raise HttpError(400, f"input {key!r} already exists in request")
            inputs[key] = _tensor(known[key], given)
        elif isinstance(given, bool | int | float | str):
            check_whole(f"the key {key!r}", key)
            check_whole(f"parameter {key!r}", given)
            parameters[key] = given
        else:
            raise HttpError(400, f"parameter {key!r} has invalid type: it must be a string, a number or a boolean")
    return InferRequest(model=info.name, version=version, id=request_id, parameters=parameters, inputs=tuple(inputs.values()))


def _tensor(info: TensorInfo, given: Any) -> Tensor:
    what = f"input {info.name!r}"
    data = given if isinstance(given, list) else [given]
    if info.datatype not in DATATYPES:
        raise HttpError(400, f"{what} has the datatype {info.datatype!r}, which JSON cannot carry")
    kind, words = _KINDS.get(info.datatype, (None, ""))
    if kind is not None and set(map(type, data)) - {kind}:
        raise HttpError(400, f"{what}: {words}")
    if any(isinstance(element, list) for element in data):
        raise HttpError(400, f"{what} must be one element, or a list of them")
    shape = _shape(what, info.shape, len(data))
    return Tensor(name=info.name, datatype=info.datatype, shape=shape, data=packed(what, info.datatype, data, len(data)))


def _shape(what: str, dims: Sequence[int], count: int) -> list[int]:
    """The innermost dimension of any size has what the fixed ones leave; further ones are 1."""
    fixed = math.prod(length for length in dims if length != -1)
    places = [place for place, length in enumerate(dims) if length == -1]
    rest = count // fixed if fixed else 0
    if not fixed or rest * fixed != count or (not places and rest != 1):
        raise HttpError(400, f"{what}: {count} elements do not fill the shape {list(dims)}")
    shape = [1 if length == -1 else length for length in dims]
    if places:
        shape[places[-1]] = rest
    return shape


def generated(response: InferResponse, non_finite: str) -> bytes:
    """
    An answer as one line of JSON; `non_finite` as V2_NON_FINITE. Names of outputs give way to those of the protocol.

    Raises:
        HttpError: as `elements.as_json`.
    """
    found: dict[str, Any] = {tensor.name: _written(tensor, non_finite) for tensor in response.outputs}
    found |= response.parameters
    found |= {"model_name": response.model, "model_version": response.version}
    if response.id:
        found[_ID] = response.id
    return orjson.dumps(found, option=orjson.OPT_SORT_KEYS)


def _written(tensor: Tensor, non_finite: str) -> orjson.Fragment:
    text = as_json(f"output {tensor.name!r}", tensor.datatype, tensor.data, non_finite=non_finite)
    return orjson.Fragment(text[1:-1] if math.prod(tensor.shape) == 1 else text)
