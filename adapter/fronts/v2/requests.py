"""
What bodies of V2 ask for: JSON, or JSON with binary data behind it; the one input of a model; flat JSON; and of the model repository API.

A key of flat JSON that is the name of an input is that tensor: one element, or a list of them. Every other key is a parameter of the
request; so it goes for the keys of the object `parameters`.

Source: the V2 predict protocol; `binary_data…`, `Inference-Header-Content-Length` and raw requests: Triton's binary data extension; flat
JSON: Triton's `docs/protocol/extension_generate.md`, and for shapes, and for elements that stand alone: `http_server.cc`; of a load: its
`docs/protocol/extension_model_repository.md`.
"""

from __future__ import annotations

import base64
import binascii
import math
import pickle
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import msgspec

from adapter.fronts.failures import HttpError, parsed, structured
from adapter.fronts.tensors import BASE64, element_bytes, packed
from adapter.inference import DATATYPES, ModelInfo, Parameter, set_parameters
from adapter.model import Overrides
from adapter.stubs import service_pb2

SHARED_MEMORY = "shared_memory_region"
"""Of an input or an output. Source: Triton's shared memory extension, whose other calls are no part of the fronts either."""
MOST_ELEMENTS = 2**40
_NUMBER = re.compile(r"\s*[0-9]{1,18}\s*", re.ASCII)
_CONTENTS = b"\x3a"
"""Tag of `raw_input_contents`, field 7. Source: the V2 predict protocol, gRPC; protobuf's encoding."""
_SLICE = 2**20
"""Bytes that are copied at once: meanwhile no other thread runs. Joining bytes does not hold them up."""
_FLAG, _FORM = ((True, False), "true or false"), ((BASE64,), repr(BASE64))
"""Values of a parameter, and words for them."""
Data = bytes | memoryview
"""Of one input."""


@dataclass(frozen=True)
class Asked:
    """What a request asks for."""

    head: Any
    """ModelInferRequest without contents."""
    wire: bytes
    """All of it as bytes, as it is sent: contents may be large, and each copy of them holds the event loop."""
    binary: Mapping[str, bool] = field(default_factory=dict)
    """Output that has a word of its own → whether it is wanted as binary data, and not as JSON."""
    is_all_binary: bool = False
    """All others are."""
    base64: frozenset[str] = frozenset()
    """Outputs whose BYTES are wanted so in JSON."""

    @property
    def request(self) -> Any:
        """All of it as a ModelInferRequest."""
        return service_pb2.ModelInferRequest.FromString(self.wire)

    def is_binary(self, output: str) -> bool:
        """Whether this output is wanted as binary data."""
        return self.binary.get(output, self.is_all_binary)

    def __reduce__(self) -> tuple[Any, ...]:
        """From the process that parses: the bytes lie beside what is pickled."""
        return Asked, (self.head, pickle.PickleBuffer(self.wire), self.binary, self.is_all_binary, self.base64)


def _wire(head: Any, contents: Sequence[Data]) -> bytes:
    parts = [head.SerializeToString()]
    for data in contents:
        parts += [_CONTENTS, _varint(len(data)), *(bytes(data[start : start + _SLICE]) for start in range(0, len(data), _SLICE))]
    return b"".join(parts)


def _varint(number: int) -> bytes:
    """Source: protobuf's encoding."""
    return bytes((number,)) if number < 0x80 else bytes((number & 0x7F | 0x80,)) + _varint(number >> 7)


_NO_NUL = r"\A[^\0]*\Z"
_Text = Annotated[str, msgspec.Meta(pattern=_NO_NUL)]
"""Triton would cut it at a NUL, and go on with what is left. Source: Triton server, `c_str()` of such texts."""
_Parameters = dict[_Text, bool | int | float | _Text]


class _Output(msgspec.Struct):
    name: Annotated[_Text, msgspec.Meta(min_length=1)]
    parameters: _Parameters = {}


class _Input(_Output, kw_only=True):
    datatype: str
    shape: list[Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]]
    data: Any = None


class _Body(msgspec.Struct, kw_only=True):
    inputs: list[_Input]
    outputs: list[_Output] = []
    id: _Text = ""
    parameters: _Parameters = {}


def head_of(text: str | None) -> int | None:
    """Bytes of JSON before the binary data, as a header says. None: all is JSON; 0: all is the one input; below 0: no such number."""
    return None if text is None else int(text) if _NUMBER.fullmatch(text) else -1


