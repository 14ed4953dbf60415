"""
Reads protocol-buffer text format, without a schema and without loss.

Owns the grammar. Knows nothing of Triton's messages and does no I/O.

Source: https://protobuf.dev/reference/protobuf/textformat-spec, and where it is silent what
protobuf's C++ tokenizer accepts, since that is what Triton reads with.
"""

from __future__ import annotations

import re
from typing import NoReturn

from adapter.layout.textproto import Field, Message, Scalar, Sequence, position

MAX_DEPTH = 64
"""Levels of nesting; Triton's own messages need fewer than ten."""

_CLOSERS = {"{": "}", "<": ">"}
_GAP = re.compile(r"(?:[ \t\n\r\f\v]++|#[^\n]*+)*+")
_TOKEN = re.compile(
    r"""
      (?P<word>   [A-Za-z_][A-Za-z0-9_]* )
    | (?P<number> 0[xX][0-9a-fA-F]+ | (?: [0-9]+ (?:\.[0-9]*)? | \.[0-9]+ ) (?:[eE][+-]?[0-9]+)? [fF]? )
    | (?P<string> "[^"\\\n]*(?:\\[^\n][^"\\\n]*)*" | '[^'\\\n]*(?:\\[^\n][^'\\\n]*)*' )
    | (?P<mark>   [{}<>\[\]:,;/.-] )
    """,
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([\s\S]))")
_SIMPLE_ESCAPES = {"a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11, "\\": 92, "'": 39, '"': 34, "?": 63}
_NEGATABLE = frozenset({"inf", "infinity", "nan"})


class ParseError(ValueError):
    """The text is not text format; says what was expected, and where."""

    def __init__(self, problem: str, line: int, column: int) -> None:
        super().__init__(f"line {line}, column {column}: {problem}")
        self.problem = problem
        self.line = line
        self.column = column


def parse(text: str) -> Message:
    """
    The whole text as one message without braces; bytes that are not UTF-8 are in it as `surrogateescape` has them.

    Raises:
        ParseError: with line and column, both from 1.
    """
    parser = _Parser(text)
    message = Message(parser.fields(None), 0, len(text))
    if (nul := text.find("\0")) >= 0:  # in a comment or a string
        parser.fail(r"the character '\x00' cannot stand here", nul)
    return message


class _Parser:
    """One token ahead, never back."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.kind = ""
        self.start = self.end = 0
        self.depth = 0
        self.advance()

    @property
    def lexeme(self) -> str:
        return self.text[self.start : self.end]

    def advance(self) -> None:
        gap = _GAP.match(self.text, self.end)
        self.start = gap.end() if gap else self.end
        if self.start == len(self.text):
            self.kind, self.end = "end", self.start
            return
        match = _TOKEN.match(self.text, self.start)
        if match is None:
            found = self.text[self.start]
            if found in "\"'":
                self.fail("a string does not end on its line")
            byte = ord(found) - 0xDC00
            self.fail(f"the byte 0x{byte:X} cannot stand here" if 0x80 <= byte <= 0xFF else f"the character {found!r} cannot stand here")
        self.kind, self.end = str(match.lastgroup), match.end()
        if self.kind == "number" and re.match(r"[A-Za-z0-9_.]", self.text[self.end : self.end + 1]):
            self.fail("a number runs into the next word")

    def fail(self, problem: str, offset: int | None = None) -> NoReturn:
        raise ParseError(problem, *position(self.text, self.start if offset is None else offset))

    def wanted(self, what: str) -> NoReturn:
        found = "the end of the text" if self.kind == "end" else repr(self.lexeme[:40])
        self.fail(f"expected {what}, found {found}")

    def accept(self, marks: str) -> bool:
        if self.kind == "mark" and self.lexeme in marks:
            self.advance()
            return True
        return False

    def fields(self, closer: str | None) -> tuple[Field, ...]:
        found = []
        while not (self.kind == "end" if closer is None else self.lexeme == closer and self.kind == "mark"):
            found.append(self.field(closer))
        return tuple(found)

    def field(self, closer: str | None) -> Field:
        start = self.start
        name = self.name(closer)
        has_colon = self.accept(":")
        value = self.sequence(has_colon) if self.lexeme == "[" else self.value(has_colon)
        end = self.end
        return Field(name, value, start, end if self.accept(";,") else value.end)

    def name(self, closer: str | None) -> str:
        start, end = self.start, self.end
        if self.kind == "word":
            self.advance()
            return self.text[start:end]
        if not self.accept("["):
            self.wanted("a field name" if closer is None else f"a field name or {closer!r}")
        parts: list[str] = []
        while self.kind == "word" or (self.kind == "mark" and self.lexeme in "/.-") or (self.kind == "number" and parts):
            parts.append(self.lexeme)
            self.advance()
        if not parts or not self.accept("]"):
            self.wanted("an extension name and ']'")
        return "[" + "".join(parts) + "]"

    def value(self, has_colon: bool) -> Scalar | Message:
        if self.kind == "mark" and self.lexeme in _CLOSERS:
            return self.message()
        if not has_colon:
            self.wanted("':'")
        return self.scalar()

    def message(self) -> Message:
        start, closer = self.start, _CLOSERS[self.lexeme]
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail(f"messages are nested more than {MAX_DEPTH} levels deep")
        self.advance()
        fields = self.fields(closer)
        end = self.end
        self.advance()
        self.depth -= 1
        return Message(fields, start, end)

    def sequence(self, has_colon: bool) -> Sequence:
        start = self.start
        self.advance()
        values: list[Scalar | Message] = []
        while self.lexeme != "]" or values:
            values.append(self.value(has_colon))
            if self.lexeme == "]":
                break
            if not self.accept(","):
                self.wanted("',' or ']'")
        end = self.end
        self.advance()
        return Sequence(tuple(values), start, end)

    def scalar(self) -> Scalar:
        start, end = self.start, self.end
        if self.kind == "string":
            return self.string()
        if self.kind == "word":
            self.advance()
            return Scalar("word", self.text[start:end], start, end)
        is_negative = self.accept("-")
        end = self.end
        text = "-" * is_negative + self.lexeme
        if is_negative and self.kind == "word" and self.lexeme.lower() in _NEGATABLE:
            self.advance()
            return Scalar("word", text, start, end)
        if self.kind != "number":
            self.wanted("a number" if is_negative else "a value")
        integer = self.integer()
        self.advance()
        if integer is None:
            return Scalar("float", text, start, end)
        return Scalar("integer", -integer if is_negative else integer, start, end)

    def integer(self) -> int | None:
        digits = self.lexeme
        if digits[:2] in ("0x", "0X"):
            return int(digits, 16)
        if not digits.isdigit():
            return None
        if len(digits) > 1 and digits[0] == "0":
            if digits.strip("01234567"):
                self.fail("a number with a leading zero is octal and has no digit above 7")
            return int(digits, 8)
        return int(digits[:40])  # no field holds more, and int() of many digits is slow

    def string(self) -> Scalar:
        start = end = self.start
        pieces = []
        while self.kind == "string":
            pieces.append(self.unescaped(self.text[self.start + 1 : self.end - 1]))
            end = self.end
            self.advance()
        return Scalar("string", _decoded(b"".join(pieces)), start, end)

    def unescaped(self, piece: str) -> bytes:
        parts = []
        at = 0
        for match in _ESCAPE.finditer(piece):
            parts += [piece[at : match.start()].encode("utf-8", "surrogateescape"), self.escape(match)]
            at = match.end()
        return b"".join([*parts, piece[at:].encode("utf-8", "surrogateescape")])

    def escape(self, match: re.Match[str]) -> bytes:
        octal, hexadecimal, short, long, simple = match.groups()
        if octal or hexadecimal:
            return bytes([(int(octal, 8) if octal else int(hexadecimal, 16)) & 0xFF])
        if simple in _SIMPLE_ESCAPES:
            return bytes([_SIMPLE_ESCAPES[simple]])
        code = int(short or long or "ffffffff", 16)
        if code > 0x10FFFF:
            self.fail("a string holds an unknown escape", self.start + 1 + match.start())
        return chr(code).encode("utf-8", "surrogatepass")


def _decoded(content: bytes) -> str:
    """Content that is not UTF-8, which is legal in fields of type bytes, keeps a surrogate for each such byte."""
    try:
        halves = content.decode("utf-8", "surrogatepass").encode("utf-16-le", "surrogatepass")
    except UnicodeDecodeError:
        return content.decode("utf-8", "surrogateescape")
    return halves.decode("utf-16-le", "surrogatepass")  # joins the halves of \ud83d\ude00
