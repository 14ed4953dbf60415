"""
The files below one directory of a model, seen as a tree.

Owns what may be asked of a listing without any knowledge of model types, and how paths look in error
texts. A tree has no path that leads out of the model. Pure and immutable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from adapter.errors import some
from adapter.model import Listing, SourceFile
from adapter.paths import path_problem

SHOWN_PATHS = 12
SHOWN_LENGTH = 80

_RESIDUE = frozenset({"__pycache__", "__MACOSX", "lost+found"})


class LayoutError(Exception):
    """These files cannot become a model of this type; `layout` adds the trees found and expected."""


class Tree:
    """Files by their path relative to one directory."""

    def __init__(self, files: Mapping[str, SourceFile]) -> None:
        self.files = files
        self.file_names = sorted(path for path in files if "/" not in path)
        self.directory_names = sorted({path.partition("/")[0] for path in files if "/" in path})

    def __bool__(self) -> bool:
        return bool(self.files)

    @property
    def names(self) -> list[str]:
        """Files and directories at the top."""
        return [*self.file_names, *self.directory_names]

    def below(self, name: str) -> Tree:
        """The directory of this name."""
        return Tree({path[len(name) + 1 :]: file for path, file in self.files.items() if path.startswith(name + "/")})

    def without_directories(self, is_left_out: Callable[[str], bool]) -> Tree:
        """What remains when some directories at the top are left out; asked with their names."""
        out = {name for name in self.directory_names if is_left_out(name)}
        return Tree({path: file for path, file in self.files.items() if "/" not in path or path.partition("/")[0] not in out})

    def without_file(self, name: str) -> Tree:
        """What remains when a file at the top is left out."""
        return Tree({path: file for path, file in self.files.items() if path != name})

    def visible(self) -> Tree:
        """Without what tools leave behind at the top (`.cache`, `.gitattributes`, `__pycache__`), unless that is all."""
        return Tree({path: file for path, file in self.files.items() if not is_residue(path.partition("/")[0])}) or self

    def prefixed(self, directory: str) -> dict[str, SourceFile]:
        """The files by their path as seen from above this directory."""
        return {f"{directory}/{path}": file for path, file in self.files.items()}

    def __str__(self) -> str:
        return shown(self.files)


def tree_of(listing: Listing) -> Tree:
    """
    The files of a listing.

    Raises:
        LayoutError: a path that no file system could hold below the model.
    """
    if listing.is_single_file and (len(listing.files) != 1 or "/" in listing.files[0].path):
        raise LayoutError("the model path is a file, so one file is expected")
    for file in listing.files:
        if problem := path_problem(file.path):
            raise LayoutError(f"{shortened(file.path)} {problem}")
    return Tree({file.path: file for file in listing.files})


def is_residue(name: str) -> bool:
    """Whether tools leave such an entry behind, and no model is made of it."""
    return name.startswith(".") or name in _RESIDUE


def shown(paths: Iterable[str]) -> str:
    """Some paths for an error text, on one line."""
    return some([shortened(path) for path in sorted(paths)], SHOWN_PATHS) or "nothing"


def shortened(path: str) -> str:
    """One path for an error text: printable, and not longer than a line has room for."""
    text = "".join(letter if letter.isprintable() else "?" for letter in path)
    if len(text) > SHOWN_LENGTH:
        half = (SHOWN_LENGTH - 1) // 2
        text = f"{text[:half]}…{text[-half:]}"
    return text if text and text.strip() == text and "," not in text and ";" not in text else repr(text)