def meant(model: str, version: str, head: int | None, info: ModelInfo | None, body: bytes) -> Asked:
    """What a body asks for; `info` is for a raw request. Raises HttpError: 400."""
    end = len(body) if head is None else head
    if not 0 <= end <= len(body):
        raise HttpError(400, f"the length of the JSON before binary data must be a number from 0 to the length of the body ({len(body)})")
    if info is not None:
        return raw(info, version, memoryview(body))
    return asked(model, version, parsed(body[:end]), memoryview(body)[end:])


def asked(model: str, version: str, value: Any, binary: memoryview) -> Asked:
    """
    A request object, with the binary data behind it.

    Raises:
        HttpError: 400, with the name of what is wrong.
    """
    try:
        body = msgspec.convert(value, _Body)
    except msgspec.ValidationError as error:
        raise HttpError(400, f"the request is wrong: {error}".replace(f"matching regex {_NO_NUL!r}", "without a NUL")) from None
    if any(SHARED_MEMORY in entry.parameters for entry in (*body.inputs, *body.outputs)):
        raise HttpError(400, "shared memory is not served here; send the data itself")
    head = service_pb2.ModelInferRequest(model_name=model, model_version=version, id=body.id)
    is_all_binary = bool(_taken("the request", body.parameters, "binary_data_output", *_FLAG))
    set_parameters(head, body.parameters)
    contents: list[Data] = []
    rest = binary
    for entry in body.inputs:
        data, rest = _data_of(entry, rest)
        contents.append(data)
        set_parameters(head.inputs.add(name=entry.name, datatype=entry.datatype, shape=entry.shape), entry.parameters)
    if len(rest):
        raise HttpError(400, f"the body has {len(rest)} bytes of binary data that belong to no input")
    own: dict[str, bool] = {}
    base64: set[str] = set()
    for output in body.outputs:
        name, wanted, what = output.name, output.parameters, f"output {output.name!r}"
        if (is_binary := _taken(what, wanted, "binary_data", *_FLAG)) is not None:
            own[name] = is_binary
        if _taken(what, wanted, "content_type", *_FORM):
            base64.add(name)
        set_parameters(head.outputs.add(name=name), wanted)
    return Asked(head, _wire(head, contents), own, is_all_binary, frozenset(base64))


def _data_of(entry: _Input, rest: memoryview) -> tuple[Data, memoryview]:
    """Elements of an input, and the binary data behind them; takes away the parameters that say how they are written."""
    what, datatype, shape, parameters = f"input {entry.name!r}", entry.datatype, entry.shape, entry.parameters
    if datatype not in DATATYPES:
        raise HttpError(400, f"{what}: there is no datatype {datatype[:64]!r}")
    count, each = math.prod(shape), element_bytes(datatype)
    if math.prod(length or 1 for length in shape) > MOST_ELEMENTS:  # a python model dies of [0, 2**61], which has no element
        raise HttpError(400, f"{what}: 'shape' has more elements than a request can have")
    is_base64 = bool(_taken(what, parameters, "content_type", *_FORM))
    words = f"a number of bytes that the body still has ({len(rest)})"
    size = _taken(what, parameters, "binary_data_size", range(len(rest) + 1), words)
    if size is None:
        return packed(what, datatype, entry.data, count, is_base64=is_base64), rest
    if entry.data is not None:
        raise HttpError(400, f"{what} has 'data' and binary_data_size")
    if each is not None and size != each * count:
        raise HttpError(400, f"{what}: {datatype} of this shape has {each * count} bytes, but binary_data_size is {size}")
    return rest[:size], rest[size:]


def _taken(what: str, parameters: _Parameters, name: str, allowed: Sequence[Any], words: str) -> Any:
    """A parameter that says how data is written, which the model does not get; None: it was not given."""
    value = parameters.pop(name, None)
    if value is not None and (type(value) is not type(allowed[0]) or value not in allowed):
        raise HttpError(400, f"{what}: {name} must be {words}")
    return value


