"""
The model types that we know, one row each: what Triton calls their backend and their files, and how the files of one version are named.

Owns the table, the reading of a type's name, and the answer to "which of these files is the model". A new type is a new row here and,
where it is laid out in a way of its own, a function. Pure.

Where the archived Go adapter served a tree, ours serves the same, but for `saved_model.pb`: it is a SavedModel whether or not
variables lie beside it, and the Go adapter placed it as a GraphDef.

Source: kserve/modelmesh-runtime-adapter (archived), `adaptmodellayout.go`; Triton core `constants.h`; the
documentation of fil_backend (`model_config.md`), dali_backend, vllm_backend and tensorrtllm_backend.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from adapter.layout.tree import LayoutError, Tree, shortened

_SAVED_MODEL_FILES = ("saved_model.pb", "saved_model.pbtxt")
_TREELITE = "import joblib, treelite; treelite.sklearn.import_model(joblib.load('{}')).serialize('checkpoint.tl')"
_FOREIGN = {
    "tensorflow": (
        (".h5", ".hdf5", ".keras"),
        "a Keras file, which Triton cannot read, and converting",
        "import keras; keras.saving.load_model('{}').export('model.savedmodel')\" and upload the directory",
    ),
    "fil": ((".pkl", ".pickle", ".joblib"), "a pickle, which the FIL backend cannot read, and opening", f'{_TREELITE}"'),
}
"""Backend → endings of what users of other servers keep and what must be said of it: converting such a file runs its code."""


def _no_config(kind: ModelType, _tree: Tree, _is_single_file: bool) -> Tree:
    raise LayoutError(f"a model of type {kind.name} is described by its config.pbtxt, and there is no config.pbtxt")


def is_recognised(kind: ModelType, tree: Tree) -> bool:
    """Whether the top of this tree is plainly a model of this type."""
    if not kind.file_names and not kind.directory_name:
        return bool(tree.visible.file_names)
    names = (*kind.file_names, *(_SAVED_MODEL_FILES if kind.directory_name == "model.savedmodel" else ()))
    return not set(names).isdisjoint(tree.file_names) or len(_own_files(kind, tree)) == 1


def _one_file(kind: ModelType, tree: Tree, _is_single_file: bool) -> Tree:
    """A model of one file with a fixed name, or one of several that tell its format; other files stay beside it."""
    inner = _entered(kind, tree).visible
    if kind.backend == "fil" and not any(name in inner.file_names for name in kind.file_names):
        _refuse_foreign(kind, inner)
    chosen = _chosen_file(kind, inner)
    by_suffix = (name for suffix, name in kind.by_suffix.items() if chosen.lower().endswith(suffix))
    name = chosen if chosen in kind.file_names else next(by_suffix, kind.file_name)
    if not name:
        raise LayoutError(f"the ending of {shortened(chosen)} does not tell which format it has; name it {' or '.join(kind.file_names)}")
    return _renamed(inner, chosen, name)


def _with_the_rest(kind: ModelType, tree: Tree, is_single_file: bool) -> Tree:
    """A file of a fixed name with everything beside it, left as it is: modules, weights of a local model, adapters, templates."""
    if is_single_file:
        return _renamed(tree, tree.file_names[0], kind.file_name)
    inner = _entered(kind, tree) if kind.name == "python" else _entered(kind, tree).visible
    if kind.file_name not in inner.file_names:
        raise LayoutError(f"there is no {kind.file_name}{' with the arguments of the vLLM engine' * (kind.name == 'vllm')}")
    return inner


def _onnx(kind: ModelType, tree: Tree, is_single_file: bool) -> Tree:
    """A single file, or a directory in which external data lies beside the model."""
    visible = tree.visible
    if len(visible.files) == 1 and visible.file_names:
        return _one_file(kind, visible, is_single_file)
    if kind.directory_name in visible.directory_names and len(visible.names) > 1:
        return visible
    inner = _entered(kind, tree).visible
    return _renamed(inner, _chosen_file(kind, inner), kind.file_name).prefixed(kind.directory_name)


def _tensorflow(kind: ModelType, tree: Tree, _is_single_file: bool) -> Tree:
    """A SavedModel, known by the name of its file, or a GraphDef."""
    inner = _entered(kind, tree).visible
    is_alone = len(inner.files) == 1 and bool(inner.file_names)
    if any(name in inner.file_names for name in _SAVED_MODEL_FILES):
        return inner.prefixed(kind.directory_name)
    _refuse_foreign(kind, inner)
    if kind.directory_name in inner.directory_names:
        return inner
    own = inner.file_names if is_alone else _own_files(kind, inner)
    if kind.file_name and len(own) == 1 and "variables" not in inner.names:
        return _renamed(inner, own[0], kind.file_name)
    if is_alone:
        raise LayoutError(f"{shortened(inner.file_names[0])} is not a SavedModel")
    return inner.prefixed(kind.directory_name)


def _openvino(kind: ModelType, tree: Tree, is_single_file: bool) -> Tree:
    """The graph and its weights, which OpenVINO finds by the graph's name."""
    inner = _entered(kind, tree).visible
    graph = _chosen_file(kind, inner)
    weights = f"{graph.rpartition('.')[0] or graph}.bin"
    if weights not in inner.file_names:
        where = "; the model path must be the directory of both" if is_single_file else ""
        raise LayoutError(f"the weights {shortened(weights)} of {shortened(graph)} are not there{where}")
    return _renamed(_renamed(inner, graph, kind.file_name), weights, "model.bin")


