"""
What a web server says of one version of a file, and how a request is made to hold to it. Pure.

A version is a strong ETag, or else a weak one, or else the date of the last change; the last two can
miss a change within their grain, which the length of the file then has to tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import formatdate, parsedate_to_datetime

_WEAK, _DATE = "weak-", "modified-"


def version_of(headers: Mapping[str, str]) -> str:
    """Opaque text, without quotes and weak marks; empty when the server tells nothing."""
    etag = headers.get("ETag", "").strip()
    if etag.startswith("W/"):
        return _WEAK + etag.removeprefix("W/").strip('"')
    if etag:
        return etag.strip('"')
    changed = _seconds(headers.get("Last-Modified"))
    return "" if changed is None else f"{_DATE}{changed}"


def guards(version: str, *, is_range: bool) -> dict[str, str]:
    """Request headers that make a server refuse another version, or send it whole instead of the range."""
    if not version or version.startswith(_WEAK):
        return {}
    if version.startswith(_DATE):
        date = formatdate(int(version.removeprefix(_DATE)), usegmt=True)
        return {"If-Unmodified-Since": date} | ({"If-Range": date} if is_range else {})
    return {"If-Match": f'"{version}"'} | ({"If-Range": f'"{version}"'} if is_range else {})


def length_of(headers: Mapping[str, str]) -> int | None:
    """Of a whole body, in bytes; None when the server does not say."""
    text = headers.get("Content-Length", "").strip()
    return int(text) if text.isdecimal() else None


def _seconds(date: str | None) -> int | None:
    try:
        return None if date is None else int(parsedate_to_datetime(date).timestamp())
    except (ValueError, OverflowError):
        return None
