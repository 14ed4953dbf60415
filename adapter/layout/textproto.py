"""
Protocol-buffer text format as a tree in which every value knows where it stands in the text.

So an edit replaces spans and leaves the rest (comments, formatting, fields that nobody here knows) as its author
wrote it. Owns the tree and the edits; `textparser` reads. Knows nothing of Triton's messages and does no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scalar:
    """A string (its pieces joined and unescaped), a number or a word such as `true` or an enum's name."""

    kind: str
    """`string`, `integer`, `float` or `word`."""
    value: str | int
    """The integer, the string's content, or the text as written."""
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Message:
    """Fields in braces, which the span includes."""

    fields: tuple[Field, ...]
    start: int
    end: int

    def all(self, name: str) -> list[Field]:
        """Every field of this name, in order."""
        return [field for field in self.fields if field.name == name]


@dataclass(frozen=True, slots=True)
class Sequence:
    """Values in square brackets, which the span includes."""

    values: tuple[Scalar | Message, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Field:
    """One field. Its span ends after the separator that may follow the value."""

    name: str
    """As written; an extension's or Any's name keeps its brackets."""
    value: Scalar | Message | Sequence
    start: int
    end: int

    @property
    def values(self) -> tuple[Scalar | Message, ...]:
        """One value, or those of a list."""
        return self.value.values if isinstance(self.value, Sequence) else (self.value,)


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace one span; equal ends insert."""

    start: int
    end: int
    text: str


def position(text: str, offset: int) -> tuple[int, int]:
    """Line and column of an offset, both from 1."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def splice(text: str, edits: Iterable[Edit], start: int = 0, end: int | None = None) -> str:
    """The text between two offsets with the edits made; edits do not overlap and lie inside."""
    parts = []
    at = start
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        parts += [text[at : edit.start], edit.text]
        at = edit.end
    return "".join([*parts, text[at:end]])


def removal(text: str, field: Field) -> Edit:
    """Take a field out, with its line where nothing else stands on it."""
    start, end = field.start, field.end  # never further than the next letter: a line may be as long as the text, and full of fields
    while start and text[start - 1] != "\n" and text[start - 1].isspace():
        start -= 1
    while end < len(text) and text[end] != "\n" and text[end].isspace():
        end += 1
    if (start and text[start - 1] != "\n") or (end < len(text) and text[end] != "\n"):
        return Edit(field.start, field.end, "")
    return Edit(start, min(end + 1, len(text)), "")


def quoted(value: str) -> str:
    """A string as a text-format literal on one line."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda match: f"\\{ord(match[0]):03o}", escaped) + '"'
