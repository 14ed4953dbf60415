"""
The model schema that `schema_path` names: KServe's JSON list of a model's tensors.

Owns its reading, the V2 datatypes, and the batch rule. Unknown keys are ignored, wrong ones refused
with their JSON path. Pure.

Source: kserve/modelmesh-runtime-adapter `internal/modelschema`; datatypes of the Open Inference
Protocol; Triton core `ValidateIOShape` for what `dims` may hold.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from adapter.errors import InvalidModel
from adapter.layout.tree import shortened

DATATYPES = {
    "BOOL": "TYPE_BOOL",
    "UINT8": "TYPE_UINT8", "UINT16": "TYPE_UINT16", "UINT32": "TYPE_UINT32", "UINT64": "TYPE_UINT64",
    "INT8": "TYPE_INT8", "INT16": "TYPE_INT16", "INT32": "TYPE_INT32", "INT64": "TYPE_INT64",
    "FP16": "TYPE_FP16", "BF16": "TYPE_BF16", "FP32": "TYPE_FP32", "FP64": "TYPE_FP64",
    "BYTES": "TYPE_STRING", "STRING": "TYPE_STRING",
}  # fmt: skip
"""V2 datatype → Triton's enum."""

VARIABLE = -1
_MAX_DIM = 2**63 - 1


@dataclass(frozen=True)
class Tensor:
    """One input or output, in Triton's terms."""

    name: str
    data_type: str
    dims: tuple[int, ...]


@dataclass(frozen=True)
class Schema:
    """A model's tensors. An empty list says nothing about that side."""

    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()


def read(content: bytes, max_batch_size: int = 0) -> Schema:
    """
    The schema as Triton's config needs it. Where the model batches, the first dimension goes.

    Raises:
        InvalidModel: not such a JSON, or not expressible in a Triton config.
    """
    try:
        tree = json.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InvalidModel(f"the schema is not UTF-8 (byte {error.start})") from error
    except json.JSONDecodeError as error:
        raise InvalidModel(f"the schema is not JSON: line {error.lineno}, column {error.colno}: {error.msg}") from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits; thousands of levels
        raise InvalidModel("the schema is not JSON that can be read: a number is too long or values are nested too deeply") from error
    top = _object(tree, "the top level")
    return Schema(*(_tensors(top.get(key), key, max_batch_size) for key in ("inputs", "outputs")))


def _tensors(value: Any, path: str, max_batch_size: int) -> tuple[Tensor, ...]:
    tensors = tuple(_tensor(item, f"{path}[{index}]", max_batch_size) for index, item in enumerate(_array(value, path)))
    seen = set()
    for tensor in tensors:
        if tensor.name in seen:
            raise InvalidModel(f"the schema names the tensor {shortened(tensor.name)} twice in {path}")
        seen.add(tensor.name)
    return tensors


def _tensor(value: Any, path: str, max_batch_size: int) -> Tensor:
    entry = _object(value, path)
    name = _string(entry.get("name"), f"{path}.name")
    if not name:
        raise InvalidModel(f"the schema has an empty name at {path}.name")
    if any("\ud800" <= letter <= "\udfff" for letter in name):
        raise InvalidModel(f"the schema has half a surrogate pair in {path}.name")
    datatype = _string(entry.get("datatype"), f"{path}.datatype")
    if datatype not in DATATYPES:
        raise InvalidModel(
            f"the schema gives the tensor {shortened(name)} the unknown datatype {shortened(datatype)}; there are {', '.join(DATATYPES)}"
        )
    shape = [_dim(item, f"{path}.shape[{index}]") for index, item in enumerate(_array(entry.get("shape"), f"{path}.shape"))]
    return Tensor(name, DATATYPES[datatype], _dims(shape, name, path, max_batch_size))


def _dims(shape: list[int], name: str, path: str, max_batch_size: int) -> tuple[int, ...]:
    tensor = f"the tensor {shortened(name)} of the schema ({path}.shape)"
    if max_batch_size > 0:
        if shape[:1] != [VARIABLE]:
            first = f"begins with {shape[0]}" if shape else "is empty"
            raise InvalidModel(
                f"{tensor} {first}: config.pbtxt has max_batch_size {max_batch_size}, so the first dimension must be the batch's, -1"
            )
        shape = shape[1:]
    if not shape:
        raise InvalidModel(
            f"{tensor} has no dimension{' besides the batch' if max_batch_size > 0 else ''}: "
            "Triton has no scalars; give it a dimension of 1, and a reshape in config.pbtxt where the model needs one"
        )
    return tuple(shape)


def _dim(value: Any, path: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidModel(f"the schema has {_kind(value)} at {path}, a whole number is expected")
    if value != VARIABLE and not 1 <= value <= _MAX_DIM:
        raise InvalidModel(f"the schema has a dimension that Triton does not allow at {path}: 1 or more, or -1 for a variable one")
    return value


def _object(value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidModel(f"the schema has {_kind(value)} at {path}, an object is expected")
    return value


def _array(value: Any, path: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise InvalidModel(f"the schema has {_kind(value)} at {path}, an array is expected")
    return value


def _string(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise InvalidModel(f"the schema has {_kind(value)} at {path}, a string is expected")
    return value


def _kind(value: Any) -> str:
    """What a JSON value is, in words."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true or false"
    names = {str: "a string", list: "an array", dict: "an object", int: "a number", float: "a number with a fraction"}
    return names[type(value)]
