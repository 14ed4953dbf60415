"""
The language of Google Cloud Storage: the JSON API, and the media of its objects. Pure.

Source: Cloud Storage JSON API, Objects: list and get; XML API, HTTP headers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated
from urllib.parse import quote, urlencode

import msgspec

from adapter.storage.bucket import PAGE_OBJECTS, Page, Read, StoredObject
from adapter.storage.checksums import Checksum, readable
from adapter.storage.net.messages import Head
from adapter.storage.stores.answers import PARTIAL
from adapter.storage.stores.cloud import Dialect, ListingQuery

FIELDS = "items(name,size,generation),prefixes,nextPageToken"
_MOST_QUOTES_OF_A_ROW = 160
"""Whole objects, which servers in Google's place send whatever was asked for, have up to 40 names and 40 values."""
_MOST_NAME_CHARACTERS = 4096
"""Google's bound is 1,024 bytes."""
_MOST_BYTES_OF_A_FILE = 5 * 1024**4
"""Google's bound for an object."""
_STORED_ENCODING = "x-goog-stored-content-encoding"
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=_MOST_NAME_CHARACTERS)]


class _Row(msgspec.Struct):
    name: _Name
    generation: int | str
    """Google writes numbers of 64 bits as texts."""
    size: int | str = 0


class _Answer(msgspec.Struct):
    items: list[_Row] | None = None
    prefixes: list[_Name] | None = None
    nextPageToken: str | None = None  # noqa: N815 - Google's name


class GcsDialect(Dialect):
    """As `Dialect`, for one bucket."""

    owner = "Google's"
    version = "x-goog-generation"
    version_name = "generation"

    def __init__(self, bucket: str) -> None:
        self._bucket = quote(bucket, safe="~")

    def listing(self, wanted: ListingQuery) -> str:
        """As `Dialect`."""
        query = {"projection": "noAcl", "fields": FIELDS, "maxResults": str(wanted.limit), "prettyPrint": "false", "prefix": wanted.prefix}
        if wanted.by_folder:
            query["delimiter"] = "/"
        if wanted.token:
            query["pageToken"] = wanted.token
        return f"/storage/v1/b/{self._bucket}/o?{urlencode(query)}"

    def page_of(self, content: bytes, wanted: ListingQuery) -> Page:
        """As `Dialect`."""
        if content.count(b'"') > _MOST_QUOTES_OF_A_ROW * PAGE_OBJECTS:  # before a parser makes many times as much of them
            raise ValueError("more than a page")
        answer = msgspec.json.decode(content, type=_Answer)
        objects = tuple(_stored(row) for row in answer.items or ())
        folders = tuple(sorted(answer.prefixes or ()))
        if len(objects) + len(folders) > wanted.limit:
            raise ValueError("more rows than a page has")
        return Page(objects=objects, folders=folders, next_token=answer.nextPageToken or None)

    def object(self, read: Read) -> tuple[str, Mapping[str, str]]:
        """As `Dialect`. An object that was stored packed is wanted as it was stored."""
        query = urlencode({"alt": "media", "generation": read.wanted.etag})
        target = f"/download/storage/v1/b/{self._bucket}/o/{quote(read.wanted.key, safe='~')}?{query}"
        return target, {"Range": read.range, "Accept-Encoding": "gzip"}

    def checksums(self, headers: Mapping[str, str]) -> Sequence[Checksum]:
        """As `Dialect`. `x-goog-hash` is of the whole object as it is stored; composed objects have a CRC32C alone."""
        pairs = (each.strip().partition("=") for each in headers.get("x-goog-hash", "").split(","))
        return readable((name, text) for name, _, text in pairs)

    def is_answer(self, head: Head) -> bool:
        """As `Dialect`. Nothing is unpacked on the way."""
        encoding = head.headers.get("content-encoding", "")
        return head.status == PARTIAL and encoding in ("", head.headers.get(_STORED_ENCODING, encoding))


def _stored(row: _Row) -> StoredObject:
    size, generation = int(row.size), int(row.generation)
    if not 0 <= size <= _MOST_BYTES_OF_A_FILE or generation < 0:
        raise ValueError("not a size, or not a generation")
    return StoredObject(row.name, size, str(generation))
