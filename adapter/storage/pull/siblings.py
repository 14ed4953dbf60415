"""
What a listing of a path without a slash shows beside the model, and what its order proves. Pure; knows no store.

When may the rest of a listing be left unread, though keys of the folder could be in it? Of a store that sorts by the
bytes of its keys: as soon as a key was listed that is greater than all that begin with `path/`. No store is asked how it
sorts; the rows tell. Each order that a store may have is one of these:

- By bytes: then the folder is whole.
- Folder by folder, whichever comes first (path segments, files or folders first, Azure's folder names without
  a slash, without case, numbers as numbers): each folder is in one piece. So it is whole once a row of it, and
  after that a row outside of it, were listed. Both are asked for: rows of siblings alone prove nothing.
- An order that splits folders, and looks like that of bytes as long as the rows are alike: level by level, or by
  letters and digits with punctuation last, as sorting for people does. The rows have to refute each.
- None: of 20! orders, one ascends by chance.
- By anything else (names of files, age), or in sorted runs one after the other: no page can tell; no store is known to list so.
"""

from __future__ import annotations

from collections.abc import Callable

from adapter.storage.bucket import Page

FEW = 20
"""Rows that ascend, of a store that sorts."""


class Siblings:
    """The rows of such a listing so far."""

    def __init__(self, key: str) -> None:
        self.first: list[str] = []
        """A few of the keys that go on where the path ends, without a slash: the first ones."""
        self._key = key
        self._folder = f"{key}/"
        self._after = f"{key}0"
        """The least text beyond the folder: `0` follows `/`."""
        self._rows = 0
        self._last = ""
        self._ascends = True
        """By code points, which is the order of the bytes of UTF-8, too."""
        self._suspected = _SPLITTING
        self._begun = self._passed = False

    @property
    def are_in_the_way(self) -> bool:
        """There are some, and an object of the path's own name would have come before them."""
        return bool(self.first) and self._ascends and self._rows >= FEW

    @property
    def prove_the_folder_whole(self) -> bool:
        """All of the folder was listed, and there is some."""
        return self.are_in_the_way and self._begun and self._passed and not self._suspected

    def see(self, page: Page) -> None:
        """Take note of the next page."""
        for key in (stored.key for stored in page.objects):
            if not key.endswith("/"):  # Azure sorts the names of folders without it
                self._compare(key)
            if len(self.first) < FEW and key.startswith(self._key) and not key.startswith(self._folder):
                self.first.append(key)

    def _compare(self, key: str) -> None:
        self._rows += 1
        self._ascends &= self._last < key
        if self._suspected:
            self._suspected = tuple(order for order in self._suspected if order(self._last) <= order(key))
        self._last = key
        if key.startswith(self._folder):
            self._begun = True
        elif self._begun and key >= self._after and key.startswith(self._key):
            self._passed = True


def _level(key: str) -> str:
    return "/" * key.count("/")


def _letters(key: str) -> str:
    return "".join(filter(str.isalnum, key))


def _letters_without_case(key: str) -> str:
    return _letters(key).casefold()


_SPLITTING: tuple[Callable[[str], str], ...] = (_level, _letters, _letters_without_case)
