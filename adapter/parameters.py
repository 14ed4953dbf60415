"""
The storage parameters that are the adapter's own: what a model's author may say about one model.

Owns every name that begins with `adapter.`: one row each. `split` takes them out of a request's
storage parameters, so no store ever sees one. Knows neither requests nor layouts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from adapter.errors import InvalidRequest
from adapter.model import MAX_SIZE_BYTES
from adapter.paths import path_problem
from adapter.units import parse_bool, parse_bytes

PREFIX = "adapter."


class Parameter(NamedTuple):
    """One row."""

    name: str
    field: str
    """Of `ModelSpec`."""
    parse: Callable[[str], Any]
    """Raises ValueError."""
    value: str
    """What the text must be; follows "must be" in error texts."""
    meaning: str


def _size(text: str) -> int:
    size = parse_bytes(text)
    if not 1 <= size <= MAX_SIZE_BYTES:
        raise ValueError(text)
    return size


def _directory(text: str) -> str:
    if "/" in text or path_problem(text):
        raise ValueError(text)
    return text


MODEL_SIZE = Parameter(
    f"{PREFIX}modelSizeBytes", "size_hint_bytes", _size, "a size greater than 0, in bytes or with a unit as in 512MiB",
    "memory that the loaded model takes; counts more than a prediction, and than any measurement that fits",
)  # fmt: skip
TOP_MODEL = Parameter(
    f"{PREFIX}topModel", "top_model", _directory, "the name of a directory",
    "of a bundle: the directory of the model that is asked for inference, where the configs do not tell",
)  # fmt: skip
ALLOW_DECOUPLED = Parameter(
    f"{PREFIX}allowDecoupled", "allow_decoupled", parse_bool, '"true" or "false"',
    "load a `vllm` model without a config.pbtxt, although ModelMesh cannot forward its answers, which are decoupled",
)  # fmt: skip
PARAMETERS = (MODEL_SIZE, TOP_MODEL, ALLOW_DECOUPLED)


def split(params: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """
    The adapter's own parameters, as fields of `ModelSpec`, and the others, which are the store's.

    Raises:
        InvalidRequest: an unknown name with our prefix in any case, or a value that cannot be read; the value is not quoted.
    """
    ours = {name: text for name, text in params.items() if name.lower().startswith(PREFIX)}
    known = {parameter.name: parameter for parameter in PARAMETERS}
    if unknown := sorted(ours.keys() - known.keys()):
        raise InvalidRequest(f"unknown storage parameter {unknown[0][:64]!r}; the adapter knows {', '.join(known)}")
    fields = {}
    for name, text in ours.items():
        try:
            fields[known[name].field] = known[name].parse(text)
        except ValueError:
            raise InvalidRequest(f"storage parameter {name} must be {known[name].value}") from None
    return fields, {name: text for name, text in params.items() if name not in ours}
