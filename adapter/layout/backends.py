"""
What Triton's backends do with a model that no layout can mend: refused where they would hang, or pay with memory or a shell; else told.

Where a backend answers with an error of its own, nothing is refused here. Pure.

Source: Triton core `AutoCompleteBackendFields`; python backend `stub_launcher.cc` for the file's path (a python model without its
file never finishes loading, cannot be unloaded, and keeps one of Triton's load threads for ever: server issue 8766).
pytorch_backend `src/libtorch.cc` and `src/pt2/model_state.cc`: `AutoCompleteConfig` fills nothing in, `ValidateInputs` and
`ValidateOutputs` refuse empty lists, and the number in `<name>__<number>` is the input's position, which `SetInputTensors`
writes to, into a list with one place for each input of the request (outputs are compared with their number).
vllm_backend `src/model.py` (`auto_complete_config` always sets the decoupled policy, `initialize` asserts it); ModelMesh
`SidecarModelMesh.java` (unary calls only). dali_backend `src/model_provider/model_provider.h`: `GenerateAutoserializeCmd`
puts the path of the model's file into a command for `system`; releases before `ValidatePath` compare it with nothing.
"""

from __future__ import annotations

import re

from adapter.errors import InvalidModel
from adapter.layout.model_config import ModelConfig
from adapter.layout.model_types import ModelType
from adapter.layout.tree import LayoutError, Tree, shortened

DECOUPLED = "it may answer a request any number of times, and ModelMesh forwards calls with one answer only"

_PYTHON_FILE = "model.py"
_PYTORCH_PLATFORMS = frozenset({"pytorch_libtorch", "pytorch_aoti", "torch_aoti"})
_KNOWN_PLATFORMS = _PYTORCH_PLATFORMS | {"tensorflow_savedmodel", "tensorflow_graphdef", "tensorrt_plan", "onnxruntime_onnx", "ensemble"}
_EARLIER_FILES = frozenset({"model.graphdef", "model.plan", "model.onnx", "model.xml", "model.pt", "model.pt2"})
_EARLIER_DIRECTORIES = frozenset({"model.savedmodel", "model.onnx", "model.xml"})
"""What Triton looks for before model.py, in the directory whose name sorts first."""
_NO_SHELL = re.compile(r"[\w.~:@%+=,-]+", re.ASCII)


def check(kind: ModelType, name: str, config: ModelConfig, tree: Tree, versions: tuple[str, ...]) -> None:
    """
    Make sure that every version to be served has the file that the python backend waits for, and that no shell gets the name.

    The tree is the model directory as Triton will see it under this name, without its config.

    Raises:
        LayoutError: a file is missing, or the DALI backend would give the name to a shell.
    """
    file_name = _python_file(kind, name, config, tree)
    for version in versions:
        if file_name is not None and f"{version}/{file_name}" not in tree.files:
            raise LayoutError(f"{version}/{file_name} is missing, and Triton's python backend would wait for it for ever")
    if config.said.backend == "dali" and not _NO_SHELL.fullmatch(name):
        raise LayoutError(f"the model id {shortened(name)} has characters that the DALI backend would hand to a shell")


def _python_file(kind: ModelType, name: str, config: ModelConfig, tree: Tree) -> str | None:
    """What the python backend opens in a version directory; None when another backend gets the model."""
    if config.is_ensemble:
        return None
    if config.said.backend:
        return (config.said.default_model_filename or _PYTHON_FILE) if config.said.backend == "python" else None
    if config.said.default_model_filename:
        is_python = config.said.default_model_filename == _PYTHON_FILE and config.said.platform not in _KNOWN_PLATFORMS
        return _PYTHON_FILE if is_python else None
    names = sorted(tree.directory_names, key=lambda name: name.encode("utf-8", "surrogatepass"))
    seen = tree.below(names[0]) if names else Tree({})  # Triton looks into this one; it need not be a version
    if config.said.platform or _is_seen_earlier(seen):
        return None
    if kind.backend == "python" or _PYTHON_FILE in seen.names:
        return _PYTHON_FILE
    return "model.python" if name.partition(".")[2] == "python" else None


def _is_seen_earlier(version: Tree) -> bool:
    return not (_EARLIER_FILES.isdisjoint(version.file_names) and _EARLIER_DIRECTORIES.isdisjoint(version.directory_names))


def is_vllm(version: Tree) -> bool:
    """Whether nothing but `model.json` tells what these files are."""
    return "model.json" in version.file_names and _PYTHON_FILE not in version.names and not _is_seen_earlier(version)


def check_positions(names: list[str]) -> None:
    """
    Look at the inputs that a schema gives a model of the PyTorch backend: names that all end in numbers say the inputs' places.

    Raises:
        InvalidModel: a place is not there, and the backend would write to it.
    """
    numbers = [number for _, mark, number in (name.partition("__") for name in names) if mark and re.fullmatch("[0-9]*", number)]
    if len(numbers) < len(names):
        return
    for name, number in zip(names, numbers, strict=True):
        if int(number[:20] or "0") >= len(names):
            raise InvalidModel(
                f"the schema has {len(names)} input{'s' * (len(names) > 1)} and calls one {shortened(name)}: the PyTorch backend takes "
                f"the number for the input's position and does not look whether there is one; the first is 0"
            )


def hint(kind: ModelType, config: ModelConfig, version: Tree) -> str:
    """
    What helps if Triton refuses the model; empty when nothing is known.

    `version` has the files of a version that will be served.
    """
    backend = config.said.backend or ("" if config.said.platform else kind.backend)
    if config.is_ensemble:
        return ""
    is_named_so = not config.says_backend and not backend and not {"model.pt", "model.pt2"}.isdisjoint(version.file_names)
    if (backend == "pytorch" or config.said.platform in _PYTORCH_PLATFORMS or is_named_so) and not (
        config.said.input and config.said.output
    ):
        add = "name all of them in the schema or in config.pbtxt" if config.text else "add a schema (schema_path) or a config.pbtxt"
        return f"the PyTorch backend does not fill in inputs and outputs: {add}"
    return ""


def warnings(config: ModelConfig) -> tuple[str, ...]:
    """What clients of a model with this config will miss."""
    if config.is_decoupled:
        return (f"the model is decoupled: {DECOUPLED}; ask Triton itself, or serve a model that is not decoupled",)
    return ()
