"""
The model schema that `schema_path` names: KServe's JSON list of a model's tensors.

Owns its reading, the V2 datatypes, and the batch rule. Unknown keys are ignored, wrong ones refused
with their JSON path. Pure.

Source: kserve/modelmesh-runtime-adapter `internal/modelschema`; datatypes of the Open Inference
Protocol; Triton core `ValidateIOShape` for what `dims` may hold.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

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
_KINDS: Mapping[type, str] = {
    type(None): "nothing", bool: "true or false", str: "a string", list: "an array", dict: "an object", int: "a number",
    float: "a number with a fraction",
}  # fmt: skip
"""What a JSON value is, in words."""
T = TypeVar("T")
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


def read(content: bytes | None, max_batch_size: int = 0) -> Schema:
    """
    The schema as Triton's config needs it; None is an empty one. Where the model batches, the first dimension goes.

    Raises:
        InvalidModel: not such a JSON, or not expressible in a Triton config.
    """
    try:
        tree = {} if content is None else json.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InvalidModel(f"the schema is not UTF-8 (byte {error.start})") from error
    except json.JSONDecodeError as error:
        raise InvalidModel(f"the schema is not JSON: line {error.lineno}, column {error.colno}: {error.msg}") from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits; thousands of levels
        raise InvalidModel("the schema is not JSON that can be read: a number is too long or values are nested too deeply") from error
    top = _typed(tree, dict, "the top level")
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
    entry = _typed(value, dict, path)
    name = _typed(entry.get("name"), str, f"{path}.name")
    if not name:
        raise InvalidModel(f"the schema has an empty name at {path}.name")
    if any("\ud800" <= letter <= "\udfff" for letter in name):
        raise InvalidModel(f"the schema has half a surrogate pair in {path}.name")
    datatype = _typed(entry.get("datatype"), str, f"{path}.datatype")
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
    dim = _typed(value, int, path)
    if dim != VARIABLE and not 1 <= dim <= _MAX_DIM:
        raise InvalidModel(f"the schema has a dimension that Triton does not allow at {path}: 1 or more, or -1 for a variable one")
    return dim


def _array(value: Any, path: str) -> list[Any]:
    return [] if value is None else _typed(value, list, path)


def _typed(value: Any, kind: type[T], path: str) -> T:
    """The value, which must be of exactly this kind: `true` is no number."""
    if type(value) is not kind:
        expected = _KINDS[kind] if kind is not int else "a whole number"
        raise InvalidModel(f"the schema has {_KINDS[type(value)]} at {path}, {expected} is expected")
    return value
