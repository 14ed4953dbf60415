"""
From the files of a store to the tree that Triton loads: which files, under which names, which config.

Owns the order of the steps and the texts of what does not fit. A model is a *native repository* (it
has a config.pbtxt), a *version tree* (all its directories are numbers, or links to them and what such
links lead to; files beside them stay there), or the files of one version.
Pure: no I/O; the caller reads the small files that `wanted` names and places what `plan` returns.

Invariant: a layout links only files of its listing, at relative paths without `..`, no path is both
file and directory, and whatever looks like a number at its top is a version that Triton reads so.

Source: kserve/modelmesh-runtime-adapter (archived), `model-mesh-triton-adapter/server/adaptmodellayout.go`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from adapter.errors import InvalidModel
from adapter.layout import bundles, defaults, model_config, native, placement, python_backend, schema
from adapter.layout.model_config import ModelConfig
from adapter.layout.model_types import TYPES, ModelType, by_backend, model_type
from adapter.layout.tree import LayoutError, Tree, is_residue, shortened, shown, tree_of
from adapter.layout.versions import RULE, is_odd, is_version
from adapter.model import Layout, Listing, ModelSpec, SourceFile
from adapter.paths import path_problem

DEFAULT_VERSION = "1"
SCHEMA_FILE = "_schema.json"
"""ModelMesh's own name for a schema in the model's directory; never part of the model."""


@dataclass(frozen=True)
class Expectation:
    """The tree that Triton expects."""

    text: str
    paths: tuple[str, ...]
    """The simplest such tree; a path that ends in `/` is a directory."""


def wanted(listing: Listing) -> tuple[SourceFile, ...]:
    """The small files whose content `plan` needs: the config.pbtxt of a directory, the configs of a bundle's models, and the schema."""
    configs: tuple[SourceFile | None, ...] = ()
    if not listing.is_single_file:
        configs = (listing.find(model_config.FILE_NAME), *bundles.configs_to_read(_unchecked(listing)))
    return tuple(file for file in (*configs, listing.schema) if file is not None)


def expectation(spec: ModelSpec, listing: Listing, contents: dict[SourceFile, bytes]) -> Expectation:
    """What would have worked, for a model that `plan` has refused."""
    config = None if listing.is_single_file else listing.find(model_config.FILE_NAME)
    try:
        known = None if config is None else model_config.read(contents[config])
    except InvalidModel:
        known = ModelConfig()
    return _BUNDLE if _is_bundle(listing, known) else _expected(model_type(spec.model_type), known)


def plan(spec: ModelSpec, listing: Listing, contents: dict[SourceFile, bytes]) -> Layout:
    """
    Choose the files to serve and arrange them, given the contents of every file in `wanted(listing)`.

    Raises:
        InvalidModel: Triton could not serve these files; says what is wrong, what was found and what is expected.
    """
    if spec.schema_path and listing.schema is None:
        raise InvalidModel(f"the schema {shortened(spec.schema_path)} was not found")
    config = None if listing.is_single_file else listing.find(model_config.FILE_NAME)
    known = None if config is None else model_config.read(contents[config])
    schema_content = None if listing.schema is None else contents[listing.schema]
    is_bundle = _is_bundle(listing, known)
    with _explained(spec, listing, known, _BUNDLE if is_bundle else None):
        tree = tree_of(listing)
        if is_bundle:
            layout = bundles.arranged(spec, bundles.read(spec, tree, known, contents), schema_content)
        elif known is not None:
            tensors = None if schema_content is None else schema.read(schema_content, known.max_batch_size)
            layout = native.arranged(model_type(spec.model_type), spec.model_id, known, tensors, tree)
        else:
            layout = _arranged(spec, tree, schema_content, is_single_file=listing.is_single_file)
        for part in (layout, *layout.inner.values()):
            _check_paths(part)
        return layout


def _arranged(spec: ModelSpec, tree: Tree, schema_content: bytes | None, *, is_single_file: bool) -> Layout:
    """One version of a model that brought no config."""
    kind = model_type(spec.model_type)
    version, inner, beside = (None, tree, Tree({})) if is_single_file else _version(kind, tree)
    directory = version or DEFAULT_VERSION
    if is_single_file and model_config.FILE_NAME in tree.files:
        raise LayoutError(
            "config.pbtxt describes a model, but there is no model file beside it; the model path must be the directory of both"
        )
    inside = Tree(placement.place(kind, inner, is_single_file=is_single_file))
    placed = Tree(inside.prefixed(directory))
    if tree and not placed:
        raise LayoutError("there are no files of a model")
    config = defaults.config(kind, inside, schema_content)
    python_backend.check(kind, spec.model_id, config or ModelConfig(), placed, (directory,))
    return Layout(
        links={**beside.files, **placed.files},
        written={} if config is None else {model_config.FILE_NAME: config.rewritten(None)},
        directories=() if placed else (f"{directory}/{kind.directory_name}".rstrip("/"),),
    )


