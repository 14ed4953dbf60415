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
from typing import Final, NamedTuple, NoReturn

from google.protobuf import text_encoding

MAX_DEPTH = 64
"""Levels of nesting; Triton's own messages need fewer than ten."""
_CLOSERS: Final = {"{": "}", "<": ">"}
_ESCAPE: Final = r"""\\(?: [0-7]{1,3} | x[0-9a-fA-F]{1,2} | u[0-9a-fA-F]{4} | U00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4} | [abfnrtv\\'"] )"""
_STRINGS: Final = "|".join(rf"{quote}[^{quote}\\\n\0]*+(?:{_ESCAPE}[^{quote}\\\n\0]*+)*+{quote}" for quote in "\"'")
_NUMBER: Final = r"(?: 0[xX][0-9a-fA-F]+ | 0[0-7]+ | (?: (?:0|[1-9][0-9]*+)(?:\.[0-9]*+)? | \.[0-9]+ )(?:[eE][+-]?[0-9]+)?[fF]? )"
_TOKEN: Final = re.compile(
    rf"""
    (?: [ \t\n\r\f\v]++ | \#[^\n\0]*+ )*+
    (?: (?P<end>    \Z )
      | (?P<word>   [A-Za-z_][A-Za-z0-9_]*+ )
      | (?P<number> -(?:[iI]nf(?:inity)?|[nN]a[nN]) | -?{_NUMBER}(?![A-Za-z0-9_.]) )
      | (?P<string> {_STRINGS} )
      | (?P<mark>   [{{}}<>\[\]:,;/.] )
      | (?P<other>  . ) )
    """,
    re.VERBOSE | re.DOTALL,
)


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
    start: int
    end: int
    """After the separator that may follow the value."""


class Edit(NamedTuple):
    """Replace one span, or take it out; equal ends insert."""

    start: int
    end: int
    text: str = ""


def scan(text: str) -> tuple[Field, ...]:
    """
    The fields of the whole text; bytes that are not UTF-8 are in it as `surrogateescape` has them.

    Raises:
        Problem: the text is not text format.
    """
    return _Scanner(text).fields("", 0)


def tokens(text: str, start: int, end: int) -> Iterator[tuple[str, int, str]]:
    """What stands between two offsets, each with its kind and its own offset, without spaces and comments."""
    for match in _TOKEN.finditer(text, start, end):
        kind = str(match.lastgroup)
        if kind != "end":
            yield kind, match.start(kind), match[kind]


class _Scanner:
    """One token ahead, never back."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = tokens(text, 0, len(text))
        self.kind, self.start, self.lexeme = "", 0, ""
        self.advance()

    def advance(self) -> None:
        """Step over a token, which ends at `passed`."""
        self.passed = self.start + len(self.lexeme)
        self.kind, self.start, self.lexeme = next(self.tokens, ("end", len(self.text), ""))

    def wanted(self, what: str) -> NoReturn:
        rest = self.text[self.start : self.start + 40].split("\n")[0]
        raise Problem(self.start, f"expected {what}, found {repr(rest) if self.lexeme else 'the end of the text'}")

    def accept(self, *marks: str) -> bool:
        if is_there := self.lexeme in marks:
            self.advance()
        return is_there

    def fields(self, closer: str, depth: int) -> tuple[Field, ...]:
        if depth > MAX_DEPTH:
            raise Problem(self.start, f"messages are nested more than {MAX_DEPTH} levels deep")
        found = []
        while self.lexeme != closer:
            start, name = self.start, self.name(closer)
            if not self.accept(":") and self.lexeme not in ("{", "<", "["):
                self.wanted("':'")
            values = [] if (is_list := self.accept("[")) else [self.value(depth)]
            while is_list and not self.accept("]"):
                if values and not self.accept(","):
                    self.wanted("',' or ']'")
                values.append(self.value(depth))
            self.accept(",", ";")
            found.append(Field(name, tuple(values), start, self.passed))
        return tuple(found)

    def name(self, closer: str) -> str:
        start, name = self.start, self.lexeme
        if self.kind == "word":
            self.advance()
            return name
        if self.accept("["):
            while self.kind == "word" or self.lexeme in ("/", "."):
                self.advance()
            if self.accept("]"):
                return "".join(self.text[start : self.passed].split())
        self.wanted(f"a field name or {closer!r}" if closer else "a field name")

    def value(self, depth: int) -> Value:
        start, kind = self.start, self.kind
        if closer := _CLOSERS.get(self.lexeme):
            self.advance()
            fields = self.fields(closer, depth + 1)
            self.advance()
            return Value("message", start, self.passed, fields)
        if kind not in ("word", "number", "string"):
            self.wanted("a value")
        self.advance()
        while kind == self.kind == "string":
            self.advance()
        return Value(kind, start, self.passed)


def inner(fields: Iterable[Field], name: str, *deeper: str) -> Iterator[Value]:
    """The values of all fields of this name, or of those that the deeper names lead to."""
    values = (value for field in fields if field.name == name for value in field.values)
    return chain.from_iterable(inner(value.fields, *deeper) for value in values) if deeper else values


def unquoted(text: str, string: Value) -> str:
    """What a string of the text says, in all its pieces."""
    return b"".join(text_encoding.CUnescape(piece[1:-1]) for _, _, piece in tokens(text, string.start, string.end)).decode()


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
