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
    by_suffix: Mapping[str, str] = field(default_factory=dict)
    """Ending that tells the model's own file from what lies beside it → name that such a file gets."""
    expected: str
    """The tree that Triton expects, for error texts."""
    example: tuple[str, ...]
    """The simplest such tree: paths inside the model's directory."""

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Endings of the model's own file."""
        return tuple(self.by_suffix)

    @property
    def file_names(self) -> tuple[str, ...]:
        """Every name under which the backend finds its model's file, the usual one first."""
        return tuple(dict.fromkeys(name for name in (self.file_name, *self.by_suffix.values()) if name))

    def placed_name(self, name: str) -> str:
        """The name that a model's file gets, by the ending it has."""
        return next((placed for suffix, placed in self.by_suffix.items() if name.lower().endswith(suffix)), self.file_name)


def _row(
    name: str, backend: str, file_name: str = "", suffixes: str = "", expected: str = "", *, directory: str = "", example: str = ""
) -> ModelType:
    """A row; a suffix may have a file name of its own behind `=`, and what Triton expects is the usual file where nothing else is said."""
    by_suffix = {suffix: own or file_name for suffix, _, own in (word.partition("=") for word in suffixes.split())}
    usual = f"1/{file_name or next(iter(by_suffix.values()), '')}"
    return ModelType(
        name=name,
        backend=backend,
        file_name=file_name,
        directory_name=directory,
        by_suffix=by_suffix,
        expected=expected or usual,
        example=tuple(example.split()) or (usual,),
    )


UNKNOWN = ModelType(
    name="",
    expected="1/<the model's files>, with a config.pbtxt beside 1/ where Triton cannot tell the backend from their names",
    example=("config.pbtxt", "1/<the model's files>"),
)
_XGBOOST = ".json=xgboost.json .ubj=xgboost.ubj .model=xgboost.model"
_FORESTS = f"{_XGBOOST} .txt=model.txt .tl=checkpoint.tl"
_ANY_FOREST = "one of 1/xgboost.json, 1/xgboost.ubj, 1/xgboost.model, 1/model.txt, 1/checkpoint.tl"
_ONNX = "1/model.onnx, or 1/model.onnx/model.onnx with its external data beside it"
_SAVED = "model.savedmodel"
_SAVED_FILE = f"1/{_SAVED}/saved_model.pb"
_SAVED_TREE = f"{_SAVED_FILE} 1/{_SAVED}/variables/…"
_ENGINE = "config.pbtxt, as tensorrtllm_backend's templates make it, and 1/ with the engine"
_ROWS = (
    _row("onnx", "onnxruntime", "model.onnx", ".onnx", _ONNX, directory="model.onnx"),
    _row("tensorrt", "tensorrt", "model.plan", ".plan .engine .trt"),
    _row("pytorch", "pytorch", "model.pt", ".pt .pth .pt2=model.pt2", "1/model.pt (TorchScript), or 1/model.pt2 (AOTInductor)"),
    _row(
        "tensorflow", "tensorflow", "model.graphdef", ".graphdef .pb", f"{_SAVED_FILE}, or 1/model.graphdef",
        directory=_SAVED, example=_SAVED_TREE,
    ),
    _row("keras", "tensorflow", expected=_SAVED_FILE, directory=_SAVED, example=_SAVED_TREE),
    _row("openvino", "openvino", "model.xml", ".xml", "1/model.xml and 1/model.bin", example="1/model.xml 1/model.bin"),
    _row("python", "python", "model.py", ".py"),
    _row("fil", "fil", "", _FORESTS, _ANY_FOREST),
    _row("xgboost", "fil", "", f"{_XGBOOST} .bst=xgboost.model", "1/xgboost.json, 1/xgboost.ubj or 1/xgboost.model"),
    _row("lightgbm", "fil", "model.txt", ".txt .bst .lgb", "1/model.txt, as LightGBM's save_model writes it"),
    _row("sklearn", "fil", "", ".tl=checkpoint.tl", "1/checkpoint.tl, a Treelite checkpoint of the model"),
    _row("dali", "dali", "model.dali", ".dali .py=dali.py", "1/model.dali, or 1/dali.py with an @autoserialize pipeline"),
    _row("vllm", "vllm", "model.json", ".json", "1/model.json, the arguments of the vLLM engine"),
    _row("tensorrtllm", "tensorrtllm", expected=_ENGINE, example="config.pbtxt 1/rank0.engine 1/config.json"),
    _row("ensemble", "", expected="config.pbtxt and 1/", example="config.pbtxt 1/"),
)  # fmt: skip
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