def _entered(kind: ModelType, tree: Tree) -> Tree:
    """Step into a directory that is the only entry; deeper ones only when a model is found there."""
    found = (inner for inner in tree.opened() if is_recognised(kind, inner))
    return next(found, None) or next(islice(tree.opened(), 1, 2), tree)


def _chosen_file(kind: ModelType, tree: Tree) -> str:
    """The file that is the model."""
    if kind.file_name in tree.file_names:
        return kind.file_name
    named = [name for name in tree.file_names if name in kind.file_names]
    own = named or _own_files(kind, tree) or (tree.file_names if len(tree.files) == 1 else [])
    if len(own) > 1:
        advice = "leave one of them" if named else f"name one of them {' or '.join(kind.file_names)}"
        raise LayoutError(f"{' and '.join(map(shortened, own[:3]))} could each be the model; {advice}")
    if not own:
        raise LayoutError(f"no file could be told to be the {kind.name} model")
    return own[0]


def _own_files(kind: ModelType, tree: Tree) -> list[str]:
    """The files at the top with one of the type's endings."""
    return [name for name in tree.file_names if name.lower().endswith(tuple(kind.by_suffix))]


def _renamed(tree: Tree, old: str, new: str) -> Tree:
    """
    The tree with one file at its top renamed.

    Raises:
        LayoutError: the new name is taken.
    """
    if old != new and new in tree.names:
        raise LayoutError(f"{shortened(old)} would be placed as {new}, which is there already")
    return Tree({new if path == old else path: file for path, file in tree.files.items()})


def _refuse_foreign(kind: ModelType, tree: Tree) -> None:
    """Raises LayoutError: a file is another program's, or its ending is shared by XGBoost and LightGBM."""
    endings, what, call = _FOREIGN[kind.backend]
    for name in tree.file_names:
        if name.lower().endswith(endings):
            plain = name if re.fullmatch(r"[\w.-]+", name, re.ASCII) else f"model{endings[-1]}"  # as a shell and Python take it
            conversion = f'convert it with python -c "{call.format(plain)}'
            raise LayoutError(f"{shortened(name)} is {what} it here would run code that it contains; {conversion}")
        if kind.backend == "fil" and name.lower().endswith(".bst") and ".bst" not in kind.by_suffix:
            raise LayoutError(
                f"{shortened(name)} may be XGBoost's or LightGBM's; give the type xgboost or lightgbm, or name it as one of the formats"
            )


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
    config: str = ""
    """What Triton must be told beside the files' names. Source: dali_backend's and vllm_backend's documentation."""
    rule: Callable[[ModelType, Tree, bool], Tree] = _one_file
    """
    Names the files of one version, in a tree of its directory. Where the last argument is true the model path is a file: it is the
    model, whatever its name.

    Raises LayoutError: no file can be told to be the model.
    """

    @cached_property
    def by_suffix(self) -> Mapping[str, str]:
        """Ending of the model's own file → name that such a file gets."""
        words = (word.partition("=") for word in self.endings.split())
        return {suffix: own or self.file_name for suffix, _, own in words}

    @property
    def file_names(self) -> tuple[str, ...]:
        """Every name under which the backend finds its model's file, the usual one first."""
        return tuple(dict.fromkeys(name for name in (self.file_name, *self.by_suffix.values()) if name))


