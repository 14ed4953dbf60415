"""
The one pass over a document of S3: it is XML, and the rows of a listing are as botocore gives them. Pure.

botocore passes over a listing twice more: for an error in an answer of status 200, and for a tree of nodes and the fields
in it. Here the fields that somebody reads, or that botocore refuses or decodes, are filled as they come. What is odd in any
way (another document, an element twice, a prefix, a comment, a number that is none) is left to botocore, and so is the
URL encoding of keys.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from xml.parsers.expat import ParserCreate, XMLParserType

_Fields = dict[str, Any]
_ROOT = "ListBucketResult"
_OF_ROOT = frozenset({"IsTruncated", "Prefix", "Delimiter", "StartAfter", "EncodingType", "NextContinuationToken", "MaxKeys", "KeyCount"})
_OF_ROWS = {"Contents": frozenset({"Key", "ETag", "Size", "ChecksumAlgorithm", "ChecksumType"}), "CommonPrefixes": frozenset({"Prefix"})}
_READ: dict[str, Callable[[str], Any]] = {
    "Size": int,
    "MaxKeys": int,
    "KeyCount": int,
    "IsTruncated": {"true": True, "false": False}.__getitem__,
}
_LISTS = frozenset({"ChecksumAlgorithm"})
_NAMESPACE = re.compile(r"(?!.*www\.w3\.org)[\w.:/-]*", re.ASCII)
"""Of servers. Those of XML itself cannot be the default one."""
_ROW = 2
"""Depth of an element within a row; the root has 0, a row 1."""


def read_document(document: bytes) -> _Fields | None:
    """
    What botocore makes of a listing, as far as anybody reads it. None: another document, or an odd one.

    Raises ExpatError: no XML.
    """
    parser, is_odd = ParserCreate("utf-8"), False
    found: _Fields = {}
    into, wanted, level = found, _OF_ROOT, 1  # where fields go; which; how deep they are
    depth, field = 0, ""  # of what comes; the wanted one whose text comes
    texts: list[str] = []

    def leave(*_: object) -> None:
        """The rest is only looked at for being XML."""
        nonlocal is_odd
        is_odd = True
        found.clear()
        _silence(parser)

    def start(name: str, attributes: list[str]) -> None:
        nonlocal depth, level, field, into, wanted
        if field or (attributes and not _is_harmless(attributes)):
            leave()
        elif depth == level and name in wanted:
            if name in into and name not in _LISTS:
                leave()
            field = name
            texts.clear()
        elif depth == 1 and name in _OF_ROWS:
            into, wanted, level = {}, _OF_ROWS[name], _ROW
            found.setdefault(name, []).append(into)
        elif ":" in name or (depth == 0 and name != _ROOT):
            leave()
        depth += 1

    def end(_: str) -> None:
        nonlocal depth, level, field, into, wanted
        depth -= 1
        if field:
            text = "".join(texts)
            try:
                if field in _LISTS:
                    into.setdefault(field, []).append(text)
                else:
                    into[field] = _READ.get(field, str)(text)
            except (ValueError, KeyError):
                leave()
            field = ""
        elif depth == 1:
            into, wanted, level = found, _OF_ROOT, 1

    parser.buffer_text = parser.ordered_attributes = True
    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, texts.append
    parser.CommentHandler = parser.ProcessingInstructionHandler = leave
    try:
        parser.Parse(document, True)
    finally:
        _silence(parser)  # a handler and its parser hold each other, and all that was found
    return None if is_odd else found


def _silence(parser: XMLParserType) -> None:
    parser.StartElementHandler = parser.EndElementHandler = parser.CharacterDataHandler = None
    parser.CommentHandler = parser.ProcessingInstructionHandler = None


def _is_harmless(attributes: list[str]) -> bool:
    """Of an element: a default namespace that botocore passes over."""
    return attributes[0] == "xmlns" and len(attributes) == len(("xmlns", "")) and bool(_NAMESPACE.fullmatch(attributes[1]))
