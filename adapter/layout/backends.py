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

The FIL backend is told of a forest what its file says, and what a user tells it is compared with that. It writes as many
numbers for each row as the forest has outputs into the buffer that Triton makes from the config, and reads as many as the
forest has features from the request: neither is compared with the config, and both go beyond the buffers where the config is
wrong. So both counts come from the file, once it is there. The exceptions: of several classes, `output_class` without
`predict_proba` goes through a buffer of the backend's own and gives one number, the class; of a forest of one output,
`predict_proba` gives two on a GPU.

Nothing is said of the trees themselves: Treelite does not validate all of them, so users who may deploy a forest must be trusted with
Triton.

Source: fil_backend `src/cpu_forest_model.h`, `src/gpu_forest_model.h`, `src/tl_model.h`, `src/nvforest_predict.h` (which sizes
are written, on CPU and GPU, of the old FIL, of the new one, of GTIL and of nvForest), `src/shared_state.h` (`output_class` is
required, releases from 25.09 on take it for `is_classifier`; `threshold` is required with it),
`docs/model_config.md`; treelite `src/gtil/output_shape.cc`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import partial
from math import prod
from typing import Any

from adapter.errors import InvalidModel
from adapter.layout import forests, model_config, schema
from adapter.layout.forests import FORMATS, Forest, Unreliable
from adapter.layout.model_config import PLATFORMS, ModelConfig
from adapter.layout.model_types import ModelType
from adapter.layout.schema import VARIABLE, Schema, Tensor
from adapter.layout.tree import LayoutError, Tree, shortened
from adapter.model import Decide
from adapter.volume.trees import Ends

DECOUPLED = "it may answer a request any number of times, and ModelMesh forwards calls with one answer only"

_PYTHON_FILE = "model.py"
_EARLIER = frozenset({"model.savedmodel", "model.graphdef", "model.plan", "model.onnx", "model.xml", "model.pt", "model.pt2"})
"""What Triton looks for before model.py, in the directory whose name sorts first."""
_NO_SHELL = re.compile(r"[\w.~:@%+=,-]+", re.ASCII)
FIL = "fil"
FIL_BATCH_SIZE = 32768
"""The FIL backend works in batches only; its documentation's own example."""
MOST_NUMBERS = 2**63 - 1
"""Of one row. More of them can be declared, and not be shown."""
INPUT, OUTPUT = "input__0", "output__0"


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
            raise LayoutError(f"{version}/{file_name} is missing, and Triton's python backend would wait for it forever")
    if config.said.backend == "dali" and not _NO_SHELL.fullmatch(name):
        raise LayoutError(f"the model id {shortened(name)} has characters that the DALI backend would hand to a shell")


def _python_file(kind: ModelType, name: str, config: ModelConfig, tree: Tree) -> str | None:
    """What the python backend opens in a version directory; None when another backend gets the model."""
    own = str(config.said.default_model_filename)
    if config.is_ensemble or config.said.backend:
        return own or _PYTHON_FILE if config.backend() == "python" else None
    if own:
        return own if own == _PYTHON_FILE and config.said.platform not in PLATFORMS else None
    seen = tree.below(next(iter(tree.directory_names), ""))  # Triton looks into this one; it need not be a version
    if config.said.platform or not _EARLIER.isdisjoint(seen.names):
        return None
    if kind.backend == "python" or _PYTHON_FILE in seen.names:
        return _PYTHON_FILE
    return "model.python" if name.partition(".")[2] == "python" else None


def is_vllm(version: Tree) -> bool:
    """Whether nothing but `model.json` tells what these files are."""
    return "model.json" in version.file_names and _PYTHON_FILE not in version.names and _EARLIER.isdisjoint(version.names)


