"""
Bundles: one ModelMesh model whose directory holds several Triton models, an ensemble or a BLS pipeline.

A directory is a bundle in one of two forms. Beside a config.pbtxt that names other models (steps of an
ensemble, or `bls_model.` parameters, see `references`) lie directories with a config.pbtxt of their
own: the directory itself is the *top model*, and those directories are its *inner models*. Or it has no config and
no model file, and at least two of its directories are native models (one with a config.pbtxt): then
the top model is the one that names others and is named by none, or the one that
the parameter `adapter.topModel` says.

The top model takes the model id, an inner one the name `<id>~inner~<directory>`. Ids with that infix are
refused, so inner models of two bundles never meet, nor any other model. Every name of an inner model
in a config is rewritten; a name that is not in the bundle is refused. Triton loads the composing
models of an ensemble with it; the other models, which BLS calls, must be loaded before the top model.

Pure: knows a listing and the contents of its configs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice

from adapter.errors import InvalidModel, some
from adapter.layout import model_config, native, schema
from adapter.layout.model_config import FILE_NAME, ModelConfig
from adapter.layout.model_types import TYPES, UNKNOWN, model_type
from adapter.layout.tree import LayoutError, Tree, is_odd, is_residue, is_version, shortened
from adapter.model import MAX_ID_BYTES, Layout, ModelSpec, SourceFile, inner_name
from adapter.parameters import TOP_MODEL
from adapter.paths import path_problem

EXPECTED = "one directory with config.pbtxt and 1/ for each model, and one model that names the others"
EXAMPLE = ("pipeline/config.pbtxt", "first_step/config.pbtxt", "first_step/1/…", "second_step/config.pbtxt", "second_step/1/…")
MOST_MODELS = 100
"""Of one bundle; each has a config to be read before anything is pulled. What has more is not taken for a bundle."""

MOST_CONFIG_BYTES = 4 * 1024 * 1024
"""Of the configs of one bundle together. A parsed one takes up to 80 times its size."""

_MOST_HINTS = 3
_ITSELF = ""
"""Stands for the directory of the bundle, where that is the top model."""
_MODEL_FILES = frozenset(name for kind in TYPES.values() for name in (*kind.file_names, kind.directory_name) if name)


@dataclass(frozen=True)
class Bundle:
    """Directory → config of each model; the bundle's own directory has the name ''."""

    top: str
    configs: Mapping[str, ModelConfig]
    tree: Tree


def configs_to_read(tree: Tree) -> tuple[SourceFile, ...]:
    """The configs of what may be inner models; none where the paths alone say that this is no bundle."""
    if FILE_NAME not in tree.file_names and any(name in _MODEL_FILES for name in tree.names):
        return ()
    natives = list(islice(_natives(tree), MOST_MODELS + 1))
    configs = tuple(file for name in natives if (file := tree.files.get(f"{name}/{FILE_NAME}")))
    is_alone = FILE_NAME not in tree.file_names and len(natives) < 2
    return () if is_alone or len(natives) > MOST_MODELS else configs


def check_size(configs: tuple[SourceFile, ...]) -> None:
    """Make sure that the configs of the inner models can be held at once. Raises InvalidModel."""
    if (total := sum(file.size_bytes for file in configs)) > MOST_CONFIG_BYTES:
        raise InvalidModel(f"the {len(configs)} files {FILE_NAME} of this bundle have {total} bytes, more than {MOST_CONFIG_BYTES}")


def looks_like(tree: Tree, config: ModelConfig | None) -> bool:
    """Whether the files are a bundle, given the config at the top."""
    return bool(configs_to_read(tree)) and (config is None or bool(config.references))


def read(spec: ModelSpec, tree: Tree, config: ModelConfig | None, contents: Mapping[SourceFile, bytes]) -> Bundle:
    """
    The bundle that the files are; `contents` has the configs of `configs_to_read`.

    Raises:
        LayoutError: the top model cannot be told.
        InvalidModel: a config cannot be read.
    """
    if config is not None:
        names = [name for name in _natives(tree) if tree.files.get(f"{name}/{FILE_NAME}")]
        return Bundle(_ITSELF, {_ITSELF: config} | {name: _config(tree, name, contents) for name in names}, tree)
    configs = {name: _config(tree, name, contents) for name in _natives(tree)}
    return Bundle(_top(spec, configs), configs, tree)