def raw(info: ModelInfo, version: str, body: Data) -> Asked:
    """
    A body that is the one input of the model; all outputs are wanted as binary data.

    A batch has one request; of the other dimensions one may be of any size.

    Raises:
        HttpError: 400: the model has more inputs, or the length of the body does not fit.
    """
    optional = {entry.name for entry in info.config.input if entry.optional}
    needed = [entry for entry in info.metadata.inputs if entry.name not in optional]
    if len(needed) != 1:
        raise HttpError(400, f"a raw request needs a model with one input, but {info.metadata.name!r} has {len(needed)}")
    (entry,) = needed
    shape = [1, *entry.shape[1:]] if info.config.max_batch_size > 0 else list(entry.shape)
    each = element_bytes(entry.datatype)
    if each is None:
        body = len(body).to_bytes(4, "little") + body
    elif shape.count(-1) > 1:
        raise HttpError(400, f"a raw request does not say the shape {shape} of input {entry.name!r}")
    shape = _filled(f"input {entry.name!r}", shape, len(body) // each if each else 1)
    given = {"name": entry.name, "datatype": entry.datatype, "shape": shape, "parameters": {"binary_data_size": len(body)}}
    return asked(info.metadata.name, version, {"inputs": [given], "parameters": {"binary_data_output": True}}, memoryview(body))


def _filled(what: str, dims: Sequence[int], count: int) -> list[int]:
    """
    A shape of this number of elements: the innermost dimension of any size has what the fixed ones leave; further ones are 1.

    Raises:
        HttpError: 400: there is none.
    """
    fixed = math.prod(length for length in dims if length != -1)
    places = [place for place, length in enumerate(dims) if length == -1]
    rest = count // fixed if fixed else 0
    if not fixed or rest * fixed != count or (not places and rest != 1):
        raise HttpError(400, f"{what}: {count} elements do not fill the shape {list(dims)}")
    shape = [1 if length == -1 else length for length in dims]
    if places:
        shape[places[-1]] = rest
    return shape


# ---- flat JSON


def flat_meant(info: ModelInfo, version: str, body: bytes) -> Asked:
    """What a body asks of a model. Raises as `flat`."""
    return flat(info, version, parsed(body))


def flat(info: ModelInfo, version: str, value: Any) -> Asked:
    """
    What a parsed body asks of a model; whether inputs are missing, the model decides.

    Raises:
        HttpError: 400: no object, or with the name of the key that is wrong.
    """
    if not isinstance(value, dict):
        raise HttpError(400, "the body must be a JSON object")
    known = {entry.name: entry for entry in info.metadata.inputs}
    inputs: list[Any] = []
    parameters: dict[str, Parameter] = {}
    nested = value.get("parameters", {})
    if not isinstance(nested, dict) or "parameters" in known:
        raise HttpError(400, "'parameters' must be an object, and cannot be the name of an input")
    own = {"id", "parameters"} - known.keys()
    for key, given in [*((key, given) for key, given in value.items() if key not in own), *nested.items()]:
        if key in known:
            inputs.append(_flat_input(known[key], given))
        elif isinstance(given, bool | int | float | str):
            parameters[key] = given
        else:
            raise HttpError(400, f"parameter {key!r} has invalid type: it must be a string, a number or a boolean")
    request = {"id": value.get("id", "") if "id" in own else "", "parameters": parameters, "inputs": inputs}
    return asked(info.metadata.name, version, request, memoryview(b""))


def _flat_input(info: Any, given: Any) -> Mapping[str, Any]:
    """As V2 has it."""
    what = f"input {info.name!r}"
    data = given if isinstance(given, list) else [given]
    if any(isinstance(element, list) for element in data):
        raise HttpError(400, f"{what} must be one element, or a list of them")
    return {"name": info.name, "datatype": info.datatype, "shape": _filled(what, info.shape, len(data)), "data": data}


# ---- the model repository API

CONFIG, FILE = "config", "file:"


class Index(msgspec.Struct):
    """Of a request for the index."""

    ready: bool = False


class _Load(msgspec.Struct):
    parameters: dict[str, str] = {}


class Unload(msgspec.Struct):
    """Of a request for an unload."""

    parameters: dict[Literal["unload_dependents"], bool] = {}


def overrides_of(body: bytes) -> Overrides:
    """Of a request for a load. Raises HttpError: 400."""
    given = structured(_Load, body).parameters
    return {key: value if key == CONFIG else _content(key, value) for key, value in given.items()}


def _content(key: str, text: str) -> bytes:
    parts = key.removeprefix(FILE).split("/")
    if not key.startswith(FILE) or not {"", ".", ".."}.isdisjoint(parts) or "\0" in key or "\\" in key:
        raise HttpError(400, f"the parameter {key!r} must be {CONFIG!r}, or name a file inside the model: {FILE + '<version>/<name>'!r}")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise HttpError(400, f"the parameter {key!r} is no base64") from None
