"""
The names of other models in a config.pbtxt, and putting others in their place.

An ensemble names its composing models in `ensemble_scheduling.step[].model_name`. A python model that
calls others (BLS) can say so too: every entry of `parameters` whose key begins with `bls_model.` has
the name of a model as its `string_value`, and the model reads it from its own config:

    parameters { key: "bls_model.tokenizer" value { string_value: "tokenizer" } }
    name = json.loads(args["model_config"])["parameters"]["bls_model.tokenizer"]["string_value"]

Knows the spans of these names and nothing else; whatever surrounds them stays as it was written. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from adapter.layout.textproto import Edit, Field, Message, Scalar, quoted

BLS_KEY = "bls_model."


@dataclass(frozen=True)
class Reference:
    """One place where a config names another model."""

    name: str
    where: str
    """For error texts."""
    is_step: bool
    """Triton loads it with the model that names it."""
    start: int
    end: int


def references(config: Message) -> tuple[Reference, ...]:
    """Every other model that a config names, in the order of the text, steps first."""
    return (*_steps(config), *_bls_parameters(config))


def edits(config: Message, names: Mapping[str, str]) -> list[Edit]:
    """Give the models that a config names their new names; others stay."""
    return [Edit(found.start, found.end, quoted(names[found.name])) for found in references(config) if found.name in names]


def _steps(config: Message) -> Iterator[Reference]:
    for scheduling in _messages(config.all("ensemble_scheduling")):
        for step in _messages(scheduling.all("step")):
            for name in _strings(step.all("model_name")):
                yield Reference(str(name.value), "an ensemble step", True, name.start, name.end)


def _bls_parameters(config: Message) -> Iterator[Reference]:
    for entry in _messages(config.all("parameters")):
        keys = [str(key.value) for key in _strings(entry.all("key"))]
        if len(keys) != 1 or not keys[0].startswith(BLS_KEY):
            continue
        for value in _messages(entry.all("value")):
            for name in _strings(value.all("string_value")):
                yield Reference(str(name.value), f"the parameter {keys[0]}", False, name.start, name.end)


def _messages(fields: list[Field]) -> Iterator[Message]:
    return (value for field in fields for value in field.values if isinstance(value, Message))


def _strings(fields: list[Field]) -> Iterator[Scalar]:
    return (value for field in fields for value in field.values if isinstance(value, Scalar) and value.kind == "string")
