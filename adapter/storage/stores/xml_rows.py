"""
The one pass over an XML listing: fields by path, rows in their order. Pure.

A document of a few MiB can become a hundred in a parser: with a million empty elements, with as many attributes, with entities.
What a page can have is known, and nothing beyond it is parsed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from xml.parsers.expat import ExpatError, ParserCreate

_WITH_ATTRIBUTES = re.compile(rb"<[^<>=]*=[^<>]*>?")
_GOOD_ATTRIBUTES = re.compile(rb"""<\??[\w:.-]+(?:\s+[\w:.-]+\s*=\s*(?:"[^"<>]*"|'[^'<>]*'))*\s*[/?]?>""")
_CODE = re.compile(rb"<Code>([^<]*)</Code>")
ENCODED = "Encoded"
"""Attribute of Azure's names that XML cannot hold."""
_TEXT_BYTES = 32 * 1024
"""Most between two tags: a key has up to 1,024 bytes, all metadata of a blob 8 KiB."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What a listing looks like. Paths are names joined by slashes, without namespaces."""

    root: str
    rows: Mapping[str, frozenset[str]]
    """Path of a row below the root → paths of its fields below the row."""
    fields: frozenset[str]
    """Of the document itself."""
    lists: frozenset[str] = frozenset()
    """Fields of rows that come more than once."""
    most_tags: int
    """Opening and closing ones."""
    most_attribute_bytes: int
    """Of tags with attributes, together."""


Row = dict[str, str]


@dataclass
class Document:
    """What a document holds."""

    fields: Row = field(default_factory=dict)
    rows: list[tuple[str, Row]] = field(default_factory=list)
    """Path of each row, and its fields; those of `Shape.lists` are joined by spaces. `ENCODED`: its name is."""


def code_in(document: bytes) -> str:
    """
    The short code in an error document; empty where it has none.

    Source: Amazon S3 API Reference, Error responses; Azure Storage, Status and error codes.
    """
    found = _CODE.search(document)
    return found[1].decode(errors="replace") if found else ""


def read_rows(document: bytes, shape: Shape) -> Document:
    """
    What a listing holds, in time linear in its length.

    Raises:
        ValueError: not XML, another document, more than a page can have, or a field that comes twice.
    """
    _check(document, shape)
    parser = ParserCreate("utf-8", namespace_separator=" ")
    found, path, texts = Document(), [], list[str]()
    row: Row | None = None
    row_depth, wanted = 0, shape.fields

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal row, row_depth, wanted
        path.append(name.rpartition(" ")[2])
        texts.clear()
        if len(path) == 1:
            if path[0] != shape.root:
                raise ValueError("another document")
        elif row is None and (below := "/".join(path[1:])) in shape.rows:
            row, row_depth, wanted = {}, len(path), shape.rows[below]
            found.rows.append((below, row))
        elif row is not None and path[-1] == "Name" and attributes.get(ENCODED, "").lower() == "true":
            row[ENCODED] = "true"

    def end(_: str) -> None:
        nonlocal row, wanted
        if row is not None and len(path) == row_depth:
            row, wanted = None, shape.fields
        else:
            name = "/".join(path[row_depth if row is not None else 1 :])
            if name in wanted:
                into = found.fields if row is None else row
                if name not in into:
                    into[name] = "".join(texts)
                elif name in shape.lists:
                    into[name] += " " + "".join(texts)
                else:
                    raise ValueError("a field that comes twice")
        path.pop()
        texts.clear()

    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, texts.append
    try:
        parser.Parse(document, True)
    except ExpatError as error:
        raise ValueError("not XML") from error
    finally:  # a handler and its parser hold each other
        parser.StartElementHandler = parser.EndElementHandler = parser.CharacterDataHandler = None
    return found


def _check(document: bytes, shape: Shape) -> None:
    if document.count(b"<") > shape.most_tags:
        raise ValueError("more tags than a page can have")
    if b"\0" in document or b"<!DOCTYPE" in document or b"<!ENTITY" in document:
        raise ValueError("entities, or UTF-16: the one other encoding that the parser takes")
    attributes = 0
    for tag in _WITH_ATTRIBUTES.finditer(document):
        attributes += tag.end() - tag.start()
        if attributes > shape.most_attribute_bytes or not _GOOD_ATTRIBUTES.fullmatch(tag[0]):
            raise ValueError("attributes")
    if any(document.find(b"<", at, at + _TEXT_BYTES) < 0 for at in range(0, len(document) - _TEXT_BYTES, _TEXT_BYTES)):
        raise ValueError("a text that is no name")
