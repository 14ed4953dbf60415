"""
What a web server says of one version of a file, and how a request is made to hold to it. Pure.

A version is a strong ETag, or else a weak one, or else the date of the last change; the last two can
miss a change within their grain, which the length of the file then has to tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import formatdate, parsedate_to_datetime

from adapter.storage.checksums import Checksum, readable
from adapter.storage.stores.answers import etag_of

_WEAK, _DATE = "weak-", "modified-"
_GZIP = ("gzip", "x-gzip")
_CODINGS = (*_GZIP, "br", "compress", "deflate", "x-compress", "zstd")
_NO_CODINGS = ("", "aws-chunked", "binary", "chunked", "identity", "none", "utf-8")
"""Of the body as it is: some are put there by mistake, `aws-chunked` by S3 clients, whose servers store it."""
_PACKED_NAMES = (".gz", ".tgz")


def version_of(headers: Mapping[str, str]) -> str:
    """Opaque text, without quotes and weak marks; empty when the server tells nothing."""
    etag = headers.get("etag", "").strip()
    if etag.startswith("W/"):
        return _WEAK + etag_of(etag)
    if etag:
        return etag.strip('"')
    changed = _seconds(headers.get("last-modified"))
    return "" if changed is None else f"{_DATE}{changed}"


def listed_version_of(headers: Mapping[str, str]) -> str:
    """
    As `version_of`, for a file that is asked for the first time: the date of a change in the second of the answer is none.

    Another change in that second would have the same date. Source: RFC 9110, 8.8.2.2.
    """
    version = version_of(headers)
    if version.startswith(_DATE) and _seconds(headers.get("date")) == int(version.removeprefix(_DATE)):
        return ""
    return version


def guards(version: str, *, is_range: bool) -> dict[str, str]:
    """Request headers that make a server refuse another version, or send it whole instead of the range."""
    if not version or version.startswith(_WEAK):
        return {}
    if version.startswith(_DATE):
        date = formatdate(int(version.removeprefix(_DATE)), usegmt=True)
        return {"If-Unmodified-Since": date} | ({"If-Range": date} if is_range else {})
    return {"If-Match": f'"{version}"'} | ({"If-Range": f'"{version}"'} if is_range else {})


def is_held_to(wanted: str, version: str, *, is_part: bool) -> bool:
    """
    Whether an answer is of the wanted version, as far as there is one.

    A part that was asked for by date need not name its date again (RFC 9110, 15.3.7).
    """
    return not wanted or version == wanted or (not version and is_part and wanted.startswith(_DATE))


def encoding_of(headers: Mapping[str, str], key: str) -> str:
    """
    In what a body differs from the file as it is stored; empty when it does not.

    Web servers are told by the end of a name that a file is compressed (Apache's `AddEncoding x-gzip .gz .tgz`), and send
    the file as it is, so there the word says nothing.
    """
    given = ",".join(headers.get(name, "") for name in ("content-encoding", "transfer-encoding")).lower()
    codings = [coding for part in given.split(",") if (coding := part.strip()) not in _NO_CODINGS]
    if key.lower().endswith(_PACKED_NAMES) and all(coding in _GZIP for coding in codings):
        return ""
    return ", ".join(coding if coding in _CODINGS else "an unknown one" for coding in codings[:3])


def checksums_of(headers: Mapping[str, str]) -> tuple[Checksum, ...]:
    """Of the whole file, also with a part of it: `Repr-Digest: sha-256=:…:`. Source: RFC 9530, 3."""
    pairs = (each.strip().partition("=") for each in headers.get("repr-digest", "").split(","))
    return readable((name.replace("-", ""), text[1:-1]) for name, _, text in pairs if text[:1] == text[-1:] == ":")


def _seconds(date: str | None) -> int | None:
    try:
        return None if date is None else int(parsedate_to_datetime(date).timestamp())
    except (ValueError, OverflowError):
        return None
