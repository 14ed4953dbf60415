"""
How the files of one version of a model are named inside its version directory.

One function per way of laying out; `model_types` says which names, `rules` say which version. Owns
the answer to "which of these files is the model". Pure.

Where the archived Go adapter served a tree, ours serves the same, but for `saved_model.pb`: it is a
SavedModel whether or not variables lie beside it, and the Go adapter placed it as a GraphDef.

Source: kserve/modelmesh-runtime-adapter (archived), `model-mesh-triton-adapter/server/adaptmodellayout.go`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from adapter.layout.model_types import ModelType
from adapter.layout.tree import LayoutError, Tree, shortened
from adapter.model import SourceFile

Placed = dict[str, SourceFile]
"""Path inside the version directory → file."""

_SAVED_MODEL_FILES = ("saved_model.pb", "saved_model.pbtxt")
_KERAS_SUFFIXES = (".h5", ".hdf5", ".keras")
_PICKLE_SUFFIXES = (".pkl", ".pickle", ".joblib")
_MISSING = {
    "python": ", and Triton's python backend would wait for it for ever",
    "vllm": ' with the arguments of the vLLM engine, for instance {"model": "org/name"}',
}


def place(kind: ModelType, tree: Tree, *, is_single_file: bool) -> Placed:
    """
    Name the files of one version.

    With `is_single_file` the model path is a file: it is the model, whatever its name.

    Raises:
        LayoutError: no file can be told to be the model.
    """
    if not kind.name:
        return dict(tree.files)
    if kind.name in ("tensorrtllm", "ensemble"):
        raise LayoutError(f"a model of type {kind.name} is described by its config.pbtxt, and there is no config.pbtxt")
    return _RULES.get(kind.name, _one_file)(kind, tree, is_single_file)


def is_recognised(kind: ModelType, tree: Tree) -> bool:
    """Whether the top of this tree is plainly a model of this type."""
    names = (*kind.file_names, *(_SAVED_MODEL_FILES if kind.directory_name == "model.savedmodel" else ()))
    if not kind.file_names and not kind.directory_name:
        return bool(tree.visible.file_names)
    return any(name in tree.file_names for name in names) or _main_file(kind, tree) is not None


def _one_file(kind: ModelType, tree: Tree, _is_single_file: bool) -> Placed:
    """A model of one file with a fixed name, or one of several that tell its format; other files stay beside it."""
    inner = _entered(kind, tree).visible
    if kind.backend == "fil" and not any(name in inner.file_names for name in kind.file_names):
        _refuse_foreign_forests(kind, inner)
    chosen = _chosen_file(kind, inner)
    name = chosen if chosen in kind.file_names else kind.placed_name(chosen)
    if not name:
        raise LayoutError(f"the ending of {shortened(chosen)} does not tell which format it has; name it {' or '.join(kind.file_names)}")
    return _renamed(inner, chosen, name)


def _with_the_rest(kind: ModelType, tree: Tree, is_single_file: bool) -> Placed:
    """A file of a fixed name with everything beside it, left as it is: modules, weights of a local model, adapters, templates."""
    if is_single_file:
        return _renamed(tree, tree.file_names[0], kind.file_name)
    inner = _entered(kind, tree) if kind.name == "python" else _entered(kind, tree).visible
    if kind.file_name not in inner.file_names:
        raise LayoutError(f"there is no {kind.file_name}{_MISSING[kind.name]}")
    return dict(inner.files)


def _onnx(kind: ModelType, tree: Tree, is_single_file: bool) -> Placed:
    """A single file, or a directory in which external data lies beside the model."""
    visible = tree.visible
    if len(visible.files) == 1 and visible.file_names:
        return _one_file(kind, visible, is_single_file)
    if kind.directory_name in visible.directory_names and len(visible.names) > 1:
        return dict(visible.files)
    inner = _entered(kind, tree).visible
    return Tree(_renamed(inner, _chosen_file(kind, inner), kind.file_name)).prefixed(kind.directory_name)


def _tensorflow(kind: ModelType, tree: Tree, _is_single_file: bool) -> Placed:
    """A SavedModel, known by the name of its file, or a GraphDef."""
    inner = _entered(kind, tree).visible
    is_alone = len(inner.files) == 1 and bool(inner.file_names)
    if any(name in inner.file_names for name in _SAVED_MODEL_FILES):
        return inner.prefixed(kind.directory_name)
    _refuse_keras(inner)
    if kind.directory_name in inner.directory_names:
        return dict(inner.files)
    main = inner.file_names[0] if is_alone else _main_file(kind, inner)
    if kind.file_name and main is not None and "variables" not in inner.names:
        return _renamed(inner, main, kind.file_name)
    if is_alone:
        raise LayoutError(f"{shortened(inner.file_names[0])} is not a SavedModel")
    return inner.prefixed(kind.directory_name)


def _openvino(kind: ModelType, tree: Tree, is_single_file: bool) -> Placed:
    """The graph and its weights, which OpenVINO finds by the graph's name."""
    inner = _entered(kind, tree).visible
    graph = _chosen_file(kind, inner)
    weights = f"{graph.rpartition('.')[0] or graph}.bin"
    if weights not in inner.file_names:
        where = "; the model path must be the directory of both" if is_single_file else ""
        raise LayoutError(f"the weights {shortened(weights)} of {shortened(graph)} are not there{where}")
    return _renamed(Tree(_renamed(inner, graph, kind.file_name)), weights, "model.bin")


