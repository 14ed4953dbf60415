"""The verb `layout` over a folder that a test describes, and its picture as data."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from adapter import cli

CASES = Path(__file__).parent / "cases"
Files = Mapping[str, str | bytes]


@dataclass
class Shown:
    """What the verb showed."""

    code: int
    text: str
    errors: str
    placed: dict[str, dict[str, str]] = field(default_factory=dict)
    """Of each Triton model: path → where it comes from."""
    directories: dict[str, list[str]] = field(default_factory=dict)
    """Of each Triton model: directories that are made empty."""
    configs: dict[str, str] = field(default_factory=dict)
    """Of each Triton model: its `config.pbtxt` as it would be written."""
    warnings: list[str] = field(default_factory=list)
    refusal: str = ""
    """The line that says why the model cannot be loaded, and what Triton expects."""


def rows(name: str) -> list[Any]:
    """The table of this name, as parameters with an id each."""
    table = json.loads((CASES / f"{name}.json").read_text())
    return [pytest.param(row, id=str(row.get("name", number)).replace(" ", "-")) for number, row in enumerate(table)]


def shown(folder: Path, files: Files, type_name: str = "", **options: Any) -> Shown:
    """`layout` of these files. Options: as of `looked`, with the schema as JSON's value, or bytes; is_single_file."""
    (folder / "model").mkdir()
    top = write(folder / "model", files)
    path = top / next(iter(files)) if options.pop("is_single_file", False) else top
    if (schema := options.pop("schema", None)) is not None:
        options["schema"] = folder / "_schema.json"
        options["schema"].write_bytes(schema if isinstance(schema, bytes) else json.dumps(schema).encode())
    return looked(path, type_name, **{"model_id": "m", **options})


def write(top: Path, files: Files) -> Path:
    """A folder with these files; without any, there is none."""
    for path, content in files.items():
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).write_bytes(content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content)
    return top


def looked(
    path: Path, type_name: str = "onnx", *, model_id: str = "", schema: Path | None = None, top: str = "", allow_decoupled: bool = False
) -> Shown:
    """`layout` of a folder or file."""
    words = ["layout", os.fspath(path), "--type", type_name, *([f"--model-id={model_id}"] if model_id else [])]
    words += ["--schema", os.fspath(schema)] if schema else []
    words += ["--allow-decoupled"] if allow_decoupled else []
    words += ["--top-model", top] if top else []
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main(words)
    return _read(code, out.getvalue(), err.getvalue())


def _read(code: int, text: str, errors: str) -> Shown:
    found = Shown(code, text, errors)
    for block in (block.removesuffix("\n") for block in text.split("\n\n")):
        head = block.partition("\n")[0]
        if "\nplaced:\n" in block:
            _placed(block.partition("\nplaced:\n")[2].split("\n"), found)
        elif head.startswith("warning: "):
            found.warnings.append(block.removeprefix("warning: "))
        elif head.startswith("the model cannot be loaded: "):
            found.refusal += block.removeprefix("the model cannot be loaded: ")
    for name, config in re.findall(r"^(\S.*)/config\.pbtxt:\n((?:  .*\n|\n(?=  |\n  ))*)", text, re.MULTILINE):
        found.configs[name] = "" if config == "  (empty)\n" else re.sub("^  ", "", config, flags=re.MULTILINE)
    if code == cli.FAILED:
        found.refusal = found.refusal or text
        found.refusal += "".join(f"; {line}" for line in text.split("\n") if re.match("Triton expects (?!.*:$)", line))
    return found


def _placed(lines: list[str], found: Shown) -> None:
    """The indented tree, line by line; a directory that nothing is in is one that is made."""
    parents: list[str] = []
    for line, follower in zip(lines, [*lines[1:], ""], strict=True):
        depth = (len(line) - len(line.lstrip(" "))) // 2 - 1
        name, _, note = line.strip(" ").partition("  ")
        path = "/".join([*parents[:depth], name.removesuffix("/")])
        model, _, inner = path.partition("/")
        if name.endswith("/"):
            parents[depth:] = [name.removesuffix("/")]
            found.placed.setdefault(model, {})
            is_empty = (len(follower) - len(follower.lstrip(" "))) // 2 - 1 <= depth
            if is_empty and inner:
                found.directories.setdefault(model, []).append(inner)
        elif note != "(written)":
            found.placed[model][inner] = note.removeprefix("<- ") or inner
