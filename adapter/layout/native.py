"""
Native repositories: directories that have a config.pbtxt and are laid out for Triton already.

Their entries keep their places; only the config is rewritten. Owns which versions are pulled and what
must be there before Triton may look. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from adapter.layout import backends, fil, model_config
from adapter.layout.model_config import ModelConfig
from adapter.layout.model_types import ModelType
from adapter.layout.schema import Schema
from adapter.layout.tree import RULE, LayoutError, Tree, is_odd, is_residue, is_version, shortened
from adapter.model import Layout, Question

_FILES_ELSEWHERE = frozenset({"tensorrtllm"})
"""Backends whose version directory may be empty: a parameter of the config says where the engine is."""


def arranged(
    kind: ModelType, name: str, config: ModelConfig, schema: Schema | None, tree: Tree, *, names: Mapping[str, str] | None = None
) -> Layout:
    """
    The tree without the versions that Triton will not serve, and with the config rewritten for this name.

    `names` are new ones for other models.

    Raises:
        LayoutError: nothing that Triton could load, or something that would wedge it.
        InvalidModel: the schema does not go with the config.
    """
    served = _served(config, tree)
    kept = frozenset(served)
    left = [name for name in tree.directory_names if _misleads(config, name) or (is_version(name) and name not in kept)]
    rest = tree.without(model_config.FILE_NAME, *(f"{name}/" for name in left))
    backends.check(kind, name, config, rest, served)
    written = config.rewritten(schema, names)
    final = config if schema is None else model_config.read(written)
    return Layout(
        links=dict(rest.files),
        written={model_config.FILE_NAME: written},
        directories=() if served else (_empty_version(config),),
        hint=backends.hint(kind, name, final, rest.below(served[0]) if served else Tree({})),
        warnings=backends.warnings(config),
        questions=_questions(final, rest, served) if config.said.backend == fil.BACKEND else (),
    )


def _questions(config: ModelConfig, tree: Tree, served: tuple[str, ...]) -> tuple[Question, ...]:
    """Of forests: whether the config makes room for what they give; see `fil`."""
    name = fil.file_of(config)
    paths = [f"{version}/{name}" for version in served]
    return tuple(Question(path, partial(fil.fits, config, path)) for path in paths if name and path in tree.files)


def _misleads(config: ModelConfig, directory: str) -> bool:
    """
    Whether Triton would look for the backend in a directory that tools left behind (`.cache`).

    It looks into the one whose name sorts first, and finds none: "failed to poll from model repository".
    """
    return is_residue(directory) and not config.says_backend and not config.is_ensemble


def _served(config: ModelConfig, tree: Tree) -> tuple[str, ...]:
    """The versions that Triton will load; none for an ensemble that brought no directory."""
    if odd := [name for name in tree.directory_names if is_odd(name)]:
        raise LayoutError(f"Triton would misread {_directories(odd)}: {RULE}")
    versions = [name for name in tree.directory_names if is_version(name)]
    if versions:
        served = config.served(versions)
        if not served:
            raise LayoutError(f"version_policy asks for {config.policy}, and there is only {_directories(versions)}")
        return served
    if config.is_ensemble or config.said.backend in _FILES_ELSEWHERE:
        return ()
    if files := [name for name in tree.file_names if is_version(name)]:
        raise LayoutError(f"{files[0]} is a file, a version directory is expected")
    raise LayoutError("there is no version directory beside config.pbtxt")


def _empty_version(config: ModelConfig) -> str:
    """Name of the version directory to make; object stores keep no empty ones."""
    wanted = [str(version) for version in config.said.version_policy.specific.versions or (1,) if is_version(str(version))]
    if not wanted or not config.served(wanted):
        raise LayoutError(f"version_policy asks for {config.policy}, and there is no version directory")
    return wanted[0]


def _directories(names: list[str]) -> str:
    shown = ", ".join(map(shortened, names[:5])) + (", …" if len(names) > 5 else "")
    return f"director{'y' if len(names) == 1 else 'ies'} {shown}"
