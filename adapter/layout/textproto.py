"""
Protocol-buffer text format as fields that know where they stand in the text.

So an edit replaces spans and leaves the rest (comments, formatting, fields that are unknown here) as its author
wrote it. Owns the grammar and the edits; what a value means is protobuf's. Knows nothing of Triton's messages and does no I/O.

Source: https://protobuf.dev/reference/protobuf/textformat-spec, and where it is silent what protobuf's C++ tokenizer
accepts, since that is what Triton reads with: Python's takes more.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from sys import intern
from typing import Final, NamedTuple, NoReturn

from google.protobuf import text_encoding

MAX_DEPTH = 64
"""Levels of nesting; Triton's own messages need fewer than ten."""
_CLOSERS: Final = {"{": "}", "<": ">"}
_ESCAPE: Final = r"""\\(?: [0-7]{1,3} | [xX][0-9a-fA-F]{1,2} | u[0-9a-fA-F]{4} | U00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4} | [abfnrtv\\'"?] )"""
_OPEN: Final = [rf"{quote}[^{quote}\\\n]*+(?:{_ESCAPE}[^{quote}\\\n]*+)*+" for quote in "\"'"]
"""A string up to what ends it."""
_TOKEN: Final = re.compile(
    rf"""
    (?: [ \t\n\r\f\v]++ | \#[^\n]*+ )*+
    (?: (?P<end>    \Z )
      | (?P<word>   [A-Za-z_][A-Za-z0-9_]*+ )
      | (?P<number> (?: 0[xX][0-9a-fA-F]+ | 0[0-7]+ | (?: (?:0|[1-9][0-9]*+)(?:\.[0-9]*+)? | \.[0-9]+ )(?:[eE][+-]?[0-9]+)?[fF]? )
                    (?![A-Za-z0-9_.]) )
      | (?P<string> {_OPEN[0]}" | {_OPEN[1]}' )
      | (?P<open>   {_OPEN[0]} | {_OPEN[1]} )
      | (?P<mark>   [{{}}<>\[\]:,;/.-] )
      | (?P<other>  . ) )
    """,
    re.VERBOSE | re.DOTALL,
)

_ESCAPED: Final = re.compile(r"\\(.)")


class Problem(Exception):
    """What is wrong at one place of a text: the offset, and words."""


class Value(NamedTuple):
    """A scalar as it is written, or a message with its braces."""

    kind: str
    """`string` (all its pieces), `number`, `word` or `message`."""
    start: int
    end: int
    fields: tuple[Field, ...] = ()
    """Of a message."""


class Field(NamedTuple):
    """One field."""

    name: str
    """As written; an extension's or Any's name keeps its brackets."""
    values: tuple[Value, ...]
    """One value, or those of a list."""
    has_colon: bool
    start: int
    value_start: int
    """Where the value begins, or the list."""
    value_end: int
    end: int
    """After the separator that may follow the value."""


class Edit(NamedTuple):
    """Replace one span; equal ends insert."""

    start: int
    end: int
    text: str


def scan(text: str) -> tuple[Field, ...]:
    """
    The fields of the whole text; bytes that are not UTF-8 are in it as `surrogateescape` has them.

    Raises:
        Problem: the text is not text format.
    """
    fields = _Scanner(text).fields("")
    if (nul := text.find("\0")) >= 0:  # in a comment or a string
        raise Problem(nul, r"the character '\x00' cannot stand here")
    return fields


