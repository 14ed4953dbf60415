"""
The model types that we know, one row each: what Triton calls their backend and their files.

Owns the table and the reading of a type's name. A new type is a new row here and, where it is laid
out in a way of its own, a function in `placement`.

Source: kserve/modelmesh-runtime-adapter (archived), `adaptmodellayout.go`; Triton core `constants.h`; the
documentation of fil_backend (`model_config.md`), dali_backend, vllm_backend and tensorrtllm_backend.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class ModelType:
    """One row. Paths are those inside a version directory, unless they begin with it."""

    name: str
    backend: str = ""
    """What a config that we write names; empty leaves it to Triton."""
    file_name: str = ""
    """Name that a model of one file gets; empty keeps its own."""
    endings: str = ""
    """Endings that tell the model's own file from what lies beside it; `=` and a name where such a file gets another one."""
    expected: str = ""
    """The tree that Triton expects, for error texts."""
    directory_name: str = ""
    """Name that a model of several files gets as a directory; empty puts them beside each other."""
    tree: tuple[str, ...] = ()
    """The simplest tree that Triton expects: paths inside the model's directory; empty for the usual file."""

    @cached_property
    def by_suffix(self) -> Mapping[str, str]:
        """Ending of the model's own file → name that such a file gets."""
        words = (word.partition("=") for word in self.endings.split())
        return {suffix: own or self.file_name for suffix, _, own in words}

    @property
    def file_names(self) -> tuple[str, ...]:
        """Every name under which the backend finds its model's file, the usual one first."""
        return tuple(dict.fromkeys(name for name in (self.file_name, *self.by_suffix.values()) if name))

    @property
    def example(self) -> tuple[str, ...]:
        """The simplest tree that Triton expects."""
        return self.tree or (f"1/{self.file_names[0]}",)

    def is_own(self, name: str) -> bool:
        """Whether a file has one of the endings."""
        return name.lower().endswith(tuple(self.by_suffix))

    def placed_name(self, name: str) -> str:
        """The name that a model's file gets, by the ending it has."""
        return next((placed for suffix, placed in self.by_suffix.items() if name.lower().endswith(suffix)), self.file_name)


UNKNOWN = ModelType(
    "",
    expected="1/<the model's files>, with a config.pbtxt beside 1/ where Triton cannot tell the backend from their names",
    tree=("config.pbtxt", "1/<the model's files>"),
)
_XGBOOST = ".json=xgboost.json .ubj=xgboost.ubj .model=xgboost.model"
_FORESTS = f"{_XGBOOST} .txt=model.txt .tl=checkpoint.tl"
_ANY_FOREST = "one of 1/xgboost.json, 1/xgboost.ubj, 1/xgboost.model, 1/model.txt, 1/checkpoint.tl"
_ONNX = "1/model.onnx, or 1/model.onnx/model.onnx with its external data beside it"
_SAVED = "1/model.savedmodel/saved_model.pb"
_SAVED_TREE = (_SAVED, "1/model.savedmodel/variables/…")
_ENGINE = "config.pbtxt, as tensorrtllm_backend's templates make it, and 1/ with the engine"
_ROWS = (
    ModelType("onnx", "onnxruntime", "model.onnx", ".onnx", _ONNX, "model.onnx"),
    ModelType("tensorrt", "tensorrt", "model.plan", ".plan .engine .trt", "1/model.plan"),
    ModelType("pytorch", "pytorch", "model.pt", ".pt .pth .pt2=model.pt2", "1/model.pt (TorchScript), or 1/model.pt2 (AOTInductor)"),
    ModelType(
        "tensorflow", "tensorflow", "model.graphdef", ".graphdef .pb", f"{_SAVED}, or 1/model.graphdef", "model.savedmodel", _SAVED_TREE
    ),
    ModelType("keras", "tensorflow", "", "", _SAVED, "model.savedmodel", _SAVED_TREE),
    ModelType("openvino", "openvino", "model.xml", ".xml", "1/model.xml and 1/model.bin", tree=("1/model.xml", "1/model.bin")),
    ModelType("python", "python", "model.py", ".py", "1/model.py"),
    ModelType("fil", "fil", "", _FORESTS, _ANY_FOREST),
    ModelType("xgboost", "fil", "", f"{_XGBOOST} .bst=xgboost.model", "1/xgboost.json, 1/xgboost.ubj or 1/xgboost.model"),
    ModelType("lightgbm", "fil", "model.txt", ".txt .bst .lgb", "1/model.txt, as LightGBM's save_model writes it"),
    ModelType("sklearn", "fil", "", ".tl=checkpoint.tl", "1/checkpoint.tl, a Treelite checkpoint of the model"),
    ModelType("dali", "dali", "model.dali", ".dali .py=dali.py", "1/model.dali, or 1/dali.py with an @autoserialize pipeline"),
    ModelType("vllm", "vllm", "model.json", ".json", "1/model.json, the arguments of the vLLM engine"),
    ModelType("tensorrtllm", "tensorrtllm", expected=_ENGINE, tree=("config.pbtxt", "1/rank0.engine", "1/config.json")),
    ModelType("ensemble", expected="config.pbtxt and 1/", tree=("config.pbtxt", "1/")),
)
TYPES = {row.name: row for row in _ROWS}
_ALIASES = {"tensorrt-llm": "tensorrtllm", "tensorrt_llm": "tensorrtllm", "trtllm": "tensorrtllm"}


def model_type(text: str) -> ModelType:
    """The row of a type as anyone may write it: `onnx`, `ONNX:1.12`, `mt:onnx:1|…`."""
    name, _, _ = text.strip().lower().removeprefix("mt:").partition(":")
    name = name.strip()
    return TYPES.get(_ALIASES.get(name, name), UNKNOWN)


def by_backend(backend: str) -> ModelType | None:
    """The first row of this backend."""
    return next((row for row in TYPES.values() if backend and row.backend == backend), None)
