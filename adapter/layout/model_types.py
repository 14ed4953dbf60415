"""
The model types that we know, one row each: what Triton calls their backend and their files.

Owns the table and the reading of a type's name. A new type is a new row here and, where it is laid
out in a way of its own, a function in `placement`.

Source: kserve/modelmesh-runtime-adapter (archived), `adaptmodellayout.go`; Triton core `constants.h`; the
documentation of fil_backend (`model_config.md`), dali_backend, vllm_backend and tensorrtllm_backend.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


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
    by_suffix: Mapping[str, str] = field(default_factory=dict)
    """Ending → name of a file of that format, where the backend has several and tells them by their names."""
    expected: str
    """The tree that Triton expects, for error texts."""
    example: tuple[str, ...]
    """The simplest such tree: paths inside the model's directory."""

    @property
    def file_names(self) -> tuple[str, ...]:
        """Every name under which the backend finds its model's file, the usual one first."""
        return tuple(dict.fromkeys(name for name in (self.file_name, *self.by_suffix.values()) if name))

    def placed_name(self, name: str) -> str:
        """The name that a model's file gets, by the ending it has."""
        return next((placed for suffix, placed in self.by_suffix.items() if name.lower().endswith(suffix)), self.file_name)


UNKNOWN = ModelType(
    name="",
    expected="1/<the model's files>, with a config.pbtxt beside 1/ where Triton cannot tell the backend from their names",
    example=("config.pbtxt", "1/<the model's files>"),
)

_FORESTS = {
    ".json": "xgboost.json",
    ".ubj": "xgboost.ubj",
    ".model": "xgboost.model",
    ".txt": "model.txt",
    ".tl": "checkpoint.tl",
}
"""Formats that the FIL backend reads, by their usual endings."""

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
            example=("1/model.onnx",),
        ),
        ModelType(
            name="tensorrt",
            backend="tensorrt",
            file_name="model.plan",
            suffixes=(".plan", ".engine", ".trt"),
            expected="1/model.plan",
            example=("1/model.plan",),
        ),
        ModelType(
            name="pytorch",
            backend="pytorch",
            file_name="model.pt",
            suffixes=(".pt", ".pth", ".pt2"),
            by_suffix={".pt2": "model.pt2"},
            expected="1/model.pt (TorchScript), or 1/model.pt2 (AOTInductor)",
            example=("1/model.pt",),
        ),
        ModelType(
            name="tensorflow",
            backend="tensorflow",
            file_name="model.graphdef",
            directory_name="model.savedmodel",
            suffixes=(".graphdef", ".pb"),
            expected="1/model.savedmodel/saved_model.pb, or 1/model.graphdef",
            example=("1/model.savedmodel/saved_model.pb", "1/model.savedmodel/variables/…"),
        ),
        ModelType(
            name="keras",
            backend="tensorflow",
            directory_name="model.savedmodel",
            expected="1/model.savedmodel/saved_model.pb",
            example=("1/model.savedmodel/saved_model.pb", "1/model.savedmodel/variables/…"),
        ),
        ModelType(
            name="openvino",
            backend="openvino",
            file_name="model.xml",
            suffixes=(".xml",),
            expected="1/model.xml and 1/model.bin",
            example=("1/model.xml", "1/model.bin"),
        ),
        ModelType(
            name="python",
            backend="python",
            file_name="model.py",
            suffixes=(".py",),
            expected="1/model.py",
            example=("1/model.py",),
        ),
        ModelType(
            name="fil",
            backend="fil",
            suffixes=tuple(_FORESTS),
            by_suffix=_FORESTS,
            expected=f"one of {', '.join(f'1/{name}' for name in _FORESTS.values())}",
            example=("1/xgboost.json",),
        ),
        ModelType(
            name="xgboost",
            backend="fil",
            suffixes=(".json", ".ubj", ".model", ".bst"),
            by_suffix={suffix: _FORESTS[suffix] for suffix in (".json", ".ubj", ".model")} | {".bst": _FORESTS[".model"]},
            expected="1/xgboost.json, 1/xgboost.ubj or 1/xgboost.model",
            example=("1/xgboost.json",),
        ),
        ModelType(
            name="lightgbm",
            backend="fil",
            file_name="model.txt",
            suffixes=(".txt", ".bst", ".lgb"),
            expected="1/model.txt, as LightGBM's save_model writes it",
            example=("1/model.txt",),
        ),
        ModelType(
            name="sklearn",
            backend="fil",
            suffixes=(".tl",),
            by_suffix={".tl": _FORESTS[".tl"]},
            expected="1/checkpoint.tl, a Treelite checkpoint of the model",
            example=("1/checkpoint.tl",),
        ),
        ModelType(
            name="dali",
            backend="dali",
            file_name="model.dali",
            suffixes=(".dali", ".py"),
            by_suffix={".py": "dali.py"},
            expected="1/model.dali, or 1/dali.py with an @autoserialize pipeline",
            example=("1/model.dali",),
        ),
        ModelType(
            name="vllm",
            backend="vllm",
            file_name="model.json",
            suffixes=(".json",),
            expected="1/model.json, the arguments of the vLLM engine",
            example=("1/model.json",),
        ),
        ModelType(
            name="tensorrtllm",
            backend="tensorrtllm",
            expected="config.pbtxt, as tensorrtllm_backend's templates make it, and 1/ with the engine",
            example=("config.pbtxt", "1/rank0.engine", "1/config.json"),
        ),
        ModelType(
            name="ensemble",
            expected="config.pbtxt and 1/",
            example=("config.pbtxt", "1/"),
        ),
    )
}


_ALIASES = {"tensorrt-llm": "tensorrtllm", "tensorrt_llm": "tensorrtllm", "trtllm": "tensorrtllm"}


def model_type(text: str) -> ModelType:
    """The row of a type as anyone may write it: `onnx`, `ONNX:1.12`, `mt:onnx:1|…`."""
    name, _, _ = text.strip().lower().removeprefix("mt:").partition(":")
    name = name.strip()
    return TYPES.get(_ALIASES.get(name, name), UNKNOWN)


def by_backend(backend: str) -> ModelType | None:
    """The first row of this backend."""
    return next((row for row in TYPES.values() if backend and row.backend == backend), None)
