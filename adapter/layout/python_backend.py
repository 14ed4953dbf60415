"""
Whether Triton will take a model for one of the python backend, and so which file must be there.

A python model without its file never finishes loading, cannot be unloaded, and keeps one of Triton's
load threads for ever: four of them stop all loading. So this mirrors how Triton finds a backend for
a config that names none. Pure.

Source: Triton core `AutoCompleteBackendFields`; python backend `stub_launcher.cc` for the file's path;
triton-inference-server/server issue 8766.
"""

from __future__ import annotations

from adapter.layout.model_config import ModelConfig
from adapter.layout.model_types import ModelType
from adapter.layout.tree import LayoutError, Tree

_DEFAULT_FILE = "model.py"
_KNOWN_PLATFORMS = frozenset({
    "tensorflow_savedmodel", "tensorflow_graphdef", "tensorrt_plan", "onnxruntime_onnx",
    "pytorch_libtorch", "pytorch_aoti", "torch_aoti", "ensemble",
})  # fmt: skip
_EARLIER_FILES = ("model.graphdef", "model.plan", "model.onnx", "model.xml", "model.pt", "model.pt2")
_EARLIER_DIRECTORIES = ("model.savedmodel", "model.onnx", "model.xml")
"""What Triton looks for before model.py, in the directory whose name sorts first."""


def check(kind: ModelType, name: str, config: ModelConfig, tree: Tree, versions: tuple[str, ...]) -> None:
    """
    Make sure that every version to be served has the file that the python backend waits for.

    The tree is the model directory as Triton will see it under this name, without its config.

    Raises:
        LayoutError: a file is missing.
    """
    file_name = _file_name(kind, name, config, tree)
    for version in versions:
        if file_name is not None and tree.find(f"{version}/{file_name}") is None:
            raise LayoutError(f"{version}/{file_name} is missing, and Triton's python backend would wait for it for ever")


def _file_name(kind: ModelType, name: str, config: ModelConfig, tree: Tree) -> str | None:
    """What the python backend opens in a version directory; None when another backend gets the model."""
    if config.is_ensemble:
        return None
    if config.backend:
        return (config.default_model_filename or _DEFAULT_FILE) if config.backend == "python" else None
    if config.default_model_filename:
        is_python = config.default_model_filename == _DEFAULT_FILE and config.platform not in _KNOWN_PLATFORMS
        return _DEFAULT_FILE if is_python else None
    if config.platform or _is_seen_earlier(tree):
        return None
    if kind.backend == "python" or _DEFAULT_FILE in _inspected(tree).names:
        return _DEFAULT_FILE
    _, _, backend = name.partition(".")
    return "model.python" if backend == "python" else None


def _inspected(tree: Tree) -> Tree:
    """The one directory that Triton looks into; it need not be a version."""
    return (
        tree.below(min(tree.directory_names, key=lambda name: name.encode("utf-8", "surrogatepass"))) if tree.directory_names else Tree({})
    )


def _is_seen_earlier(tree: Tree) -> bool:
    inside = _inspected(tree)
    return any(name in inside.file_names for name in _EARLIER_FILES) or any(name in inside.directory_names for name in _EARLIER_DIRECTORIES)
