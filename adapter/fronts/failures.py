"""Failures over HTTP: the status of each, where a front has no other rule; JSON that is none; whether one means that memory is out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec
import orjson

from adapter.errors import AdapterError, ModelRefused, UnloadUnfinished, WrongServer
from adapter.inference import InferenceFailed
from adapter.serving import AlreadyLoaded

UNAVAILABLE, NO_SPACE = 503, 507
Result = TypeVar("Result")
_OF_CODES = {
    "INVALID_ARGUMENT": 400, "FAILED_PRECONDITION": 400, "PERMISSION_DENIED": 403, "NOT_FOUND": 404, "ABORTED": UNAVAILABLE,
    "UNAVAILABLE": UNAVAILABLE, "DEADLINE_EXCEEDED": 504, "RESOURCE_EXHAUSTED": NO_SPACE, "INTERNAL": 500,
}  # fmt: skip
"""Status of a failure, by its code for ModelMesh."""
_OWN: dict[type[AdapterError], int] = {ModelRefused: 400, AlreadyLoaded: 409, UnloadUnfinished: 500, WrongServer: UNAVAILABLE}
"""Status of those that HTTP tells apart."""


class HttpError(Exception):
    """A request that a front refuses. The text is one line for its caller."""

    def __init__(self, status: int, text: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.headers = dict(headers or {})

    def __reduce__(self) -> tuple[Any, ...]:
        """For the process that parses."""
        return Exception.__new__, (type(self),), self.__dict__


def status_of(error: AdapterError) -> int:
    """The status of a failure."""
    if isinstance(error, InferenceFailed):
        return error.failure.value
    return _OWN.get(type(error)) or _OF_CODES[error.code]


# ---- JSON of a stranger


def parsed(text: bytes) -> Any:
    """
    A JSON text; NaN and infinities may stand in it, as Triton writes them.

    Raises:
        HttpError: 400: not JSON, or nested too deeply: about 1,000 levels with Python 3.11, 1,500 with 3.12.
    """
    try:
        if b"NaN" not in text and b"Infinity" not in text:
            return msgspec.json.decode(text)
        value = json.loads(text.decode())
        orjson.dumps(value)  # no half of a pair in a text, no whole number beyond 64 bits
    except (msgspec.DecodeError, ValueError, TypeError, RecursionError) as error:
        raise HttpError(400, f"the body is no JSON: {error}") from None
    return value


def structured(kind: type[Result], body: bytes) -> Result:
    """A body of JSON as this struct; no body is an empty object. Raises HttpError: 400."""
    try:
        return msgspec.json.decode(body.strip() or b"{}", type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise HttpError(400, f"the body is no such request: {error}") from None


# ---- out of memory
#
# Texts of Triton and its backends that mean it: the platform then unloads other models and tries again. Only whole expressions count,
# and never a model's name, which texts quote: BLOOM is a model. Sources: Triton core `backend_model_instance.cc` (limit of GPU memory) and
# `pinned_memory_manager.cc`; the texts of the CUDA runtime, ONNX Runtime, TensorRT, PyTorch, TensorFlow and vLLM.

_GPU = re.compile(
    r"\bCUDA(?: error:)? out of memory\b|\bCUDA_ERROR_OUT_OF_MEMORY\b|\bcudaErrorMemoryAllocation\b"
    r"|\b(?:CUBLAS|CUDNN)_STATUS_ALLOC_FAILED\b|\btorch\.(?:cuda\.)?OutOfMemoryError\b|\bCUDA failure 2: out of memory\b"
    r"|\bCUDA_OUT_OF_MEMORY\b|\bCNMEM_STATUS_OUT_OF_MEMORY\b|\bCuda Runtime \(out of memory\)|\bOOM when allocating tensor\b"
    r"|\bFailed to allocate memory for requested buffer of size \d+|\bDefaultCPUAllocator: can't allocate memory\b",
    re.IGNORECASE,
)
_LOAD = re.compile(
    r"\bmemory limit set for GPU \d+ has exceeded\b|\bfailed to allocate pinned system memory\b|\bfailed to allocate (?:GPU|CUDA) memory\b"
    r"|\bstd::bad_alloc\b|\bMemoryError\b|\bNo space left on device\b|\bCannot allocate memory\b"
    r"|\bFree memory on device \(.{1,80}\) on startup is less than desired GPU memory utilization\b"
    r"|\bNo available memory for the cache blocks\b",
    re.IGNORECASE,
)
"""A device without space is the shared memory of python models; the disk is the adapter's, and has errors of its own."""
_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})")
"""Of a letter in JSON."""


def is_out_of_memory(text: str, names: Iterable[str], *, is_load: bool, said: bytes | bytearray = b"") -> bool:
    """
    Whether a failed load, or a failed invoke, says so; the model's `names` do not count, in quotes or in a path.

    Neither do those of its instances, which Triton calls `<name>_<group>_<number>`, nor expressions in what the caller has `said`, the
    body: a backend may quote its caller.
    """
    for name in map(re.escape, names):
        text = re.sub(rf"'{name}(?:_\d+)*'|\"{name}(?:_\d+)*\"|/{name}/", " ", text)
    found = _expressions(_GPU, text) | (_expressions(_LOAD, text) if is_load else set())
    return bool(found) and not found <= _expressions(_GPU, _ESCAPE.sub(lambda code: chr(int(code[1], 16)), said.decode("utf-8", "replace")))


def _expressions(pattern: re.Pattern[str], text: str) -> set[str]:
    return {found[0].lower() for found in pattern.finditer(text)}
