"""
XML that a store sends, parsed where a page can be no more than that. Pure.

A document of a few MiB can become a hundred in a parser: with a million empty elements, with as many attributes, with entities.
"""

from __future__ import annotations

import re
from collections.abc import Container
from xml.etree.ElementTree import Element, ParseError, XMLParser, fromstring

from adapter.storage.bucket import PAGE_OBJECTS

_MOST_ATTRIBUTES = 4 * PAGE_OBJECTS
"""Some servers name the language in each row, or the kind of its owner."""
_ATTRIBUTE = re.compile(rb"=\s*[\"']")
_MOST_TEXT_BYTES = 32 * 1024
"""Between two tags: a key has up to 1,024 bytes, all metadata of a blob 8 KiB."""
_CODE = re.compile(rb"<Code>([^<]*)</Code>")


def code_in(document: bytes) -> str:
    """
    The short code in an error document; empty where it has none.

    Source: Amazon S3 API Reference, Error responses; Azure Storage, Status and error codes.
    """
    found = _CODE.search(document)
    return found[1].decode(errors="replace") if found else ""


def parsed(document: bytes, root: str, *, most_tags: int) -> Element:
    """
    The root of a listing, in time linear in its length.

    Args:
        document: UTF-8.
        root: its name, without a namespace.
        most_tags: opening and closing ones.

    Raises:
        ValueError: not XML, another document, or more than a page can have.
    """
    if document.count(b"<") > most_tags or sum(1 for _ in _ATTRIBUTE.finditer(document)) > _MOST_ATTRIBUTES:
        raise ValueError("more than a page can have")
    if any(document.find(b"<", at, at + _MOST_TEXT_BYTES) < 0 for at in range(0, len(document) - _MOST_TEXT_BYTES, _MOST_TEXT_BYTES)):
        raise ValueError("a text that is no name")
    if b"\0" in document or b"<!DOCTYPE" in document or b"<!ENTITY" in document:
        raise ValueError("entities, or UTF-16: the one other encoding that the parser takes")
    try:
        found = fromstring(document, XMLParser(encoding="utf-8"))  # noqa: S314 - see above
    except ParseError as error:
        raise ValueError("not XML") from error
    if name_of(found) != root:
        raise ValueError("another document")
    return found


def name_of(element: Element) -> str:
    """Without its namespace."""
    return element.tag.rpartition("}")[2]


def fields_of(element: Element, names: Container[str]) -> dict[str, str]:
    """The texts of the children of these names. Raises ValueError: one comes twice."""
    found: dict[str, str] = {}
    for child in element:
        name = name_of(child)
        if name in found:
            raise ValueError("a field that comes twice")
        if name in names:
            found[name] = child.text or ""
    return found
