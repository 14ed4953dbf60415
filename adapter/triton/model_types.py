"""
The model types that we know, one row each: what Triton calls their backend and their files.

Owns the table and the reading of a type's name. A new type is a new row here and, where it is laid
out in a way of its own, a function in `placement`.

Source: the archived Go adapter, `server/adaptmodellayout.go` 38-61; Triton core `constants.h`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ModelType:
    """One row. Paths are those inside a version directory."""

    name: str
    backend: str = ""
    """What a config that we write names; empty leaves it to Triton."""
    file_name: str = ""
    """Name that a model of one file gets; empty keeps its own."""
    directory_name: str = ""
    """Name that a model of several files gets as a directory; empty puts them beside each other."""
    suffixes: tuple[str, ...] = ()
    """Endings that tell the model's own file from what lies beside it."""
    expected: str
    """The tree that Triton expects, for error texts."""


UNKNOWN = ModelType(
    name="",
    expected="1/<the model's files>, with a config.pbtxt beside 1/ where Triton cannot tell the backend from their names",
)

TYPES = {
    row.name: row
    for row in (
        ModelType(
            name="onnx",
            backend="onnxruntime",
            file_name="model.onnx",
            directory_name="model.onnx",
            suffixes=(".onnx",),
            expected="1/model.onnx, or 1/model.onnx/model.onnx with its external data beside it",
        ),
        ModelType(
            name="tensorrt",
            backend="tensorrt",
            file_name="model.plan",
            suffixes=(".plan", ".engine", ".trt"),
            expected="1/model.plan",
        ),
        ModelType(
            name="pytorch",
            backend="pytorch",
            file_name="model.pt",
            suffixes=(".pt", ".pth"),
            expected="1/model.pt",
        ),
        ModelType(
            name="tensorflow",
            backend="tensorflow",
            file_name="model.graphdef",
            directory_name="model.savedmodel",
            suffixes=(".graphdef", ".pb"),
            expected="1/model.savedmodel/saved_model.pb, or 1/model.graphdef",
        ),
        ModelType(
            name="keras",
            backend="tensorflow",
            directory_name="model.savedmodel",
            expected="1/model.savedmodel/saved_model.pb",
        ),
        ModelType(
            name="python",
            backend="python",
            file_name="model.py",
            suffixes=(".py",),
            expected="1/model.py",
        ),
        ModelType(
            name="ensemble",
            expected="config.pbtxt and 1/",
        ),
    )
}


def model_type(text: str) -> ModelType:
    """The row of a type as anyone may write it: `onnx`, `ONNX:1.12`, `mt:onnx:1|…`."""
    name, _, _ = text.strip().lower().removeprefix("mt:").partition(":")
    return TYPES.get(name.strip(), UNKNOWN)


def by_backend(backend: str) -> ModelType | None:
    """The first row of this backend."""
    return next((row for row in TYPES.values() if backend and row.backend == backend), None)
