"""
The language of Azure Blob Storage: List Blobs, Get Blob, and the Shared Key that signs them. Pure.

Source: Azure Storage REST API, List Blobs, Get Blob, Status and error codes, Authorize with Shared Key.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping, Sequence
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit
from xml.etree.ElementTree import Element

from adapter.errors import AdapterError, SourceDenied, SourceNotFound
from adapter.storage.bucket import PAGE_OBJECTS, Page, Read, StoredObject
from adapter.storage.checksums import Checksum, readable
from adapter.storage.net.messages import Head
from adapter.storage.stores.answers import PARTIAL
from adapter.storage.stores.cloud import Dialect, ListingQuery
from adapter.storage.stores.xml_pages import code_in, parsed

VERSION = "2021-12-02"
"""`x-ms-version`: the first one that tells names in another encoding where XML cannot hold them."""
PAGE_BLOBS = 250
"""Rows to ask for: 4 MiB are enough for 16 KiB of each. Metadata, which must be asked for, is up to 8 KiB."""
_MOST_TAGS = 120 * PAGE_OBJECTS + 1000
"""A blob has up to 40 properties; the rest is for metadata. Four times as many in a page of `PAGE_BLOBS`."""
MEANINGS: dict[str, type[AdapterError]] = {"ContainerNotFound": SourceNotFound, "PublicAccessNotPermitted": SourceDenied}
_MOST_BYTES_OF_A_BLOB = 200 * 1024**4
"""Azure's bound for a block blob: 190.7 TiB."""


_SIGNED = ("content-encoding", "content-language", "content-length", "content-md5", "content-type", "date", "if-modified-since",
           "if-match", "if-none-match", "if-unmodified-since", "range")  # fmt: skip


class AzureDialect(Dialect):
    """As `Dialect`."""

    owner = "Azure's"
    version = "etag"
    version_name = "ETag"
    meanings = MEANINGS

    def listing(self, wanted: ListingQuery) -> str:
        """As `Dialect`."""
        query = {"restype": "container", "comp": "list", "prefix": wanted.prefix, "maxresults": str(min(wanted.limit, PAGE_BLOBS))}
        query["include"] = "metadata"
        if wanted.by_folder:
            query["delimiter"] = "/"
        if wanted.token:
            query["marker"] = wanted.token
        return f"?{urlencode(query, quote_via=quote, safe='~')}"

    def page_of(self, content: bytes, wanted: ListingQuery) -> Page:
        """As `Dialect`."""
        root = parsed(content, "EnumerationResults", most_tags=_MOST_TAGS)
        objects = tuple(_stored(row) for row in root.iterfind("Blobs/Blob"))
        folders = tuple(_name(row) for row in root.iterfind("Blobs/BlobPrefix"))
        if len(objects) + len(folders) > wanted.limit:
            raise ValueError("more rows than a page has")
        return Page(objects=objects, folders=folders, next_token=root.findtext("NextMarker") or None)

    def object(self, read: Read) -> tuple[str, Mapping[str, str]]:
        """As `Dialect`."""
        return f"/{quote(read.wanted.key, safe='/~')}", {"x-ms-range": read.range, "If-Match": f'"{read.wanted.etag}"'}

    def checksums(self, headers: Mapping[str, str]) -> Sequence[Checksum]:
        """As `Dialect`. Of page and append blobs it is as old as the property, which writes do not renew."""
        is_block = headers.get("x-ms-blob-type") == "BlockBlob"
        return readable([("md5", headers.get("x-ms-blob-content-md5"))]) if is_block else ()

    def is_answer(self, head: Head) -> bool:
        """As `Dialect`."""
        return head.status == PARTIAL

    def code(self, head: Head) -> str:
        """As `Dialect`."""
        return code_in(head.error) or head.headers.get("x-ms-error-code", "")


def _stored(row: Element) -> StoredObject:
    size, etag = int(row.findtext("Properties/Content-Length") or 0), row.findtext("Properties/Etag", "").strip('"')
    if not 0 <= size <= _MOST_BYTES_OF_A_BLOB or not etag:
        raise ValueError("not a size, or no version")
    is_folder = row.findtext("Metadata/hdi_isfolder", "").lower() == "true"  # in accounts with a hierarchical namespace
    return StoredObject(f"{_name(row)}/" if is_folder else _name(row), size, etag)


def _name(row: Element) -> str:
    found = row.find("Name")
    if found is None or not found.text:
        raise ValueError("not a name")
    is_encoded = found.get("Encoded", "").lower() == "true"  # XML cannot hold it
    return unquote(found.text) if is_encoded else found.text


def authorization(method: str, url: str, headers: Mapping[str, str], account: str, key: bytes) -> str:
    """
    The value of `Authorization` for a request without a body. Compared with the vendor's library by a test over odd names.

    Args:
        method: `GET`.
        url: as it is sent.
        headers: all that are sent.
        account: of the key.
        key: decoded.
    """
    lower = {name.lower(): value for name, value in headers.items()}
    parts = urlsplit(url)
    own = "".join(f"{name}:{lower[name]}\n" for name in sorted(lower) if name.startswith("x-ms-"))
    query: dict[str, list[str]] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        query.setdefault(name.lower(), []).append(value)
    resource = f"/{account}{parts.path}" + "".join(f"\n{name}:{','.join(sorted(query[name]))}" for name in sorted(query))
    text = "\n".join((method, *(lower.get(name, "") for name in _SIGNED), own + resource))
    signature = base64.b64encode(hmac.digest(key, text.encode(), "sha256")).decode()
    return f"SharedKey {account}:{signature}"