_RULES: dict[str, Callable[[ModelType, Tree, bool], Placed]] = {
    "python": _with_the_rest,
    "vllm": _with_the_rest,
    "onnx": _onnx,
    "tensorflow": _tensorflow,
    "keras": _tensorflow,
    "openvino": _openvino,
}
"""The other types have a model of one file."""


def _entered(kind: ModelType, tree: Tree) -> Tree:
    """Step into a directory that is the only entry; deeper ones only when a model is found there."""
    first: Tree | None = None
    inner = tree
    while not is_recognised(kind, inner):
        visible = inner.visible
        if visible.file_names or len(visible.directory_names) != 1:
            return first or tree
        inner = visible.below(visible.directory_names[0])
        first = first or inner
    return inner


def _chosen_file(kind: ModelType, tree: Tree) -> str:
    """The file that is the model."""
    if kind.file_name in tree.file_names:
        return kind.file_name
    named = [name for name in tree.file_names if name in kind.file_names]
    own = named or [name for name in tree.file_names if kind.is_own(name)]
    if len(own) > 1:
        advice = "leave one of them" if named else f"name one of them {' or '.join(kind.file_names)}"
        raise LayoutError(f"{' and '.join(map(shortened, own[:3]))} could each be the model; {advice}")
    if not own and len(tree.files) == 1:
        own = tree.file_names
    if not own:
        raise LayoutError(f"no file could be told to be the {kind.name} model")
    return own[0]


def _main_file(kind: ModelType, tree: Tree) -> str | None:
    """The only file at the top with one of the type's endings."""
    found = [name for name in tree.file_names if kind.is_own(name)]
    return found[0] if len(found) == 1 else None


def _renamed(tree: Tree, old: str, new: str) -> Placed:
    """
    The tree with one file at its top renamed.

    Raises:
        LayoutError: the new name is taken.
    """
    if old != new and new in tree.names:
        raise LayoutError(f"{shortened(old)} would be placed as {new}, which is there already")
    return {new if path == old else path: file for path, file in tree.files.items()}


def _refuse_keras(tree: Tree) -> None:
    """Keras' own formats need a conversion that runs the model's code."""
    for name in tree.file_names:
        if name.lower().endswith(_KERAS_SUFFIXES):
            call = f"import keras; keras.saving.load_model('{_plain(name, 'model.keras')}').export('model.savedmodel')"
            raise LayoutError(
                f"{shortened(name)} is a Keras file, which Triton cannot read, {_conversion(call, 'converting')} and upload the directory"
            )


def _refuse_foreign_forests(kind: ModelType, tree: Tree) -> None:
    """What users of other servers keep: pickles, and files whose ending XGBoost and LightGBM share."""
    for name in tree.file_names:
        if name.lower().endswith(_PICKLE_SUFFIXES):
            model = f"joblib.load('{_plain(name, 'model.joblib')}')"
            call = f"import joblib, treelite; treelite.sklearn.import_model({model}).serialize('checkpoint.tl')"
            raise LayoutError(f"{shortened(name)} is a pickle, which the FIL backend cannot read, {_conversion(call, 'opening')}")
        if name.lower().endswith(".bst") and ".bst" not in kind.by_suffix:
            raise LayoutError(
                f"{shortened(name)} may be XGBoost's or LightGBM's; give the type xgboost or lightgbm, or name it as one of the formats"
            )


def _plain(name: str, other: str) -> str:
    """A name that a shell and Python take as it is."""
    return name if re.fullmatch(r"[\w.-]+", name, re.ASCII) else other


def _conversion(call: str, how: str) -> str:
    return f'and {how} it here would run code that it contains; convert it with python -c "{call}"'
