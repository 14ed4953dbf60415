"""
The files below one directory of a model, seen as a tree.

Owns what may be asked of a listing without any knowledge of model types, the rule for the names of version directories,
and how paths look in error texts. Triton reads a version's name with `stoll`, which takes `1abc` for 1, aborts the
server on a number beyond 64 bits, and leaves the python backend hanging on `-1`: such names never get there. Pure and
immutable.

Source: Triton core `ModelLifeCycle::VersionsToLoad` and `GetSubdirs`' callers in `model_repository_manager.cc`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

from adapter.errors import InvalidModel, some
from adapter.model import SourceFile

SHOWN_PATHS = 12
SHOWN_LENGTH = 80
RULE = f"a version is a number from 0 to {2**63 - 1} without sign or leading zeros"
_VERSION = re.compile("0|[1-9][0-9]{0,18}")

_RESIDUE = frozenset({"__pycache__", "__MACOSX", "lost+found"})


class LayoutError(InvalidModel):
    """These files cannot become a model of this type; `rules` adds what was found and expected."""

    reason = InvalidModel.reason
    expected = ""
    """What would have worked, in words; known where the whole listing is."""


class Tree:
    """Files by their path relative to one directory."""

    def __init__(self, files: Mapping[str, SourceFile]) -> None:
        self.files = files
        self._below: dict[str, dict[str, SourceFile]] = {}
        for path, file in files.items():
            name, slash, rest = path.partition("/")
            if slash:
                self._below.setdefault(name, {})[rest] = file
        self.file_names = sorted(path for path in files if "/" not in path)
        self.directory_names = sorted(self._below)

    def __bool__(self) -> bool:
        return bool(self.files)

    @property
    def names(self) -> list[str]:
        """Files and directories at the top."""
        return [*self.file_names, *self.directory_names]

    def below(self, name: str) -> Tree:
        """The directory of this name."""
        return Tree(self._below.get(name, {}))

    def without(self, *names: str) -> Tree:
        """What remains when the files and directories of these names at the top are left out."""
        gone = frozenset(names).intersection(self.names)
        return Tree({path: file for path, file in self.files.items() if path.partition("/")[0] not in gone}) if gone else self

    @property
    def visible(self) -> Tree:
        """Without what tools leave behind at the top (`.cache`, `.gitattributes`, `__pycache__`), unless that is all."""
        return self.without(*filter(is_residue, self.names)) or self

    def opened(self, *ignored: str) -> Iterator[Tree]:
        """The directory, then what is in the one directory that is all of it, and so on; names that are ignored may lie beside it."""
        tree: Tree | None = self  # one at a time: many files at many levels are much
        while tree is not None:
            yield tree
            entries = tree.visible.without(*ignored)
            is_all = len(entries.names) == 1 and not entries.file_names
            tree = entries.below(entries.names[0]) if is_all else None

    def prefixed(self, directory: str) -> Tree:
        """The same, in a directory of this name."""
        return Tree({f"{directory}/{path}": file for path, file in self.files.items()})


def clash(paths: Iterable[str]) -> str | None:
    """A path that would be a file and a directory at once, or None. One pass, whatever the depth."""
    ordered = sorted(path.replace("/", "\0") + "\0" for path in paths)  # so what lies in a directory follows its name at once
    return next((above[:-1].replace("\0", "/") for above, path in pairwise(ordered) if path.startswith(above)), None)


def is_version(name: str) -> bool:
    """Whether Triton reads this directory name as exactly this number."""
    return _VERSION.fullmatch(name) is not None and int(name) < 2**63


def is_odd(name: str) -> bool:
    """Whether the name begins as a number would and is no version: Triton would misread or ignore it."""
    digits = name.strip()
    return digits[digits[:1] in ("+", "-") :][:1].isdigit() and not is_version(name)


def is_residue(name: str) -> bool:
    """Whether tools leave such an entry behind, and no model is made of it."""
    return name.startswith(".") or name in _RESIDUE


def shown(paths: Iterable[str], most: int = SHOWN_PATHS) -> str:
    """Some paths or names for an error text, on one line."""
    ordered = sorted(paths)
    return some([*map(shortened, ordered[:most]), *ordered[most:]], most) or "nothing"


def shortened(path: str) -> str:
    """One path for an error text: printable, and not longer than a line may be."""
    if len(path) > SHOWN_LENGTH:
        half = (SHOWN_LENGTH - 1) // 2
        path = f"{path[:half]}…{path[-half:]}"
    text = "".join(letter if letter.isprintable() else "?" for letter in path)
    return text if text and text.strip() == text and "," not in text and ";" not in text else repr(text)
