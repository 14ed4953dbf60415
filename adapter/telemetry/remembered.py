"""
The exact values of secrets that were read, so that they can be taken out of any text.

Shapes miss a password without one. A text is searched once, whatever is remembered: by an index of
short pieces out of the middle of each value (beginnings are alike: tokens of one issuer). Bounded in
number; the value that was remembered longest ago goes first. May be used from any thread.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Iterator
from urllib.parse import quote

PIECE = 6
"""Characters; shorter values are not remembered: they are parts of ordinary words (`true`, `admin`)."""
KEPT_VALUES = 512
_KEPT_PER_PIECE = 64
"""Values with the same piece: more would let the search of one text grow with their number."""


class Remembered:
    """Values to be masked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: OrderedDict[str, frozenset[str]] = OrderedDict()
        """Value → its forms."""
        self._index: dict[str, tuple[tuple[int, str], ...]] = {}
        """Piece → forms that hold it, with its place in them. Read without the lock: entries are only replaced."""

    def add(self, value: str) -> None:
        """Remember a value, and how it looks in a URL and in JSON."""
        value = value.strip()
        if len(value) < PIECE:
            return
        with self._lock:
            if value not in self._values:
                self._values[value] = _forms(value)
                for form in self._values[value]:
                    at, piece = _piece(form)
                    self._index[piece] = ((at, form), *self._index.get(piece, ()))[:_KEPT_PER_PIECE]
            self._values.move_to_end(value)
            if len(self._values) > KEPT_VALUES:
                self._forget(self._values.popitem(last=False)[1])

    def masked(self, text: str, mask: str) -> str:
        """The text with `mask` in place of every value."""
        if not self._index:
            return text
        kept, end = [], 0
        for start, stop in sorted(self._spans(text)):
            if start >= end:
                kept += [text[end:start], mask]
            end = max(end, stop)
        return "".join((*kept, text[end:]))

    def _forget(self, forms: frozenset[str]) -> None:
        for form in forms:
            _, piece = _piece(form)
            if others := tuple(entry for entry in self._index[piece] if entry[1] != form):
                self._index[piece] = others
            else:
                del self._index[piece]

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Where values begin and end in the text; they may overlap."""
        for found in range(len(text) - PIECE + 1):
            for at, form in self._index.get(text[found : found + PIECE], ()):
                if at <= found and text.startswith(form, found - at):
                    yield found - at, found - at + len(form)


def _forms(value: str) -> frozenset[str]:
    escaped = (quote(value, errors="replace"), quote(value, safe="", errors="replace"), json.dumps(value)[1:-1])
    return frozenset((value, *escaped))


def _piece(form: str) -> tuple[int, str]:
    at = (len(form) - PIECE) // 2
    return at, form[at : at + PIECE]