UNKNOWN = ModelType(
    "",
    expected="1/<the model's files>, with a config.pbtxt beside 1/ where Triton cannot tell the backend from their names",
    rule=lambda _kind, tree, _is_single_file: tree,
)
_XGBOOST = ".json=xgboost.json .ubj=xgboost.ubj .model=xgboost.model"
_FORESTS = f"{_XGBOOST} .txt=model.txt .tl=checkpoint.tl"
_ANY_FOREST = "one of 1/xgboost.json, 1/xgboost.ubj, 1/xgboost.model, 1/model.txt, 1/checkpoint.tl"
_ONNX = "1/model.onnx, or 1/model.onnx/model.onnx with its external data beside it"
_SAVED = "1/model.savedmodel/saved_model.pb"
_TENSORFLOW = f"{_SAVED}, or 1/model.graphdef"
_DALI = "1/model.dali, or 1/dali.py with an @autoserialize pipeline"
_VLLM = 'backend: "vllm"\ninstance_group { count: 1 kind: KIND_MODEL }\n'
AOTI = 'backend: "pytorch"\nplatform: "torch_aoti"\n'
"""The config of an AOTInductor package. Source: Triton core `constants.h`."""
_ENGINE = "config.pbtxt, as tensorrtllm_backend's templates make it, and 1/ with the engine"
_ROWS = (
    ModelType("onnx", "onnxruntime", "model.onnx", ".onnx", _ONNX, "model.onnx", rule=_onnx),
    ModelType("tensorrt", "tensorrt", "model.plan", ".plan .engine .trt", "1/model.plan"),
    ModelType("pytorch", "pytorch", "model.pt", ".pt .pth .pt2=model.pt2", "1/model.pt (TorchScript), or 1/model.pt2 (AOTInductor)"),
    ModelType("tensorflow", "tensorflow", "model.graphdef", ".graphdef .pb", _TENSORFLOW, "model.savedmodel", rule=_tensorflow),
    ModelType("keras", "tensorflow", "", "", _SAVED, "model.savedmodel", rule=_tensorflow),
    ModelType("openvino", "openvino", "model.xml", ".xml", "1/model.xml and 1/model.bin", rule=_openvino),
    ModelType("python", "python", "model.py", ".py", "1/model.py", rule=_with_the_rest),
    ModelType("fil", "fil", "", _FORESTS, _ANY_FOREST),
    ModelType("xgboost", "fil", "", f"{_XGBOOST} .bst=xgboost.model", "1/xgboost.json, 1/xgboost.ubj or 1/xgboost.model"),
    ModelType("lightgbm", "fil", "model.txt", ".txt .bst .lgb", "1/model.txt, as LightGBM's save_model writes it"),
    ModelType("sklearn", "fil", "", ".tl=checkpoint.tl", "1/checkpoint.tl, a Treelite checkpoint of the model"),
    ModelType("dali", "dali", "model.dali", ".dali .py=dali.py", _DALI, config='backend: "dali"\n'),
    ModelType("vllm", "vllm", "model.json", ".json", "1/model.json, the arguments of the vLLM engine", "", _VLLM, _with_the_rest),
    ModelType("tensorrtllm", "tensorrtllm", expected=_ENGINE, rule=_no_config),
    ModelType("ensemble", "ensemble", expected="config.pbtxt and 1/", rule=_no_config),
)
TYPES = {row.name: row for row in _ROWS}
_ALIASES = {"tensorrt-llm": "tensorrtllm", "tensorrt_llm": "tensorrtllm", "trtllm": "tensorrtllm"}


def model_type(text: str) -> ModelType:
    """The row of a type as anyone may write it: `onnx`, `ONNX:1.12`, `mt:onnx:1|…`."""
    name = text.strip().lower().removeprefix("mt:").partition(":")[0].strip()
    return TYPES.get(_ALIASES.get(name, name), UNKNOWN)
