"""`InferResponse` → a body of HTTP: JSON, or JSON with binary data behind it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from adapter.fronts.answers import JSON
from adapter.fronts.v2.elements import as_json
from adapter.fronts.v2.requests import Asked
from adapter.inference import InferResponse

BINARY = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class Written:
    """A body."""

    body: bytes
    content_type: str
    header_length: int | None
    """Bytes of JSON before the binary data; None: there is none."""


def written(response: InferResponse, asked: Asked, non_finite: str) -> Written:
    """
    The answer in the form that was asked for; `non_finite` as V2_NON_FINITE.

    Raises:
        HttpError: as `elements.as_json`.
    """
    binary: list[bytes] = []
    outputs = []
    for tensor in response.outputs:
        entry: dict[str, Any] = {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape)}
        parameters: Mapping[str, Any] = tensor.parameters
        if asked.is_binary(tensor.name):
            binary.append(tensor.data)
            entry["parameters"] = {**parameters, "binary_data_size": len(tensor.data)}
        else:
            if parameters:
                entry["parameters"] = dict(parameters)
            what = f"output {tensor.name!r}"
            is_base64 = tensor.name in asked.base64
            text = as_json(what, tensor.datatype, tensor.data, non_finite=non_finite, is_base64=is_base64)
            entry["data"] = orjson.Fragment(text)
        outputs.append(entry)
    value: dict[str, Any] = {"id": response.id} if response.id else {}
    value |= {"model_name": response.model, "model_version": response.version}
    if response.parameters:
        value["parameters"] = dict(response.parameters)
    value["outputs"] = outputs
    text = orjson.dumps(value)
    if not binary:
        return Written(text, JSON, None)
    return Written(b"".join((text, *binary)), BINARY, len(text))
