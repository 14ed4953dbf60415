"""Listings of Azure Blob Storage: how much of one is parsed at all, and what a row must be."""

from __future__ import annotations

import re
from itertools import islice
from typing import Any

from azure.storage.blob import BlobPrefix

from adapter.storage.bucket import Page, StoredObject

PAGE_BLOBS = 250
"""Rows to ask for: 4 MiB have room for 16 KiB of each. Metadata, which must be asked for, is up to 8 KiB."""
_FOLDER_MARK = "hdi_isfolder"
"""Metadata of the entries that stand for folders in accounts with a hierarchical namespace."""
_TAGS_OF_A_ROW = 120
"""Begins and ends of elements: a blob has up to 40 properties; the rest is for metadata. Four times as many in a page of `PAGE_BLOBS`."""
_SPARE = 1000
_TEXT_BYTES = 32 * 1024
"""Most between two tags. A name has up to 1,024 characters, all metadata of a blob 8 KiB."""
_ATTRIBUTE = re.compile(rb"""=\s?["']""")
_MOST_BYTES_OF_A_BLOB = 200 * 1024**4
"""Azure's bound for a block blob: 190.7 TiB."""


def check_xml(text: bytes, rows: int) -> None:
    """
    Raise ValueError when an XML text has more elements than so many rows need, declares any, or has a text of 64 KiB.

    A parser makes up to 60 times as much of them, and of their attributes, as they have bytes.
    """
    most = _TAGS_OF_A_ROW * rows + _SPARE
    if b"<!" in text or text.count(b"<") > most or next(islice(_ATTRIBUTE.finditer(text), most, None), None) is not None:
        raise ValueError("more than a page")
    if any(text.find(b"<", at, at + _TEXT_BYTES) < 0 for at in range(0, len(text) - _TEXT_BYTES, _TEXT_BYTES)):
        raise ValueError("a text that is no name")


def page_of(pages: Any, size_of_page: int) -> Page:
    """The first of the library's pages. Raises ValueError and whatever else the library raises over rows that are none."""
    rows = list(next(pages, ()))
    if len(rows) > size_of_page:
        raise ValueError("more rows than a page has")
    return Page(
        objects=tuple(_stored(row) for row in rows if not isinstance(row, BlobPrefix)),
        folders=tuple(_text(row.name) for row in rows if isinstance(row, BlobPrefix)),
        next_token=_text(pages.continuation_token) if pages.continuation_token else None,
    )


def _stored(row: Any) -> StoredObject:
    name, size, etag = _text(row.name), int(row.size or 0), (row.etag or "").strip('"')
    if not 0 <= size <= _MOST_BYTES_OF_A_BLOB or not etag:
        raise ValueError("not a size, or no version")
    is_folder = (row.metadata or {}).get(_FOLDER_MARK, "").lower() == "true"
    return StoredObject(f"{name}/" if is_folder else name, size, etag)


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("not a name")
    return value
