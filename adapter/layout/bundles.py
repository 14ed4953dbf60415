"""
Models that bring a config.pbtxt: native repositories, laid out for Triton already, and bundles of them.

The entries of a native model keep their places; only the config is rewritten. Says which versions are pulled and what must be
there before Triton may look.

A *bundle* is one ModelMesh model whose directory holds several Triton models, an ensemble or a BLS pipeline, in one of two
forms. Beside a config.pbtxt that names other models (steps of an ensemble, or `bls_model.` parameters, see `references`) lie
directories with a config.pbtxt of their own: the directory itself is the *top model*, and those directories are its *inner
models*. Or it has no config and no model file, and at least two of its directories are native models (one with a
config.pbtxt): then the top model is the one that names others and is named by none, or the one that the parameter
`adapter.topModel` says.

The top model takes the model id, an inner one the name `<id>~inner~<directory>`. Ids with that infix are
refused, so inner models of two bundles never meet, nor any other model. Every name of an inner model
in a config is rewritten; a name that is not in the bundle is refused. Triton loads the composing
models of an ensemble with it; the other models, which BLS calls, must be loaded before the top model.

Pure: knows a listing and the contents of its configs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter

from adapter.errors import some
from adapter.layout import backends, model_config, schema
from adapter.layout.model_config import FILE_NAME, ModelConfig
from adapter.layout.model_types import TYPES, UNKNOWN, ModelType, model_type
from adapter.layout.tree import RULE, LayoutError, Tree, is_odd, is_residue, is_version, shortened, shown
from adapter.model import MAX_ID_BYTES, Layout, ModelSpec, SourceFile, inner_name
from adapter.parameters import TOP_MODEL

EXPECTED = "one directory with config.pbtxt and 1/ for each model, and one model that names the others"
MOST_MODELS = 100
"""Of one bundle; each has a config to be read before anything is pulled. What has more is not taken for a bundle."""

MOST_CONFIG_BYTES = 4 * 1024 * 1024
"""Of the configs of one bundle together. A parsed one takes up to 80 times its size."""

_MOST_HINTS = 3
_DECOUPLED = f"the model is decoupled: {backends.DECOUPLED}; ask Triton itself, or serve a model that is not decoupled"
_ALONE = "describes a model, but there is no model file beside it; the model path must be the directory of both"
_ITSELF = ""
"""Stands for the directory of the bundle, where that is the top model."""
_MODEL_FILES = frozenset(name for kind in TYPES.values() for name in (*kind.file_names, kind.directory_name) if name)


def candidates(tree: Tree) -> Mapping[str, SourceFile | None]:
    """Directory → config of what may be models: '' for the directory itself, then inner ones; those not where the paths say that."""
    own = {_ITSELF: tree.files[FILE_NAME]} if FILE_NAME in tree.file_names else {}
    if not own and any(name in _MODEL_FILES for name in tree.names):
        return {}
    found: dict[str, SourceFile | None] = {}
    for name in tree.directory_names:
        if not (is_residue(name) or is_version(name) or is_odd(name)):
            inner = tree.below(name)
            if FILE_NAME in inner.file_names or any(map(is_version, inner.directory_names)):  # one without a config needs a version
                found[name] = inner.files.get(FILE_NAME)
    is_bundle = (own or len(found) > 1) and len(found) <= MOST_MODELS and any(found.values())
    return own | found if is_bundle else own


def read(tree: Tree, contents: Mapping[SourceFile, bytes]) -> Mapping[str, ModelConfig]:
    """
    Directory → config of each model, '' for the directory itself: none, one, or those of a bundle.

    Raises:
        InvalidModel: a config cannot be read.
    """
    configs: dict[str, ModelConfig] = {}
    for name, file in candidates(tree).items():
        if file is not None or _ITSELF not in configs:
            configs[name] = model_config.read(b"" if file is None else contents[file], _path(name))
        if name == _ITSELF and not configs[name].references:
            break
    return configs


def _path(directory: str) -> str:
    return f"{directory}/{FILE_NAME}" if directory else FILE_NAME


def arranged(spec: ModelSpec, tree: Tree, configs: Mapping[str, ModelConfig], schema_content: bytes | None) -> Layout:
    """
    The layout of the model, or of the top model with the layouts of the inner ones in it.

    Raises:
        LayoutError: a model of it could not be loaded, or names one that is not there.
        InvalidModel: the schema does not go with the top model's config.
    """
    top = _ITSELF if _ITSELF in configs else _top(spec, configs)
    names = {name: inner_name(spec.model_id, name) for name in configs if name != top}
    if long := [name for name, full in names.items() if len(full.encode("utf-8", "surrogatepass")) > MAX_ID_BYTES]:
        raise LayoutError(f"the model id and the directory name {shown(long, 1)} are too long together for a name of {MAX_ID_BYTES} bytes")
    if names:
        _check_references(top, configs)
    layouts = {}
    for directory, config in configs.items():
        content = schema_content if directory == top else None
        own = tree.below(directory) if directory else tree.without(*names)
        kind = UNKNOWN if directory else model_type(spec.model_type)
        try:
            layouts[directory] = native(kind, names.get(directory, spec.model_id), config, content, own, names=names)
        except LayoutError as error:
            raise LayoutError(_of(directory, str(error))) from error
    if not names:
        return layouts[top]
    order, with_top = _callers_last(configs), {top}
    for name in reversed(order):  # Triton loads what steps lead to together; one that is decoupled makes all of it so
        if name in with_top:
            with_top.update(reference.name for reference in configs[name].references if reference.is_step)
    warnings = [_of(directory, warning) for directory in sorted(with_top) for warning in layouts[directory].warnings]
    hints = [_of(directory, layout.hint) for directory, layout in layouts.items() if layout.hint]
    return replace(
        layouts[top],
        inner={full: layouts[name] for name, full in names.items()},
        loaded_first=tuple(names[name] for name in order if name not in with_top),
        hint="; ".join(hints[:_MOST_HINTS]),
        warnings=tuple(warnings[:_MOST_HINTS]),
    )


def _of(directory: str, words: str) -> str:
    return f"{shortened(directory)}: {words}" if directory else words


def _top(spec: ModelSpec, configs: Mapping[str, ModelConfig]) -> str:
    """The model that is asked for inference."""
    if spec.top_model:
        if spec.top_model not in configs:
            raise LayoutError(f"{TOP_MODEL.name} names {shortened(spec.top_model)}, and the models here are {shown(configs)}")
        return spec.top_model
    named = {reference.name for config in configs.values() for reference in config.references}
    tops = [name for name, config in configs.items() if config.references and name not in named]
    if len(tops) > 1:  # TensorRT-LLM brings an ensemble and a BLS model over the same models
        tops = [name for name in tops if model_config.TENSORRT_LLM_KEY not in configs[name].said.parameters] or tops
    if len(tops) == 1:
        return tops[0]
    raise LayoutError(
        f"this directory holds {len(configs)} models, and any of {shown(tops or configs)} could be the one that is asked for inference; "
        f"name that one in storage_params: {TOP_MODEL.name}"
    )


def _check_references(top: str, configs: Mapping[str, ModelConfig]) -> None:
    for directory, config in configs.items():
        for reference in config.references:
            where = f"{reference.where} in {_path(directory)}"
            if reference.name not in configs or reference.name == _ITSELF:
                raise LayoutError(f"{where} names {shortened(reference.name)}, and the models here are {shown(filter(None, configs))}")
            if reference.name == top:
                raise LayoutError(f"{where} names {top}, which is the top model of the bundle")


def _callers_last(configs: Mapping[str, ModelConfig]) -> tuple[str, ...]:
    """A model that is called comes before its caller."""
    try:
        called = {directory: [reference.name for reference in config.references] for directory, config in configs.items()}
        return tuple(TopologicalSorter(called).static_order())
    except CycleError as error:
        raise LayoutError(f"these models call each other: {shown(set(error.args[1]))}") from error


def native(
    kind: ModelType, name: str, config: ModelConfig, schema_content: bytes | None, tree: Tree, *, names: Mapping[str, str] = {}
) -> Layout:
    """
    The tree without the versions that Triton will not serve, and with the config rewritten for this name.

    `names` are new ones for other models.

    Raises:
        LayoutError: nothing that Triton could load, or something that would wedge it.
        InvalidModel: the schema does not go with the config.
    """
    served, made = _served(config, tree)
    kept = frozenset(served)
    # Triton looks for the backend in the directory whose name sorts first: `.cache` has none, and ends in "failed to poll".
    is_sought = not (config.backend() or config.said.default_model_filename)
    left = [name for name in tree.directory_names if (is_sought and is_residue(name)) or (is_version(name) and name not in kept)]
    rest = tree.without(FILE_NAME, *left)
    backends.check(kind, name, config, rest, served)
    written = config.rewritten(schema.read(schema_content, config.said.max_batch_size), names)
    final = config if schema_content is None else model_config.read(written, f"the {FILE_NAME} that the schema makes")
    return Layout(
        links=dict(rest.files),
        written={FILE_NAME: written},
        directories=made,
        copies=config.copies(kind.backend),
        gpus=config.gpus(kind.backend),
        hint=backends.hint(kind, final, rest.below(served[0])),
        warnings=(_DECOUPLED,) if config.said.backend == "vllm" or config.said.model_transaction_policy.decoupled else (),
        questions=backends.forest_questions(final, rest, served),
    )


def _served(config: ModelConfig, tree: Tree) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The versions that Triton will load, and the one to make where an ensemble brought none: object stores keep no empty directory."""
    if odd := [name for name in tree.directory_names if is_odd(name)]:
        raise LayoutError(f"Triton would misread {_directories(odd)}: {RULE}")
    versions = [name for name in tree.directory_names if is_version(name)]
    made: tuple[str, ...] = ()
    if not versions:
        if not (config.is_ensemble or config.said.backend == "tensorrtllm"):  # a parameter says where its engine is
            if len(tree.files) == 1:
                raise LayoutError(f"{FILE_NAME} {_ALONE}")
            file = next(filter(is_version, tree.file_names), None)
            is_file = file and f"{file} is a file, a version directory is expected"
            raise LayoutError(is_file or f"there is no version directory beside {FILE_NAME}")
        made = tuple(filter(is_version, map(str, config.said.version_policy.specific.versions or (1,))))[:1]
    if served := config.served(versions or made):
        return served, made
    policy, found = config.said.version_policy, f"only {_directories(versions)}" if versions else "no version directory"
    named = f"specific versions {some([*map(str, policy.specific.versions)], 10) or '(none)'}"
    asked = named if policy.HasField("specific") else f"the latest {policy.latest.num_versions}"
    raise LayoutError(f"version_policy asks for {asked}, and there is {found}")


def _directories(names: list[str]) -> str:
    return f"director{'y' if len(names) == 1 else 'ies'} {shown(names, 5)}"
