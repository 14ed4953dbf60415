"""
One inference over HTTP: body → request → model → body. For the V2 front, and for others that carry V2 in paths of their own.

A body is JSON, or JSON with binary data behind it. Source: the V2 predict protocol; `binary_data…`, `Inference-Header-Content-Length` and
raw requests: Triton's binary data extension.
"""

from __future__ import annotations

import math
import pickle
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

import msgspec
import orjson

from adapter.fronts.answers import HttpError
from adapter.fronts.bodies import off_loop_if_large, parsed
from adapter.fronts.edge import Request
from adapter.fronts.tensors import BASE64, as_json, element_bytes, packed
from adapter.inference import DATATYPES, ModelInfo, Parameter, add_input, parameters_of, set_parameters
from adapter.serving import KnownModel
from adapter.stubs import service_pb2
from adapter.triton.inference.client import TritonInference

CLASSIFICATION = "classification"
"""Parameter of an output. Source: Triton's classification extension."""
PLACES = ("/v2/models/{name}", "/v2/models/{name}/versions/{version}")
HEADER_LENGTH = "Inference-Header-Content-Length"
SHARED_MEMORY = "shared_memory_region"
"""Of an input or an output. Source: Triton's shared memory extension, whose other calls are no part of the fronts either."""
MOST_ELEMENTS = 2**40
T = TypeVar("T")
_NUMBER = re.compile(r"\s*[0-9]{1,18}\s*", re.ASCII)


Written = tuple[bytes, int | None]
"""A body, and its bytes of JSON before the binary data; None: there is none."""


async def inferred(inference: TritonInference, model: KnownModel, request: Request, head: int | None) -> Written:
    """
    The whole of it.

    Args:
        inference: the server.
        model: which one.
        request: its body is not read yet.
        head: as `head_of`.

    Raises:
        HttpError: 400: the body is no request; and as `Request.read_by`.
        InferenceFailed: as `TritonInference.one`.
    """
    info = await inference.model_info(model) if head == 0 else None
    return await answer_to(inference, model, await request.read_by(meant, model.model_id, model.version, head, info, head=head))


def meant(model: str, version: str, head: int | None, info: ModelInfo | None, body: bytes) -> Asked:
    """What a body asks for; `info` is for a raw request. Raises HttpError: 400."""
    end = len(body) if head is None else head
    if not 0 <= end <= len(body):
        raise HttpError(400, f"the length of the JSON before binary data must be a number from 0 to the length of the body ({len(body)})")
    if info is not None:
        return raw(info, version, bytes(body))
    return asked(model, version, parsed(body[:end]), memoryview(body)[end:])


async def answer_to(inference: TritonInference, model: KnownModel, asking: Asked) -> Written:
    """The answer in the form that was asked for. Raises as `inferred`."""
    await _check_classes(inference, model, asking.request)
    response = await inference.one(asking.request, asking.wire)
    response.model_name = model.name
    pairs = zip(response.outputs, response.raw_output_contents, strict=True)
    texts_bytes = sum(len(data) for output, data in pairs if not asking.is_binary(output.name))
    return await off_loop_if_large(texts_bytes, lambda: written(response, asking))


async def _check_classes(inference: TritonInference, model: KnownModel, request: Any) -> None:
    """Triton 2.51 dies of classes that are wanted of texts. Raises HttpError 400."""
    names = {output.name for output in request.outputs if CLASSIFICATION in output.parameters}
    if names:
        for output in (await inference.model_info(model)).metadata.outputs:
            if output.name in names and output.datatype == "BYTES":
                raise HttpError(400, f"output {output.name!r} has texts, which have no classification")


def written(response: Any, asked: Asked) -> Written:
    """
    The answer in the form that was asked for.

    Raises:
        HttpError: as `tensors.as_json`.
    """
    binary: list[bytes] = []
    outputs = []
    for output, data in zip(response.outputs, response.raw_output_contents, strict=True):
        entry: dict[str, Any] = {"name": output.name, "datatype": output.datatype, "shape": list(output.shape)}
        parameters = parameters_of(output)
        if asked.is_binary(output.name):
            binary.append(data)
            parameters["binary_data_size"] = len(data)
        else:
            text = as_json(f"output {output.name!r}", output.datatype, data, is_base64=output.name in asked.base64)
            entry["data"] = orjson.Fragment(text)
        outputs.append(entry | ({"parameters": parameters} if parameters else {}))
    value: dict[str, Any] = {"id": response.id} if response.id else {}
    value |= {"model_name": response.model_name, "model_version": response.model_version}
    if parameters := parameters_of(response):
        value["parameters"] = parameters
    text = orjson.dumps({**value, "outputs": outputs})
    if not binary:
        return text, None
    return b"".join((text, *binary)), len(text)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a request asks for."""

    request: Any
    """ModelInferRequest."""
    binary: Mapping[str, bool] = field(default_factory=dict)
    """Output that has a word of its own → whether it is wanted as binary data, and not as JSON."""
    is_all_binary: bool = False
    """All others are."""
    base64: frozenset[str] = frozenset()
    """Outputs whose BYTES are wanted so in JSON."""
    wire: bytes | None = None
    """The request as bytes, where it comes from the process that parses."""

    def is_binary(self, output: str) -> bool:
        """Whether this output is wanted as binary data."""
        return self.binary.get(output, self.is_all_binary)

    def __reduce__(self) -> tuple[Any, ...]:
        """From the process that parses: the request lies beside what is pickled, and is sent as it is."""
        wire = pickle.PickleBuffer(self.request.SerializeToString())
        return _received, (wire, self.binary, self.is_all_binary, self.base64)


def _received(wire: bytes, binary: Mapping[str, bool], is_all_binary: bool, base64: frozenset[str]) -> Asked:
    request = service_pb2.ModelInferRequest.FromString(wire)
    return Asked(request=request, binary=binary, is_all_binary=is_all_binary, base64=base64, wire=wire)


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


class Beside(msgspec.Struct, kw_only=True):
    """What a request has beside its tensors."""

    id: _Text = ""
    parameters: _Parameters = {}


class _Body(Beside):
    inputs: list[_Input]
    outputs: list[_Output] = []


def checked(kind: type[T], value: Any) -> T:
    """A parsed request as this struct. Raises HttpError 400: with the place of what is wrong."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise HttpError(400, f"the request is wrong: {error}".replace(f"matching regex {_NO_NUL!r}", "without a NUL")) from None