def check_positions(names: list[str]) -> None:
    """
    Look at the inputs that a schema gives a model of the PyTorch backend: names that all end in numbers say the inputs' places.

    Raises:
        InvalidModel: a place is not there, and the backend would write to it.
    """
    numbers = [number for _, mark, number in (name.partition("__") for name in names) if mark and re.fullmatch("[0-9]*", number)]
    for name, number in zip(names, numbers, strict=True) if len(numbers) == len(names) else ():
        if int(number[:20] or "0") >= len(names):
            raise InvalidModel(
                f"the schema has {len(names)} input{'s' * (len(names) > 1)} and calls one {shortened(name)}: the PyTorch backend takes "
                f"the number for the input's position and does not check whether there is one; the first is 0"
            )


def hint(kind: ModelType, config: ModelConfig, version: Tree) -> str:
    """
    What helps if Triton refuses the model; empty when nothing is known.

    `version` has the files of a version that will be served.
    """
    is_named_so = not (config.said.default_model_filename or {"model.pt", "model.pt2"}.isdisjoint(version.file_names))
    backend = config.backend(kind.backend) or (is_named_so and "pytorch")
    if backend == "pytorch" and not (config.said.input and config.said.output):
        return "the PyTorch backend does not fill in inputs and outputs: add a schema (schema_path) or a config.pbtxt with all of them"
    return ""


def forest(kind: ModelType, version: Tree, directory: str, schema_content: bytes | None) -> dict[str, Decide]:
    """
    What must be known of the forest of one version before its config can be written.

    Raises:
        InvalidModel: the schema cannot be used, whatever is in the file.
    """
    usual, name = next(known for known in FORMATS.items() if known[1] in kind.file_names and known[1] in version.file_names)
    wanted: list[Tensor] = []
    for own, side in zip((INPUT, OUTPUT), schema.read(schema_content, FIL_BATCH_SIZE), strict=True):
        for tensor in side:
            if tensor.name != own:
                words = f"the FIL backend calls its own {own}: name it so, or bring a config.pbtxt"
                raise InvalidModel(f"the schema has a tensor {shortened(tensor.name)}, and {words}")
            if tensor.data_type != "TYPE_FP32":
                raise InvalidModel(f"the schema gives {own} another datatype than FP32, the only one of the FIL backend")
        wanted += side or [Tensor(own, "TYPE_FP32", (VARIABLE,))]
    return {f"{directory}/{name}": partial(_written, version.files[name].path, directory, usual, wanted)}


