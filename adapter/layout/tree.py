"""
The files below one directory of a model, seen as a tree.

Owns what may be asked of a listing without any knowledge of model types, and how paths look in error
texts. A tree has no path that leads out of the model. Pure and immutable.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from adapter.errors import some
from adapter.model import Listing, SourceFile
from adapter.paths import path_problem

SHOWN_PATHS = 12
SHOWN_LENGTH = 80

_AFTER_SLASH = chr(ord("/") + 1)
"""What lies in `name/` sorts before `name` with this letter, and nothing else lies between."""
_RESIDUE = frozenset({"__pycache__", "__MACOSX", "lost+found"})


class LayoutError(Exception):
    """These files cannot become a model of this type; `layout` adds the trees found and expected."""


@dataclass(frozen=True)
class _Span:
    """The part of sorted paths that lies below one directory."""

    paths: Sequence[str]
    first: int
    end: int
    cut: int = 0
    """Characters before this directory in every path of the part."""
    hidden: frozenset[str] = frozenset()
    """What is left out at the top: names of files, names of directories with a slash behind them."""


class Tree:
    """
    Files by their path relative to one directory.

    A view of sorted paths: a directory of it is a part of the same paths. So stepping into a directory costs the
    same for ten files and for 100,000, at any depth, and no path is cut before somebody asks for the files.
    """

    def __init__(self, files: Mapping[str, SourceFile], span: _Span | None = None) -> None:
        """`span`, of trees made here: which of the files, all of them otherwise."""
        self._all = files
        self._span = span or _Span(sorted(files), 0, len(files))

    def __bool__(self) -> bool:
        return any(self._top)

    @cached_property
    def files(self) -> Mapping[str, SourceFile]:
        """The files by their paths."""
        span = self._span
        if not (span.cut or span.hidden):
            return self._all
        inside = {path[span.cut :]: self._all[path] for path in span.paths[span.first : span.end]}
        return {path: file for path, file in inside.items() if _entry(path) not in span.hidden} if span.hidden else inside

    @property
    def file_names(self) -> list[str]:
        """Files at the top, sorted."""
        return self._top[0]

    @property
    def directory_names(self) -> list[str]:
        """Directories at the top, sorted."""
        return self._top[1]

    @property
    def names(self) -> list[str]:
        """Files and directories at the top."""
        return [*self.file_names, *self.directory_names]

    def find(self, path: str) -> SourceFile | None:
        """The file at this path, or None."""
        span = self._span
        if span.first == span.end or _entry(path) in span.hidden:
            return None
        return self._all.get(span.paths[span.first][: span.cut] + path)

    def below(self, name: str) -> Tree:
        """The directory of this name."""
        span = self._span
        if span.first == span.end or f"{name}/" in span.hidden:
            return Tree({})
        path = f"{span.paths[span.first][: span.cut]}{name}"
        first, end = (bisect_left(span.paths, path + edge, span.first, span.end) for edge in ("/", _AFTER_SLASH))
        return Tree(self._all, _Span(span.paths, first, end, len(path) + 1))

    def without_directories(self, is_left_out: Callable[[str], bool]) -> Tree:
        """What remains when some directories at the top are left out; asked with their names."""
        return self._without(f"{name}/" for name in self.directory_names if is_left_out(name))

    def without_file(self, name: str) -> Tree:
        """What remains when a file at the top is left out."""
        return self._without((name,))

    def visible(self) -> Tree:
        """Without what tools leave behind at the top (`.cache`, `.gitattributes`, `__pycache__`), unless that is all."""
        return self._visible

    def prefixed(self, directory: str) -> dict[str, SourceFile]:
        """The files by their path as seen from above this directory."""
        return {f"{directory}/{path}": file for path, file in self.files.items()}

    def __str__(self) -> str:
        return shown(self.files)

    @cached_property
    def _top(self) -> tuple[list[str], list[str]]:
        """Names of the files and of the directories at the top."""
        span = self._span
        paths, at, end = span.paths, span.first, span.end
        files: list[str] = []
        directories: list[str] = []
        while at < end:
            path = paths[at]
            slash = path.find("/", span.cut)
            name = path[span.cut :] if slash < 0 else path[span.cut : slash]
            if (name if slash < 0 else f"{name}/") not in span.hidden:
                (files if slash < 0 else directories).append(name)
            at += 1
            if slash >= 0 and at < end and paths[at].startswith(path[: slash + 1]):
                at = bisect_left(paths, path[:slash] + _AFTER_SLASH, at, end)
        return files, sorted(directories)

    @cached_property
    def _visible(self) -> Tree:
        residue = [name for name in self.file_names if is_residue(name)]
        return self._without([*residue, *(f"{name}/" for name in self.directory_names if is_residue(name))]) or self

    def _without(self, entries: Iterable[str]) -> Tree:
        hidden = self._span.hidden.union(entries)
        return self if hidden == self._span.hidden else Tree(self._all, replace(self._span, hidden=hidden))


def _entry(path: str) -> str:
    """The entry at the top that a path leads to, a directory with its slash."""
    name, slash, _ = path.partition("/")
    return name + slash


def check(listing: Listing) -> None:
    """
    Make sure that the files of a listing could lie on a disk.

    Raises:
        LayoutError: a path that no file system could hold below the model.
    """
    if listing.is_single_file and (len(listing.files) != 1 or "/" in listing.files[0].path):
        raise LayoutError("the model path is a file, so one file is expected")
    for file in listing.files:
        if problem := path_problem(file.path):
            raise LayoutError(f"{shortened(file.path)} {problem}")


def clash(paths: Iterable[str]) -> str | None:
    """A path that would be a file and a directory at once, or None. One pass, whatever the depth."""
    above = ""
    for path in sorted(path.replace("/", "\0") for path in paths):  # so what lies in a directory follows its name at once
        if above and path.startswith(above):
            return above[:-1].replace("\0", "/")
        above = path + "\0"
    return None


def is_residue(name: str) -> bool:
    """Whether tools leave such an entry behind, and no model is made of it."""
    return name.startswith(".") or name in _RESIDUE


def shown(paths: Iterable[str]) -> str:
    """Some paths for an error text, on one line."""
    ordered = sorted(paths)
    return some([*map(shortened, ordered[:SHOWN_PATHS]), *ordered[SHOWN_PATHS:]], SHOWN_PATHS) or "nothing"


def shortened(path: str) -> str:
    """One path for an error text: printable, and not longer than a line has room for."""
    if len(path) > SHOWN_LENGTH:
        half = (SHOWN_LENGTH - 1) // 2
        path = f"{path[:half]}…{path[-half:]}"
    text = "".join(letter if letter.isprintable() else "?" for letter in path)
    return text if text and text.strip() == text and "," not in text and ";" not in text else repr(text)
