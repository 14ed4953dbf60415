"""What a caller wishes, as inputs of a model. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from adapter.fronts.llm.parameters import BadParameter, Wishes
from adapter.fronts.llm.tensors import Inputs
from adapter.inference import ModelInfo


def takes(info: ModelInfo, name: str) -> bool:
    """Whether the model has this input."""
    return any(entry.name == name for entry in info.inputs)


def all_given(wishes: Wishes) -> dict[str, Any]:
    """Everything that was asked for but the number of tokens, by LMI's names."""
    given: dict[str, Any] = dict(wishes.given)
    if wishes.stops:
        given["stop_sequences"] = list(wishes.stops)
    if wishes.seed is not None:
        given["seed"] = wishes.seed
    return given


def lacking(name: str, backend: str) -> BadParameter:
    """Of a parameter that makes sense, but not to this backend."""
    return BadParameter(name, f"this model cannot do that; its backend is {backend}")


def put(inputs: Inputs, name: str, theirs: Sequence[str], value: Any, backend: str) -> None:
    """Put a value into the first of `theirs` that the model takes. Raises BadParameter: it takes none of them, or no such value."""
    found = inputs.first(*theirs)
    if found is None:
        raise lacking(name, backend)
    inputs.put(found, value if isinstance(value, list) else [value], parameter=name)


def put_flags(inputs: Inputs, flags: Mapping[str, bool]) -> None:
    """Put those that the model takes."""
    for name, value in flags.items():
        if inputs.has(name):
            inputs.put(name, [value])