class _Scanner:
    """One token ahead, never back."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = _TOKEN.finditer(text)
        self.kind = self.lexeme = ""
        self.start = self.end = self.passed = self.depth = 0
        self.advance()

    def advance(self) -> None:
        """Step over a token, which ends at `passed`."""
        self.passed = self.end
        match = next(self.tokens)
        self.kind = str(match.lastgroup)
        self.lexeme = match[self.kind]
        self.start, self.end = match.span(self.kind)
        if self.kind == "open" and self.text[self.end : self.end + 1] == "\\":
            raise Problem(self.end, "a string holds an unknown escape")
        if self.kind in ("open", "other"):
            raise Problem(self.start, _misfit(self.text[self.start : self.start + 2]))

    def wanted(self, what: str) -> NoReturn:
        raise Problem(self.start, f"expected {what}, found {repr(self.lexeme[:40]) if self.lexeme else 'the end of the text'}")

    def accept(self, *marks: str) -> bool:
        if is_there := self.lexeme in marks:
            self.advance()
        return is_there

    def fields(self, closer: str) -> tuple[Field, ...]:
        found = []
        while self.lexeme != closer:
            start, name = self.start, self.name(closer)
            has_colon = self.accept(":")
            value_start = self.start
            values = self.list(has_colon) if self.lexeme == "[" else (self.value(has_colon),)
            value_end = self.passed
            self.accept(",", ";")
            found.append(Field(name, values, has_colon, start, value_start, value_end, self.passed))
        return tuple(found)

    def name(self, closer: str) -> str:
        name = self.lexeme
        if self.kind == "word":
            self.advance()
            return intern(name)  # a long config has few names
        if not self.accept("["):
            self.wanted(f"a field name or {closer!r}" if closer else "a field name")
        while self.kind == "word" or self.lexeme in ("/", ".", "-") or (self.kind == "number" and name != "["):
            name += self.lexeme
            self.advance()
        if name == "[" or not self.accept("]"):
            self.wanted("an extension name and ']'")
        return name + "]"

    def list(self, has_colon: bool) -> tuple[Value, ...]:
        self.advance()
        values: list[Value] = []
        while not self.accept("]"):
            if values and not self.accept(","):
                self.wanted("',' or ']'")
            values.append(self.value(has_colon))
        return tuple(values)

    def value(self, has_colon: bool) -> Value:
        start, kind = self.start, self.kind
        if self.lexeme in _CLOSERS:
            return Value("message", start, fields=self.message(), end=self.passed)
        if not has_colon:
            self.wanted("':'")
        if kind == "string":
            while self.kind == "string":
                self.advance()
            return Value(kind, start, self.passed)
        if self.accept("-"):
            if self.kind != "number" and self.lexeme.lower() not in ("inf", "infinity", "nan"):
                self.wanted("a number")
            kind = "number"
        elif kind not in ("number", "word"):
            self.wanted("a value")
        self.advance()
        return Value(kind, start, self.passed)

    def message(self) -> tuple[Field, ...]:
        closer = _CLOSERS[self.lexeme]
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Problem(self.start, f"messages are nested more than {MAX_DEPTH} levels deep")
        self.advance()
        fields = self.fields(closer)
        self.advance()
        self.depth -= 1
        return fields


def _misfit(found: str) -> str:
    """Why no token begins with these two letters."""
    if found[0] in "\"'":
        return "a string does not end on its line"
    if found[0] in ".0123456789":
        is_octal = re.fullmatch("0[0-9]", found)
        return "a number with a leading zero is octal and has no digit above 7" if is_octal else "a number runs into the next word"
    byte = ord(found[0]) - 0xDC00
    return f"the byte 0x{byte:X} cannot stand here" if 0x80 <= byte <= 0xFF else f"the character {found[0]!r} cannot stand here"


def inner(fields: Iterable[Field], name: str, *deeper: str) -> Iterator[Value]:
    """The values of all fields of this name, or of those that the deeper names lead to."""
    values = (value for field in fields if field.name == name for value in field.values)
    return chain.from_iterable(inner(value.fields, *deeper) for value in values) if deeper else values


def unquoted(text: str, string: Value) -> str:
    """What a string of the text says, with the escapes that C++ knows and Python does not. Raises UnicodeError: it is not UTF-8."""
    pieces = (match["string"] for match in _TOKEN.finditer(text, string.start, string.end) if match["string"])
    known = (_ESCAPED.sub(lambda escape: {"X": r"\x", "?": "?"}.get(escape[1], escape[0]), piece[1:-1]) for piece in pieces)
    return b"".join(map(text_encoding.CUnescape, known)).decode()


def quoted(value: str) -> str:
    """A string as a text-format literal on one line."""
    return f'"{text_encoding.CEscape(value.encode(), as_utf8=True)}"'


def position(text: str, offset: int) -> str:
    """Line and column of an offset, both from 1."""
    return f"line {text.count(chr(10), 0, offset) + 1}, column {offset - text.rfind(chr(10), 0, offset)}"


def splice(text: str, edits: Iterable[Edit], start: int = 0, end: int | None = None) -> str:
    """The text between two offsets with the edits made, which are in order, do not overlap and lie inside."""
    parts = []
    at = start
    for edit in edits:
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