def arranged(spec: ModelSpec, bundle: Bundle, schema_content: bytes | None) -> Layout:
    """
    The layout of the top model, with the layouts of the inner models in it.

    Raises:
        LayoutError: a model of it could not be loaded, or names one that is not there.
        InvalidModel: the schema does not go with the top model's config.
    """
    names = {name: inner_name(spec.model_id, name) for name in bundle.configs if name != bundle.top}
    if long := [name for name, full in names.items() if len(full.encode("utf-8", "surrogatepass")) > MAX_ID_BYTES]:
        raise LayoutError(
            f"the model id and the directory name {shortened(long[0])} are too long together for a name of {MAX_ID_BYTES} bytes"
        )
    _check_references(bundle, {**names, bundle.top: spec.model_id})
    layouts = {}
    for directory, config in bundle.configs.items():
        is_top = directory == bundle.top
        tensors = schema.read(schema_content, config.said.max_batch_size) if is_top and schema_content is not None else None
        tree = _own_tree(bundle, directory)
        kind = model_type(spec.model_type) if directory == _ITSELF else UNKNOWN
        name = spec.model_id if is_top else names[directory]
        try:
            layouts[directory] = native.arranged(kind, name, config, tensors, tree, names=names)
        except LayoutError as error:
            raise LayoutError(f"{shortened(directory)}: {error}" if directory else str(error)) from error
    inner = {names[directory]: layout for directory, layout in layouts.items() if directory != bundle.top}
    first = tuple(names[directory] for directory in _loaded_first(bundle))
    told = sorted(_with_top(bundle))
    warnings = tuple(_of(directory, warning) for directory in told for warning in layouts[directory].warnings)[:_MOST_HINTS]
    hints = [_of(directory, layout.hint) for directory, layout in layouts.items() if layout.hint]
    return replace(layouts[bundle.top], inner=inner, loaded_first=first, hint="; ".join(hints[:_MOST_HINTS]), warnings=warnings)


def _of(directory: str, words: str) -> str:
    return f"{shortened(directory)}: {words}" if directory else words


def _natives(tree: Tree) -> Iterator[str]:
    """The directories at the top that are laid out as models; one without a config needs a version."""
    for name in tree.directory_names:
        if not (is_residue(name) or is_version(name) or is_odd(name) or path_problem(name)):
            inner = tree.below(name)
            if FILE_NAME in inner.file_names or any(map(is_version, inner.directory_names)):
                yield name


def _config(tree: Tree, name: str, contents: Mapping[SourceFile, bytes]) -> ModelConfig:
    file = tree.files.get(f"{name}/{FILE_NAME}")
    return ModelConfig() if file is None else model_config.read(contents[file], f"{name}/{FILE_NAME}")


def _top(spec: ModelSpec, configs: Mapping[str, ModelConfig]) -> str:
    """The model that is asked for inference."""
    if spec.top_model:
        if spec.top_model not in configs:
            raise LayoutError(f"{TOP_MODEL.name} names {shortened(spec.top_model)}, and the models here are {_listed(configs)}")
        return spec.top_model
    named = {reference.name for config in configs.values() for reference in config.references}
    tops = [name for name, config in configs.items() if config.references and name not in named]
    if len(tops) == 1:
        return tops[0]
    raise LayoutError(
        f"this directory holds {len(configs)} models, and any of {_listed(tops or configs)} could be the one that is asked for inference; "
        f"name that one in storage_params: {TOP_MODEL.name}"
    )


def _check_references(bundle: Bundle, names: Mapping[str, str]) -> None:
    for directory, config in bundle.configs.items():
        for reference in config.references:
            if reference.name not in names or reference.name == _ITSELF:
                where = f"{directory}/{FILE_NAME}" if directory else FILE_NAME
                raise LayoutError(
                    f"{reference.where} in {where} names {shortened(reference.name)}, "
                    f"and the models here are {_listed(name for name in names if name)}"
                )
            if reference.name == bundle.top:
                raise LayoutError(f"{reference.where} in {directory}/{FILE_NAME} names {bundle.top}, which is the top model of the bundle")


def _own_tree(bundle: Bundle, directory: str) -> Tree:
    if directory != _ITSELF:
        return bundle.tree.below(directory)
    return bundle.tree.without(*(f"{name}/" for name in bundle.configs))


def _with_top(bundle: Bundle) -> set[str]:
    """The top model, and those that steps lead to from it: Triton loads them together, and one that is decoupled makes all of it so."""
    with_top = {bundle.top}
    pending = [bundle.top]
    while pending:
        steps = {reference.name for reference in bundle.configs[pending.pop()].references if reference.is_step}
        pending += steps - with_top
        with_top |= steps
    return with_top


def _loaded_first(bundle: Bundle) -> list[str]:
    """Inner models that no step leads to from the top model; a model that is called comes before its caller."""
    with_top = _with_top(bundle)
    ordered: list[str] = []
    seen: set[str] = set()

    def visit(directory: str) -> None:
        if directory not in seen:
            seen.add(directory)
            for reference in bundle.configs[directory].references:
                visit(reference.name)
            ordered.append(directory)

    for directory in bundle.configs:
        visit(directory)
    return [directory for directory in ordered if directory not in with_top]


def _listed(names: Iterable[str]) -> str:
    return some([shortened(name) for name in sorted(names)], 10)