def head_of(text: str | None) -> int | None:
    """Bytes of JSON before the binary data, as a header says. None: all is JSON; 0: all is the one input; below 0: no such number."""
    return None if text is None else int(text) if _NUMBER.fullmatch(text) else -1


def asked(model: str, version: str, value: Any, binary: memoryview) -> Asked:
    """
    A request object, with the binary data behind it.

    Raises:
        HttpError: 400, with the name of what is wrong.
    """
    body = checked(_Body, value)
    if any(SHARED_MEMORY in entry.parameters for entry in (*body.inputs, *body.outputs)):
        raise HttpError(400, "shared memory is not served here; send the data itself")
    request = service_pb2.ModelInferRequest(model_name=model, model_version=version, id=body.id)
    is_all_binary = _flag("the request", body.parameters.pop("binary_data_output", False), "binary_data_output")
    set_parameters(request, body.parameters)
    rest = binary
    for entry in body.inputs:
        rest = _input(request, entry, rest)
    if len(rest):
        raise HttpError(400, f"the body has {len(rest)} bytes of binary data that belong to no input")
    own: dict[str, bool] = {}
    base64: set[str] = set()
    for output in body.outputs:
        name, wanted, what = output.name, output.parameters, f"output {output.name!r}"
        if (is_binary := wanted.pop("binary_data", None)) is not None:
            own[name] = _flag(what, is_binary, "binary_data")
        if _is_base64(what, wanted.pop("content_type", None)):
            base64.add(name)
        set_parameters(request.outputs.add(name=name), wanted)
    return Asked(request=request, is_all_binary=is_all_binary, binary=own, base64=frozenset(base64))


def raw(info: ModelInfo, version: str, body: bytes) -> Asked:
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
    size = element_bytes(entry.datatype)
    if size is None:
        if any(length not in (1, -1) for length in shape):
            raise HttpError(400, f"a raw request needs one element, but input {entry.name!r} has the shape {shape}")
        shape, body = [1] * len(shape), len(body).to_bytes(4, "little") + body
    elif len(body) % size or shape.count(-1) > 1:
        raise HttpError(400, f"a raw request of {len(body)} bytes does not fill the shape {shape} of input {entry.name!r}")
    else:
        shape = filled(f"input {entry.name!r}", shape, len(body) // size)
    request = service_pb2.ModelInferRequest(model_name=info.metadata.name, model_version=version)
    add_input(request, entry.name, entry.datatype, shape, body)
    return Asked(request=request, is_all_binary=True)


def filled(what: str, dims: Sequence[int], count: int) -> list[int]:
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


def _input(request: Any, entry: _Input, rest: memoryview) -> memoryview:
    what, datatype, shape, parameters = f"input {entry.name!r}", entry.datatype, entry.shape, entry.parameters
    if datatype not in DATATYPES:
        raise HttpError(400, f"{what}: there is no datatype {datatype[:64]!r}")
    count = math.prod(shape)
    if math.prod(length or 1 for length in shape) > MOST_ELEMENTS:  # a python model dies of [0, 2**61], which has no element
        raise HttpError(400, f"{what}: 'shape' has more elements than a request can have")
    size = parameters.pop("binary_data_size", None)
    is_base64 = _is_base64(what, parameters.pop("content_type", None))
    if size is None:
        data = packed(what, datatype, entry.data, count, is_base64=is_base64)
    else:
        if entry.data is not None:
            raise HttpError(400, f"{what} has 'data' and binary_data_size")
        data, rest = _taken(what, datatype, count, size, rest)
    set_parameters(add_input(request, entry.name, datatype, shape, data), parameters)
    return rest


def _taken(what: str, datatype: str, count: int, size: Parameter, rest: memoryview) -> tuple[bytes, memoryview]:
    if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= len(rest):
        raise HttpError(400, f"{what}: binary_data_size must be a number of bytes that the body still has ({len(rest)})")
    each = element_bytes(datatype)
    if each is not None and size != each * count:
        raise HttpError(400, f"{what}: {datatype} of this shape has {each * count} bytes, but binary_data_size is {size}")
    return bytes(rest[:size]), rest[size:]


def _flag(what: str, value: Parameter, name: str) -> bool:
    if not isinstance(value, bool):
        raise HttpError(400, f"{what}: {name} must be true or false")
    return value


def _is_base64(what: str, value: Parameter | None) -> bool:
    if value is not None and value != BASE64:
        raise HttpError(400, f"{what}: content_type can be {BASE64!r} alone")
    return value is not None
