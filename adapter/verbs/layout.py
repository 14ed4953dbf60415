"""
A look at a model before it is uploaded: what would be placed for Triton, or why nothing can be.

Puts a folder's listing and the rules of layouts together without a store, a volume or a Triton. Owns
the picture in the terminal: two trees side by side, and the config that would be written. Decides
nothing: `layout.rules` says what fits, and `storage.mounted` what lies there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

from adapter import parameters
from adapter.errors import AdapterError, InvalidModel, InvalidRequest, SourceError, some
from adapter.layout import rules
from adapter.layout.model_types import TYPES, UNKNOWN, model_type
from adapter.layout.tree import LayoutError
from adapter.model import Layout, Listing, ModelSpec, SourceFile, id_problem
from adapter.storage.mounted.local import list_folder
from adapter.volume.trees import read_ends

GAP = "    "
MOST_ENTRIES = 20
"""Of one directory; the others are counted."""
_DEFAULT_ID = "model"


class CannotLookError(Exception):
    """The folder, the schema or the id cannot be used at all; one sentence says why."""


def examine(
    path: Path, *, type_name: str, model_id: str | None, schema_path: Path | None, params: Mapping[str, str], columns: int
) -> tuple[bool, str]:
    """
    Lay a folder, or one file, out as `loadModel` would with these storage parameters, of which the adapter's own count.

    Returns:
        Whether it fits, and what was found out, in words and pictures.

    Raises:
        CannotLookError: there is nothing to look at.
    """
    try:
        listing = list_folder(path)
        root = path.parent if listing.is_single_file else path
        spec = ModelSpec(
            model_id=model_id if model_id is not None else _DEFAULT_ID if id_problem(listing.name) else listing.name,
            model_type=type_name,
            path=listing.origin,
            schema_path=None if schema_path is None else str(schema_path),
            **parameters.split(params)[0],
        )
        contents = {file: (root / file.path).read_bytes() for file in rules.wanted(listing)}
        if schema_path is not None:
            schema = SourceFile(schema_path.name, schema_path.stat().st_size, "")
            listing = replace(listing, schema=schema)
            contents[schema] = schema_path.read_bytes()
    except (SourceError, InvalidRequest) as error:
        raise CannotLookError(error.text) from error
    except OSError as error:
        raise CannotLookError(f"{error.filename} cannot be read: {error.strerror}") from error
    except InvalidModel as error:
        return False, f"{path} cannot be loaded: {error.text}\n"
    head = f"{path} as a model of type {type_name or '(none)'}\n"
    if type_name and model_type(type_name) is UNKNOWN:
        head += f"note: {type_name} is not one of the types {', '.join(sorted(TYPES))}: files keep their names\n"
    try:
        layout = rules.plan(spec, listing, contents)
        answers = {file: read_ends(root / file.path, lambda: None) for file in rules.asked(layout)}
        found = rules.finished(layout, answers)
    except InvalidModel as error:
        return False, head + _refusal(error, listing, columns)
    except AdapterError as error:
        raise CannotLookError(error.text) from error
    return True, head + _plan(spec, listing, found, columns)


def _refusal(error: InvalidModel, listing: Listing, columns: int) -> str:
    """Where the tree is what is wrong, with the tree that would have worked."""
    reason = error.__cause__
    expected = reason.expected if isinstance(reason, LayoutError) else None
    if expected is None:
        return f"\nthe model cannot be loaded: {error.text}\n"
    found = drawn({file.path: "" for file in listing.files})
    trees = _side_by_side(("found", found), ("Triton expects", drawn(dict.fromkeys(expected.paths, ""))), columns)
    return f"\nthe model cannot be loaded: {reason}\n\n{trees}\nTriton expects {expected.text}\n"


def _plan(spec: ModelSpec, listing: Listing, found: Layout, columns: int) -> str:
    parts = {spec.model_id: found, **found.inner}
    placed: dict[str, str] = {}
    for name, part in parts.items():
        placed |= {f"{name}/{path}": "" if path == file.path else f"<- {file.path}" for path, file in part.links.items()}
        placed |= {f"{name}/{path}": "(written)" for path in part.written}
        placed |= {f"{name}/{path}/": "" for path in part.directories}
    text = "\n" + _side_by_side(("found", drawn({file.path: "" for file in listing.files})), ("placed", drawn(placed)), columns)
    for name, part in parts.items():
        if not part.written:
            text += f"\n{name}/config.pbtxt: none; Triton tells the backend from the files' names\n"
        for path, content in part.written.items():
            lines = content.decode(errors="replace").splitlines() or ["(empty)"]
            text += "\n".join([f"\n{name}/{path}:", *(f"  {line}".rstrip() for line in lines)]) + "\n"
    refusals = [f"Triton may refuse this model: {found.hint}"] if found.hint else []
    text += "".join(f"\nwarning: {warning}\n" for warning in (*found.warnings, *refusals))
    used = {*found.files, *rules.wanted(listing)}
    left = [file.path for file in listing.files if file not in used]
    if left:
        text += f"\nnot placed: {some(left, MOST_ENTRIES)}\n"
    return text


def drawn(paths: Mapping[str, str]) -> list[str]:
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
        inner = entries[name]
        shown = "".join(letter if letter.isprintable() else "?" for letter in name)
        lines.append(shown if name.endswith("/") else f"{shown}  {inner['']}".rstrip())
        if name.endswith("/"):
            lines += ["  " + line for line in drawn(inner)]
    if len(names) > MOST_ENTRIES:
        lines.append(f"… and {len(names) - MOST_ENTRIES} more")
    return lines


def _side_by_side(left: tuple[str, list[str]], right: tuple[str, list[str]], columns: int) -> str:
    """Two trees with their titles; one above the other where the terminal is too narrow."""
    tables = [[title + ":", *("  " + line for line in lines or ["(nothing)"])] for title, lines in (left, right)]
    width = max(map(len, tables[0]))
    if width + len(GAP) + max(map(len, tables[1])) > columns:
        return "".join("\n".join(table) + "\n" for table in tables)
    return "".join(f"{a:<{width}}{GAP}{b}".rstrip() + "\n" for a, b in zip_longest(*tables, fillvalue=""))
