"""
The exact values of secrets that were read, so that they can be taken out of any text.

Shapes miss a password without one. A text is searched once, whatever is remembered: by an index of
one short piece of each value, the one that the fewest others share (tokens of one issuer begin and
end alike). Bounded in number and in characters; the value that was remembered longest ago goes first. May
be used from any thread.
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
KEPT_CHARACTERS = 8 * 1024 * 1024
"""Of all forms together. A request may bring values that are long, and others that are longer."""
_LOOKS = 1024
"""At pieces of one form: a look at each piece of a value of a MiB takes seconds."""
_Entry = tuple[int, str]
"""Place of the piece in a form, and the form."""


class Remembered:
    """Values to be masked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: OrderedDict[str, list[_Entry]] = OrderedDict()
        """Value → its forms."""
        self._lasting: set[str] = set()
        """Of these, what never goes."""
        self._characters = 0
        self._index: dict[str, tuple[_Entry, ...]] = {}
        """Piece → forms that were filed under the piece. Read without the lock: tuples are only replaced."""

    def add(self, value: str, *, lasts: bool = False) -> None:
        """Remember a value, and how it looks in a URL and in JSON; one that lasts is not pushed out by later ones."""
        value = value.strip()
        if len(value) < PIECE:
            return
        with self._lock:
            if value not in self._values:
                self._values[value] = [self._filed(form) for form in _forms(value)]
            self._values.move_to_end(value)
            if lasts:
                self._lasting.add(value)
            while self._is_full() and (oldest := next((one for one in self._values if one not in self._lasting), None)) is not None:
                self._forget(self._values.pop(oldest))

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

    def _is_full(self) -> bool:
        return len(self._values) > KEPT_VALUES or self._characters > KEPT_CHARACTERS

    def _filed(self, form: str) -> _Entry:
        places = len(form) - PIECE + 1
        at = min(range(0, places, places // _LOOKS + 1), key=lambda at: len(self._index.get(form[at : at + PIECE], ())))
        piece, entry = form[at : at + PIECE], (at, form)
        self._index[piece] = (*self._index.get(piece, ()), entry)
        self._characters += len(form)
        return entry

    def _forget(self, entries: list[_Entry]) -> None:
        for entry in entries:
            at, form = entry
            self._characters -= len(form)
            piece = form[at : at + PIECE]
            if others := tuple(other for other in self._index[piece] if other is not entry):
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
