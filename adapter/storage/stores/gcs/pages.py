"""Listings of Google Cloud Storage: how much of one is parsed at all, and what a row must be."""

from __future__ import annotations

from typing import Any

from adapter.storage.bucket import Page, StoredObject

FIELDS = "items(name,size,generation),prefixes,nextPageToken"
_STRINGS_OF_A_ROW = 80
"""Names and values. Whole objects, which servers in Google's place send whatever was asked for, have up to 40 of both."""
_SPARE = 64
"""Strings and brackets that a page has besides its rows."""
_STRING_BYTES = 32 * 1024
"""Most that one has: a name has up to 1,024 bytes, of which JSON may make six each."""
_MOST_BYTES_OF_A_FILE = 5 * 1024**4
"""Google's bound for an object."""


def check_json(text: bytes, rows: int) -> None:
    """
    Raise ValueError when a JSON text has more strings, objects or values than so many rows need.

    A parser makes up to 60 times as much of them as they have bytes: `[{},{},…` of 4 MiB takes 100 MiB.
    """
    most = (_STRINGS_OF_A_ROW + 1) * rows + _SPARE
    strings = values = at = 0
    while True:
        begin = text.find(b'"', at)
        end = len(text) if begin < 0 else begin
        values += sum(text.count(mark, at, end) for mark in (b"{", b"[", b","))
        if strings > most or values > most:
            raise ValueError("more than a page")
        if begin < 0:
            return
        strings += 1
        at = _after_string(text, begin + 1)
        if at - begin > _STRING_BYTES:
            raise ValueError("a string that is no name")


def page_of(rows: Any, size_of_page: int) -> Page:
    """A page of the library's rows. Raises ValueError and whatever else the library raises over rows that are none."""
    objects = tuple(_stored(row) for row in next(rows.pages, ()))
    folders = tuple(sorted(_text(folder) for folder in rows.prefixes))
    if len(objects) + len(folders) > size_of_page:
        raise ValueError("more rows than a page has")
    return Page(objects=objects, folders=folders, next_token=_text(rows.next_page_token) if rows.next_page_token else None)


def _stored(row: Any) -> StoredObject:
    size, generation = int(row.size or 0), int(row.generation)
    if not 0 <= size <= _MOST_BYTES_OF_A_FILE or generation < 0:
        raise ValueError("not a size, or not a generation")
    return StoredObject(_text(row.name), size, str(generation))


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("not a name")
    return value


def _after_string(text: bytes, at: int) -> int:
    """Where the string that begins here has ended."""
    while True:
        end = text.find(b'"', at)
        if end < 0:
            return len(text)
        escapes, look = 0, end - 1
        while look >= at and text[look] == 0x5C:
            escapes, look = escapes + 1, look - 1
        at = end + 1
        if escapes % 2 == 0:
            return at