def _version(kind: ModelType, tree: Tree) -> tuple[str | None, Tree, Tree]:
    """
    The version to serve, its files, and the files beside the versions; None and all files where the directory is model data itself.

    It is a version tree when every directory is a version, or another name of one; what tools leave behind is not counted.
    """
    tree = tree.without_file(SCHEMA_FILE)
    repeats = _repeats(tree)
    names = [name for name in tree.directory_names if not (is_residue(name) or name in repeats)]
    versions = [name for name in names if is_version(name)]
    odd = [name for name in names if is_odd(name)]
    if len(versions) + len(odd) < len(names) or not names:
        return None, tree, Tree({})
    if not odd:
        version = max(versions, key=int)
        beside = [name for name in tree.file_names if not (is_residue(name) or name in names)]
        return version, tree.below(version).without_file(SCHEMA_FILE), Tree({name: tree.files[name] for name in beside})
    if placement.is_recognised(kind, tree):
        return None, tree, Tree({})
    raise LayoutError(f"{' and '.join(map(shortened, odd[:5]))} cannot be a version directory: {RULE}")


def _repeats(tree: Tree) -> set[str]:
    """
    Directories that are another name of a version: `v3` beside the link `3 -> v3`, or the link `latest -> 3`.

    A listing has the files under both names, with equal etags. What has no bytes or no etags proves nothing.
    """
    contents: defaultdict[str, set[tuple[str, str, int]]] = defaultdict(set)
    for path, file in tree.files.items():
        name, _, below = path.partition("/")
        contents[name].add((below, file.etag, file.size_bytes))
    proof = [name for name, files in contents.items() if all(etag for _, etag, _ in files) and any(size for *_, size in files)]
    versions = [contents[name] for name in proof if is_version(name)]
    return {name for name in proof if not is_version(name) and contents[name] in versions}


@contextmanager
def _explained(spec: ModelSpec, listing: Listing, config: ModelConfig | None, expected: Expectation | None = None) -> Iterator[None]:
    """Show the tree found beside the tree expected."""
    try:
        yield
    except LayoutError as error:
        found = shown(file.path for file in listing.files)
        wanted_tree = expected or _expected(model_type(spec.model_type), config)
        raise InvalidModel(f"{error}; found {found}; Triton expects {wanted_tree.text}") from error


def _expected(kind: ModelType, config: ModelConfig | None) -> Expectation:
    """The tree that would work. What a config says of itself counts more than the model type."""
    if config is None:
        return Expectation(f"for type {kind.name} {kind.expected}" if kind.name else kind.expected, kind.example)
    if config.is_ensemble:
        return Expectation(TYPES["ensemble"].expected, TYPES["ensemble"].example)
    kind = by_backend(config.backend) or kind
    return Expectation(f"config.pbtxt and {kind.expected}", tuple(dict.fromkeys((model_config.FILE_NAME, *kind.example))))


_BUNDLE = Expectation(bundles.EXPECTED, bundles.EXAMPLE)


def _unchecked(listing: Listing) -> Tree:
    return Tree({file.path: file for file in listing.files})


def _is_bundle(listing: Listing, config: ModelConfig | None) -> bool:
    return not listing.is_single_file and bundles.looks_like(_unchecked(listing), config)


def _check_paths(layout: Layout) -> None:
    """
    The last look before anything is placed.

    Raises:
        LayoutError: a path would be file and directory at once, or too long a name.
    """
    files = {*layout.links, *layout.written}
    for path in (*files, *layout.directories):
        if problem := path_problem(path):
            raise LayoutError(f"{shortened(path)} {problem}")
        parts = path.split("/")
        for depth in range(1, len(parts)):
            if (parent := "/".join(parts[:depth])) in files:
                raise LayoutError(f"{shortened(parent)} would be a file and a directory at once")
    if taken := sorted(files.intersection(layout.directories)):
        raise LayoutError(f"{shortened(taken[0])} would be a file and a directory at once")