def _written(path: str, directory: str, usual: str, wanted: list[Tensor], ends: Ends) -> tuple[str, Mapping[str, bytes]]:
    """
    The forest's place in the directory of its version, and the config that is written beside it.

    `path` is for error texts, and `usual` what the file's name says of its format.

    Without a schema a forest of several classes answers one probability for each.

    Raises:
        InvalidModel: the counts cannot be told, or the schema says others.
    """
    try:
        forest = forests.read(usual, ends)
    except Unreliable as reason:
        raise InvalidModel(
            f"{shortened(path)}: what the FIL backend must be told of this forest cannot be taken from the file: {reason}; "
            f"add a config.pbtxt with the dims of {INPUT} and {OUTPUT}, and with output_class"
        ) from reason
    if forest.targets > 1:
        raise InvalidModel(
            f"{shortened(path)} has {forest.shown}, and not every release of the FIL backend takes more than one target; if yours does, "
            f'add a config.pbtxt with {INPUT} dims [ {forest.features} ], {OUTPUT} dims [ {forest.outputs} ] and output_class "false"'
        )
    columns, answer = (_fitted(tensor, path, forest) for tensor in wanted)
    width = answer.dims[0]
    parameters = {"model_type": forest.model_type, "output_class": "false"}
    if forest.classes > 1 or width > 1:
        parameters |= {"output_class": "true", "threshold": "0.5", "predict_proba": "true" if width > 1 else "false"}
    text = f'backend: "{FIL}"\nmax_batch_size: {FIL_BATCH_SIZE}\ndynamic_batching {{ }}\n'
    text += "".join(f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n' for key, value in parameters.items())
    config = model_config.read(text.encode()).rewritten(Schema((columns,), (answer,)))
    return f"{directory}/{FORMATS[forest.model_type]}", {model_config.FILE_NAME: config}


def _fitted(tensor: Tensor, path: str, forest: Forest) -> Tensor:
    """The tensor of a schema with the numbers of the file. Raises InvalidModel."""
    count, words = (forest.features, f"{forest.features} features") if tensor.name == INPUT else (forest.outputs, forest.shown)
    other = (1,) if forest.classes > 1 else (2,) if forest.is_binary else None
    if tensor.name == OUTPUT and tensor.dims == other:
        return tensor  # the class itself, or both probabilities
    if tensor.dims not in ((VARIABLE,), (count,)):
        given = f"the schema gives {tensor.name} {list(tensor.dims)} for each row"
        raise InvalidModel(f"{given}, and {shortened(path)} says {words}: [{count}] belongs there")
    return tensor._replace(dims=(count,))


def forest_questions(config: ModelConfig, tree: Tree, versions: tuple[str, ...]) -> dict[str, Decide]:
    """Of the forests of a user's own config: whether it declares the numbers that they give; none where the format is unknown."""
    said = config.said
    word = said.parameters["model_type"].string_value if "model_type" in said.parameters else "xgboost"
    if said.backend != FIL or word not in FORMATS:
        return {}
    paths = [f"{version}/{said.default_model_filename or FORMATS[word]}" for version in versions]
    return {path: partial(_compared, config, word, path) for path in paths if path in tree.files}


def _compared(config: ModelConfig, word: str, path: str, ends: Ends) -> tuple[str, Mapping[str, bytes]]:
    """
    Compare a user's own config with the file, as far as both say numbers. What fits goes to Triton as it was written.

    Raises:
        InvalidModel: Triton's buffers would be too small, with both numbers.
    """
    try:
        forest = forests.read(word, ends)
    except Unreliable:
        return path, {}
    if forest.model_type != word:  # the backend says so
        return path, {}
    is_class, needed = _answered(config, forest)
    given, columns = _width(config.said.output, OUTPUT), _width(config.said.input, INPUT)
    gives = f"config.pbtxt makes room for {_numbers(given)} in {OUTPUT}, and the FIL backend would"
    says = f"{shortened(path)} says"
    if 0 < given < needed:
        class_alone = 'output_class "true" and predict_proba "false" for the class alone'
        raise InvalidModel(f"{gives} write {needed}: {says} {forest.shown}; give {OUTPUT} dims [ {needed} ], or {class_alone}")
    if is_class and given > forest.outputs:
        raise InvalidModel(f"{gives} read them from {forest.outputs}: {says} {forest.shown}; give {OUTPUT} dims [ 1 ]")
    if 0 < columns < forest.features:
        read = f"config.pbtxt gives {INPUT} {_numbers(columns)}, and the FIL backend would read {forest.features}"
        raise InvalidModel(f"{read}: {says} {forest.features} features")
    return path, {}


def _answered(config: ModelConfig, forest: Forest) -> tuple[bool, int]:
    """Whether the answer is the class of several, out of a buffer of the backend's own; how many numbers are written for each row."""
    parameters = {key: value.string_value.strip().lower() in ("true", "1") for key, value in config.said.parameters.items()}
    answers_class = parameters.get("output_class", parameters.get("is_classifier", False))
    with_probabilities = parameters.get("predict_proba", False)
    if answers_class and not with_probabilities and forest.classes > 1:
        return True, 1
    groups = config.said.instance_group
    is_on_cpu = bool(groups) and all(group.kind == group.KIND_CPU for group in groups)
    return False, 2 if with_probabilities and forest.outputs == 1 and not is_on_cpu else forest.outputs


def _width(side: Iterable[Any], name: str) -> int:
    """Numbers for each row that the config declares; 0 where it does not say."""
    dims = next((tensor.dims for tensor in side if tensor.name == name), ())
    return min(prod(dims), MOST_NUMBERS) if dims and min(dims) > 0 else 0


def _numbers(count: int) -> str:
    return f"{count} number{'s' * (count != 1)}"
