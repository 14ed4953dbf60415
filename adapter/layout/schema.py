"""
The model schema that `schema_path` names: KServe's JSON list of a model's tensors.

Owns its reading, the V2 datatypes and the batch rule. Unknown keys are ignored, wrong ones refused with their JSON path. Pure.

Source: kserve/modelmesh-runtime-adapter `internal/modelschema`; datatypes of the Open Inference
Protocol; Triton core `ValidateIOShape` for what `dims` may hold.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from adapter.errors import InvalidModel
from adapter.layout.tree import shortened
from adapter.model import is_utf8

_NAMES = "BOOL UINT8 UINT16 UINT32 UINT64 INT8 INT16 INT32 INT64 FP16 BF16 FP32 FP64 STRING"
DATATYPES = {name: f"TYPE_{name}" for name in _NAMES.split()} | {"BYTES": "TYPE_STRING"}
"""V2 datatype → Triton's enum."""

VARIABLE = -1
_KINDS: Mapping[type, str] = {
    type(None): "nothing", bool: "true or false", str: "a string", list: "an array", dict: "an object", int: "a whole number",
    float: "a number with a fraction",
}  # fmt: skip
"""What a JSON value is, in words."""


class Tensor(NamedTuple):
    """One input or output, in Triton's terms."""

    name: str
    data_type: str
    dims: tuple[int, ...]


class Schema(NamedTuple):
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
    except (ValueError, RecursionError) as error:
        raise InvalidModel(f"the schema is not JSON: {error}") from error
    top = _typed(tree, dict, "the top level")
    return Schema(*(_tensors(top.get(key), key, max_batch_size) for key in ("inputs", "outputs")))


def _tensors(value: Any, side: str, max_batch_size: int) -> tuple[Tensor, ...]:
    tensors: dict[str, Tensor] = {}
    for index, item in enumerate(_typed(value, list, side)):
        entry = _typed(item, dict, path := f"{side}[{index}]")
        name, datatype = (_typed(entry.get(key), str, f"{path}.{key}") for key in ("name", "datatype"))
        if not (name and is_utf8(name)):
            raise InvalidModel(f"the schema has an empty name, or half a surrogate pair, at {path}.name")
        if datatype not in DATATYPES:
            words = f"the unknown datatype {shortened(datatype)}; there are {', '.join(DATATYPES)}"
            raise InvalidModel(f"the schema gives the tensor {shortened(name)} {words}")
        if name in tensors:
            raise InvalidModel(f"the schema names the tensor {shortened(name)} twice in {side}")
        tensors[name] = Tensor(name, DATATYPES[datatype], _dims(entry.get("shape"), name, f"{path}.shape", max_batch_size))
    return tuple(tensors.values())


def _dims(value: Any, name: str, path: str, max_batch_size: int) -> tuple[int, ...]:
    shape = _typed(value, list, path)
    for index, dim in enumerate(shape):
        if _typed(dim, int, place := f"{path}[{index}]") != VARIABLE and not 1 <= dim < 2**63:
            raise InvalidModel(f"the schema has a dimension that Triton does not allow at {place}: 1 or more, or -1 for a variable one")
    tensor = f"the tensor {shortened(name)} of the schema ({path})"
    if max_batch_size > 0 and shape[:1] != [VARIABLE]:
        raise InvalidModel(f"{tensor}: config.pbtxt has max_batch_size {max_batch_size}, so the first dimension must be the batch's, -1")
    dims = tuple(shape[1:] if max_batch_size > 0 else shape)
    if not dims:
        what = "no dimension besides the batch" if max_batch_size > 0 else "no dimension"
        advice = "Triton has no scalars; give it a dimension of 1, and a reshape in config.pbtxt where the model needs one"
        raise InvalidModel(f"{tensor} has {what}: {advice}")
    return dims


def _typed(value: Any, kind: type, path: str) -> Any:
    """The value, which must be of exactly this kind: `true` is not a number. Nothing is an empty list."""
    if value is None and kind is list:
        return []
    if type(value) is not kind:
        raise InvalidModel(f"the schema has {_KINDS[type(value)]} at {path}, {_KINDS[kind]} is expected")
    return value
