"""
What an answer of S3 may be, before it is parsed, and after. Pure.

A document of a few MiB can become a hundred in a parser: with a million empty elements, with as many attributes, with
entities. What a page of 1,000 keys can have is known, and nothing beyond it is parsed. What botocore takes for a
listing is checked row by row: it has no opinion on sizes, and takes any text but `true` for the end of a listing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from xml.parsers.expat import ExpatError

from botocore.parsers import ResponseParserError

from adapter.errors import SourceUnavailable
from adapter.storage.bucket import PAGE_OBJECTS, Page, StoredObject
from adapter.storage.stores.answers import Where
from adapter.storage.stores.s3.checksums import full_checksum
from adapter.storage.stores.s3.rows import read_document

MOST_KEY_BYTES = 1024
"""Source: Amazon S3 User Guide, Naming Amazon S3 objects."""
MOST_TOKEN_CHARACTERS = 8 * 1024
"""Tokens hold a key, in an encoding of the server's own, and go back in a URL."""
MOST_TAGS = 64 * PAGE_OBJECTS
"""Opening and closing ones. A row of `ListObjectsV2` has 14 elements when all of its fields are there."""
MOST_ATTRIBUTE_BYTES = 256 * PAGE_OBJECTS
"""Tags with attributes, together. Amazon has one in a listing, with the name of its language; others have one for each row, or owner."""
_MOST_SIZE_BYTES = 2**63 - 1
_WITH_ATTRIBUTES = re.compile(rb"<[^<>=]*=[^<>]*>?")
_GOOD_ATTRIBUTES = re.compile(rb"""<\??[\w:.-]+(?:\s+[\w:.-]+\s*=\s*(?:"[^"<>]*"|'[^'<>]*'))*\s*[/?]?>""")
_END = re.compile(rb"<(?:[\w.-]+:)?IsTruncated\s*>([^<]*)<")


def check_document(body: bytes) -> Mapping[str, Any] | None:
    """
    Raise ResponseParserError for what is no XML document that an S3 would send, in time linear in its length.

    Returns:
        As `read_document`: what a listing holds, so that it is passed over once.
    """
    if body.count(b"<") > MOST_TAGS:
        raise ResponseParserError("more tags than a page can have")
    if b"\0" in body or b"<!DOCTYPE" in body or b"<!ENTITY" in body:
        raise ResponseParserError("entities, or UTF-16: the one other encoding that the parser takes")
    attributes = 0
    for tag in _WITH_ATTRIBUTES.finditer(body):
        attributes += tag.end() - tag.start()
        if attributes > MOST_ATTRIBUTE_BYTES or not _GOOD_ATTRIBUTES.fullmatch(tag[0]):
            raise ResponseParserError("attributes")
    try:
        listing = read_document(body)  # botocore would take half a document for an answer with status 500
    except ExpatError as error:
        raise ResponseParserError("not XML") from error
    if listing is None and any(found[1] != b"true" and found[1].strip() != b"false" for found in _END.finditer(body)):
        raise ResponseParserError("neither the end nor a part")  # botocore takes " true " for false
    return listing


def page_of(answer: Mapping[str, Any], where: Where) -> Page:
    """The page that was read. Raises SourceUnavailable, ResponseParserError, KeyError, TypeError."""
    if "IsTruncated" not in answer:  # another XML document parses as an empty listing
        raise ResponseParserError("another document")
    next_token = answer.get("NextContinuationToken") if answer["IsTruncated"] else None
    if answer["IsTruncated"] and not next_token:
        raise SourceUnavailable(f"{where.words} cut its listing short without saying where it goes on")
    if len(next_token or "") > MOST_TOKEN_CHARACTERS:
        raise ResponseParserError("a token that is too long")
    objects = tuple(_objects(answer.get("Contents", ())))
    folders = tuple(_checked(row["Prefix"]) for row in answer.get("CommonPrefixes", ()))
    if len(objects) + len(folders) > PAGE_OBJECTS:  # fewer may have been asked for, which small servers do not heed
        raise ResponseParserError("more rows than a page has")
    return Page(objects=objects, folders=folders, next_token=next_token)


def _objects(rows: Iterator[Mapping[str, Any]]) -> Iterator[StoredObject]:
    for row in rows:
        size_bytes = row["Size"]
        if not 0 <= size_bytes <= _MOST_SIZE_BYTES:
            raise ResponseParserError("a size that is none")
        checksum = full_checksum(row.get("ChecksumAlgorithm", ()), row.get("ChecksumType"))
        yield StoredObject(_checked(row["Key"]), size_bytes, _checked(bare(row.get("ETag"))), checksum=checksum)


def _checked(name: str) -> str:
    if len(name.encode()) > MOST_KEY_BYTES:
        raise ResponseParserError("a key, or a version, that is too long")
    return name


def bare(etag: str | None) -> str:
    """Without quotes and weak mark: listings and answers of one server differ in them."""
    return (etag or "").removeprefix("W/").strip('"')
