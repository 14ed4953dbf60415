"""
Bodies of V2 REST as JSON schemas, for `/openapi.json`.

Source: "Predict Protocol - Version 2", REST; Triton's binary tensor data, generate and model repository extensions.
"""

from __future__ import annotations

from adapter.fronts.openapi import OBJECT, TEXT, Schema
from adapter.fronts.v2.elements import DATATYPES

_PARAMETERS: Schema = {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}
_INPUT: Schema = {
    "type": "object",
    "required": ["name", "shape", "datatype"],
    "properties": {
        "name": TEXT,
        "shape": {"type": "array", "items": {"type": "integer", "minimum": 0}},
        "datatype": {"enum": sorted(DATATYPES)},
        "parameters": _PARAMETERS,
        "data": {"type": "array", "items": {}},
    },
}
_OUTPUT: Schema = {"type": "object", "required": ["name"], "properties": {"name": TEXT, "parameters": _PARAMETERS}}
INFER: Schema = {
    "type": "object",
    "required": ["inputs"],
    "properties": {
        "id": TEXT,
        "parameters": _PARAMETERS,
        "inputs": {"type": "array", "items": _INPUT},
        "outputs": {"type": "array", "items": _OUTPUT},
    },
}
GENERATE: Schema = {
    "type": "object",
    "properties": {"id": TEXT, "text_input": TEXT, "parameters": OBJECT},
    "additionalProperties": {"type": ["string", "number", "boolean", "array"]},
}
