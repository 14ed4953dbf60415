"""
From the files of a store to the tree that Triton loads: which files, under which names, which config.

Owns the order of the steps and the texts of what does not fit. A model is a *native repository* (it
has a config.pbtxt), a *version tree* (all its directories are numbers, or links to them and what such
links lead to; files beside them stay there), or the files of one version.
Pure: no I/O; the caller reads the small files that `wanted` names, fetches what `plan` returns, and places what
`finished` makes of it.

Invariant: a layout links only files of its listing, at relative paths without `..`, no path is both
file and directory, and whatever looks like a number at its top is a version that Triton reads so.

Source: kserve/modelmesh-runtime-adapter (archived), `model-mesh-triton-adapter/server/adaptmodellayout.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import islice

from adapter.errors import InvalidModel
from adapter.layout import backends, bundles, model_config, schema
from adapter.layout.model_config import FILE_NAME, ModelConfig
from adapter.layout.model_types import AOTI, TYPES, UNKNOWN, ModelType, is_recognised, model_type
from adapter.layout.tree import RULE, LayoutError, Tree, clash, is_odd, is_residue, is_version, shortened, shown
from adapter.model import CHAT_PATHS, OPTIONS_FILE, Layout, Listing, ModelSpec, SourceFile
from adapter.parameters import ALLOW_DECOUPLED
from adapter.paths import path_problem
from adapter.volume.trees import Ends

MOST_WRAPPERS = 4
"""The number of directories that are looked at, the outermost one included."""
SCHEMA_FILE = "_schema.json"
"""ModelMesh's own name for a schema in the model's directory; never part of the model."""
_ALLOWED = f'set {ALLOW_DECOUPLED.name} to "true" in its storage_params, or give it a config.pbtxt'


def wanted(listing: Listing, spec: ModelSpec | None = None) -> tuple[SourceFile, ...]:
    """
    The small files whose content `plan` needs: the config.pbtxt of a directory, the configs of a bundle's models, and the schema.

    Of a model in a folder of another program (`spec.folders`) also those in a directory that wraps it.

    Raises:
        InvalidModel: the configs of a bundle are too long together.
    """
    configs = list(filter(None, bundles.candidates(_tree(listing, spec)).values()))
    if (total := sum(file.size_bytes for file in configs)) > bundles.MOST_CONFIG_BYTES and len(configs) > 1:
        raise InvalidModel(f"the {len(configs)} files {FILE_NAME} of this bundle have {total} bytes, more than {bundles.MOST_CONFIG_BYTES}")
    return (*configs, *filter(None, [listing.schema]))


def plan(spec: ModelSpec, listing: Listing, contents: dict[SourceFile, bytes]) -> Layout:
    """
    Choose the files to serve and arrange them, given the contents of every file in `wanted(listing)`.

    Raises:
        InvalidModel: Triton could not serve these files; says what is wrong, what was found and what is expected.
    """
    if spec.schema_path and listing.schema is None:
        raise InvalidModel(f"the schema {shortened(spec.schema_path)} was not found")
    tree = _tree(listing, spec)
    schema_content = None if listing.schema is None else contents[listing.schema]
    _check_paths(file.path for file in listing.files)
    configs = bundles.read(tree, contents)
    try:
        if configs:
            layout = bundles.arranged(spec, tree, configs, schema_content)
        else:
            layout = _arranged(spec, tree, schema_content, is_single_file=listing.is_single_file)
        fronts = {OPTIONS_FILE, *(name for name, paths in CHAT_PATHS.items() if layout.links.keys().isdisjoint(paths))}
        links = {file.path: file for file in listing.files if file.path in fronts}  # of the whole, where the model has none
        layout = replace(
            layout,
            links={**links, **layout.links},
            gpus=max(part.gpus for part in (layout, *layout.inner.values())),
            concurrency=min((config.concurrency for config in configs.values() if not config.is_ensemble), default=0),
        )
        for part in (layout, *layout.inner.values()):
            _check_placed(part)
    except LayoutError as error:
        error.expected = _expected(model_type(spec.model_type), configs)
        found = shown(file.path for file in listing.files)
        raise InvalidModel(f"{error}; found {found}; Triton expects {error.expected}") from error
    return layout


def asked(layout: Layout) -> tuple[SourceFile, ...]:
    """The files whose ends `finished` needs, each once; none where the layout is finished."""
    return tuple({part.links[path]: None for part in (layout, *layout.inner.values()) for path in part.questions})


def finished(layout: Layout, answers: Mapping[SourceFile, Ends]) -> Layout:
    """
    The layout as it is placed, given what was read of every file in `asked(layout)`.

    Raises:
        InvalidModel: Triton could not serve such content.
    """
    inner = {name: finished(part, answers) for name, part in layout.inner.items()}
    links, written = dict(layout.links), dict(layout.written)
    for asked_path, decide in layout.questions.items():
        file = links.pop(asked_path)
        path, more = decide(answers[file])
        if path in links:
            raise InvalidModel(f"{shortened(file.path)} would be placed as {path}, which is there already")
        links[path] = file
        written |= more
    done = replace(layout, links=links, written=written, inner=inner, questions={})
    _check_placed(done)
    return done


def _arranged(spec: ModelSpec, tree: Tree, schema_content: bytes | None, *, is_single_file: bool) -> Layout:
    """One version of a model that brought no config."""
    kind = model_type(spec.model_type)
    directory, inner, beside = ("1", tree, Tree({})) if is_single_file else _version(kind, tree)
    if kind is UNKNOWN and backends.is_vllm(inner):
        kind = TYPES["vllm"]
    if kind.name == "vllm" and not spec.allow_decoupled:
        raise InvalidModel(f"a vLLM model is decoupled: {backends.DECOUPLED}; to load it all the same, {_ALLOWED}")
    inside = kind.rule(kind, inner, is_single_file)
    if not inside:
        raise LayoutError("there are no files of a model")
    whole = Tree({**beside.files, **inside.prefixed(directory).files})
    if kind.backend == backends.FIL:
        layout = bundles.native(kind, spec.model_id, model_config.read(b""), None, whole)
        return replace(layout, questions=backends.forest(kind, inside, directory, schema_content))
    text = kind.config or (f'backend: "{kind.backend}"\n' if kind.backend and schema_content is not None else "")
    if kind.name == "pytorch" and "model.pt" in inside.file_names:
        backends.check_positions([tensor.name for tensor in schema.read(schema_content).inputs])
    elif kind.name == "pytorch":
        text = AOTI
    layout = bundles.native(kind, spec.model_id, model_config.read(text.encode()), schema_content, whole)
    return layout if text or schema_content is not None else replace(layout, written={})


def _version(kind: ModelType, tree: Tree) -> tuple[str, Tree, Tree]:
    """
    The version to serve, its files, and the files beside the versions; 1 and all files where the directory is model data itself.

    It is a version tree when every directory is a version, or another name of one; what tools leave behind is not counted.
    """
    tree = tree.without(SCHEMA_FILE)
    repeats = _repeats(tree)
    names = [name for name in tree.directory_names if not (is_residue(name) or name in repeats)]
    versions = [name for name in names if is_version(name)]
    odd = [name for name in names if is_odd(name)]
    if not names or len(versions) + len(odd) < len(names) or (odd and is_recognised(kind, tree)):
        return "1", tree, Tree({})
    if odd:
        raise LayoutError(f"{' and '.join(map(shortened, odd[:5]))} cannot be a version directory: {RULE}")
    version = max(versions, key=int)
    beside = tree.without(*tree.directory_names, *filter(is_residue, tree.file_names))
    return version, tree.below(version).without(SCHEMA_FILE), beside


def _repeats(tree: Tree) -> set[str]:
    """
    Directories that are another name of a version: `v3` beside the link `3 -> v3`, or the link `latest -> 3`.

    A listing has the files under both names, with equal etags. What has no bytes or no etags proves nothing.
    """
    versions = {_proof(tree.below(name)) for name in tree.directory_names if is_version(name)} - {None}
    others = [name for name in tree.directory_names if versions and not (is_version(name) or is_residue(name))]
    return {name for name in others if _proof(tree.below(name)) in versions}


def _proof(tree: Tree) -> frozenset[tuple[str, str, int]] | None:
    """What files a directory has, where that says what is in them."""
    content = frozenset((path, file.etag, file.size_bytes) for path, file in tree.files.items())
    return content if all(etag for _, etag, _ in content) and any(size for *_, size in content) else None


def _expected(kind: ModelType, configs: Mapping[str, ModelConfig]) -> str:
    """What would work, in words. What a config says of itself counts more than the model type."""
    if len(configs) > 1:
        return bundles.EXPECTED
    for config in configs.values():
        expected = next((row for row in TYPES.values() if row.backend == config.backend()), kind).expected
        return expected if expected.startswith(FILE_NAME) else f"{FILE_NAME} and {expected}"
    return f"for type {kind.name} {kind.expected}" if kind.name else kind.expected


def _tree(listing: Listing, spec: ModelSpec | None) -> Tree:
    """
    The files; of a model in a folder of another program, what is in directories that hold nothing else, where that is laid out for Triton.

    An archive of `my-model/` has such a one. Of ModelMesh's models nothing is unwrapped: their layouts are those of the archived Go
    adapter.
    """
    tree = Tree({file.path: file for file in listing.files})
    levels = islice(tree.opened(OPTIONS_FILE), MOST_WRAPPERS if spec and spec.folders else 0)
    return next((inner for inner in levels if bundles.candidates(inner) or any(map(is_version, inner.directory_names))), tree)


def _check_paths(paths: Iterable[str]) -> None:
    """Raises LayoutError: no file can lie at one of these paths."""
    for path in paths:
        if problem := path_problem(path):
            raise LayoutError(f"{shortened(path)} {problem}")


def _check_placed(layout: Layout) -> None:
    """
    The last look before anything is placed.

    Raises:
        LayoutError: a path would be file and directory at once, or too long a name.
    """
    files = {*layout.links, *layout.written, *(f"{directory}/-" for directory in layout.directories)}
    _check_paths(files)
    if taken := clash(files):
        raise LayoutError(f"{shortened(taken)} would be a file and a directory at once")
