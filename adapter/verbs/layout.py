"""
A look at a model before it is uploaded: what would be placed for Triton, or why nothing can be.

Puts a folder's listing and the rules of layouts together without a store, a volume or a Triton. Owns
the picture in the terminal: trees of paths, and the config that would be written. Decides
nothing: `layout.rules` says what fits, and `storage.mounted` what lies there.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from dataclasses import replace

from adapter import parameters
from adapter.errors import InvalidModel, some
from adapter.layout import rules
from adapter.layout.model_types import TYPES, UNKNOWN, model_type
from adapter.layout.tree import LayoutError
from adapter.model import Layout, ModelSpec, SourceFile, id_problem
from adapter.storage.mounted.local import list_folder
from adapter.storage.search import check_readable
from adapter.volume.trees import read_ends

MOST_ENTRIES = 20
"""Of one directory; the others are counted."""


def examine(chosen: Namespace) -> tuple[bool, str]:
    """
    Lay a folder, or one file, out as `loadModel` would: path, type, model_id, schema, top_model and allow_decoupled are chosen.

    Returns:
        Whether it fits, and what was found out, in words and pictures.

    Raises:
        AdapterError: there is nothing to look at.
        OSError: a file cannot be read.
    """
    path, type_name, schema = chosen.path, chosen.type, chosen.schema
    head = f"{path} as a model of type {type_name or '(none)'}\n"
    if type_name and model_type(type_name) is UNKNOWN:
        head += f"note: {type_name} is not one of the types {', '.join(sorted(TYPES))}: files keep their names\n"
    paths: list[str] = []
    try:
        listing = list_folder(path)
        paths = [file.path for file in listing.files]
        root = path.parent if listing.is_single_file else path
        spec = ModelSpec(
            model_id=chosen.model_id if chosen.model_id is not None else "model" if id_problem(listing.name) else listing.name,
            model_type=type_name,
            path=listing.origin,
            allow_decoupled=chosen.allow_decoupled,
            **parameters.split({} if chosen.top_model is None else {parameters.TOP_MODEL.name: chosen.top_model})[0],
        )
        if schema is not None:
            listing = replace(listing, schema=SourceFile(schema.name, schema.stat().st_size, ""))
        contents = {}
        for file in rules.wanted(listing):
            check_readable(file, listing.origin)
            contents[file] = (schema if file is listing.schema else root / file.path).read_bytes()
        layout = rules.plan(spec, listing, contents)
        found = rules.finished(layout, {file: read_ends(root / file.path, lambda: None) for file in rules.asked(layout)})
    except InvalidModel as error:
        return False, head + _refusal(error, paths)
    used = {*found.files, *contents}
    left = [file.path for file in listing.files if file not in used]
    return True, head + _plan(spec.model_id, paths, left, found)


def _refusal(error: InvalidModel, paths: list[str]) -> str:
    """Where the tree is what is wrong, with that tree and what would have worked."""
    reason, found = error.__cause__, _drawn("found", dict.fromkeys(paths, ""))
    if isinstance(reason, LayoutError):
        return f"\nthe model cannot be loaded: {reason}\n\n{found}\nTriton expects {reason.expected}\n"
    return f"\nthe model cannot be loaded: {error.text}\n"


def _plan(name: str, paths: list[str], left: list[str], found: Layout) -> str:
    """Both trees, each config, and what the author should know."""
    placed: dict[str, str] = {}
    blocks = []
    for model, part in {name: found, **found.inner}.items():
        placed |= {f"{model}/{path}": "" if path == file.path else f"<- {file.path}" for path, file in part.links.items()}
        placed |= {f"{model}/{path}": "(written)" for path in part.written} | {f"{model}/{path}/": "" for path in part.directories}
        if not part.written:
            blocks.append(f"{model}/config.pbtxt: none; Triton tells the backend from the files' names\n")
        for path, content in part.written.items():
            lines = content.decode(errors="replace").splitlines() or ["(empty)"]
            blocks.append("\n".join([f"{model}/{path}:", *(f"  {line}".rstrip() for line in lines)]) + "\n")
    blocks += [f"warning: {warning}\n" for warning in found.warnings]
    blocks += [f"warning: Triton may refuse this model: {found.hint}\n"] if found.hint else []
    blocks += [f"not placed: {some(left, MOST_ENTRIES)}\n"] if left else []
    return "\n".join(["", _drawn("found", dict.fromkeys(paths, "")) + _drawn("placed", placed), *blocks])


def _drawn(title: str, paths: Mapping[str, str]) -> str:
    return "\n  ".join([f"{title}:", *(_tree(paths) or ["(nothing)"])]) + "\n"


def _tree(paths: Mapping[str, str]) -> list[str]:
    """Paths as an indented tree, each with its note; a path that ends in `/` is a directory."""
    entries: dict[str, dict[str, str]] = {}
    for path, note in paths.items():
        name, slash, rest = path.partition("/")
        inner = entries.setdefault(name + slash, {})
        if rest or not slash:
            inner[rest] = note
    lines = []
    names = sorted(entries, key=lambda name: (not name.endswith("/"), name))
    for name in names[:MOST_ENTRIES]:
        shown = "".join(letter if letter.isprintable() else "?" for letter in name)
        lines.append(f"{shown}  {entries[name].get('', '')}".rstrip())
        lines += ["  " + line for line in _tree(entries[name])] if name.endswith("/") else []
    return lines + ([f"… and {len(names) - MOST_ENTRIES} more"] if len(names) > MOST_ENTRIES else [])
