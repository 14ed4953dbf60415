"""
The language of Azure Blob Storage: List Blobs and Get Blob. Pure.

Source: Azure Storage REST API, List Blobs, Get Blob, Status and error codes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import quote, unquote, urlencode

from adapter.errors import AdapterError, SourceDenied, SourceNotFound
from adapter.storage.bucket import PAGE_OBJECTS, Page, StoredObject
from adapter.storage.checksums import Checksum, readable
from adapter.storage.net.messages import Head
from adapter.storage.stores.answers import Where, code_in
from adapter.storage.stores.body import PARTIAL, Part
from adapter.storage.stores.cloud import ListingQuery
from adapter.storage.stores.xml_rows import Shape, read_rows

VERSION = "2021-12-02"
"""`x-ms-version`: the first one that tells names in another encoding where XML cannot hold them."""
PAGE_BLOBS = 250
"""Rows to ask for: 4 MiB are enough for 16 KiB of each. Metadata, which must be asked for, is up to 8 KiB."""
_FOLDER_MARK = "Metadata/hdi_isfolder"
"""Of the entries that stand for folders in accounts with a hierarchical namespace."""
_SIZE, _ETAG = "Properties/Content-Length", "Properties/Etag"
SHAPE = Shape(
    root="EnumerationResults",
    rows={"Blobs/Blob": frozenset({"Name", _SIZE, _ETAG, _FOLDER_MARK}), "Blobs/BlobPrefix": frozenset({"Name"})},
    fields=frozenset({"NextMarker"}),
    most_tags=120 * PAGE_OBJECTS + 1000,
    most_attribute_bytes=256 * PAGE_OBJECTS,
)
"""A blob has up to 40 properties; the rest is for metadata. Four times as many in a page of `PAGE_BLOBS`."""
_MOST_BYTES_OF_A_BLOB = 200 * 1024**4
"""Azure's bound for a block blob: 190.7 TiB."""
_MEANINGS: dict[str, type[AdapterError]] = {"ContainerNotFound": SourceNotFound, "PublicAccessNotPermitted": SourceDenied}


class AzureDialect:
    """As `Dialect`."""

    owner = "Azure's"
    version = "etag"
    version_name = "ETag"

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
        read = read_rows(content, SHAPE)
        if len(read.rows) > wanted.limit:
            raise ValueError("more rows than a page has")
        objects, folders = [], []
        for number, (path, row) in enumerate(read.rows):
            name = row.get("Name", "")
            if read.attributes.get(number, {}).get("Encoded", "").lower() == "true":
                name = unquote(name)
            if not name:
                raise ValueError("not a name")
            if path == "Blobs/BlobPrefix":
                folders.append(name)
            else:
                objects.append(_stored(row, name))
        return Page(objects=tuple(objects), folders=tuple(folders), next_token=read.fields.get("NextMarker") or None)

    def object(self, part: Part) -> tuple[str, Mapping[str, str]]:
        """As `Dialect`."""
        return f"/{quote(part.wanted.key, safe='/~')}", {"x-ms-range": part.range, "If-Match": f'"{part.wanted.etag}"'}

    def checksums(self, headers: Mapping[str, str]) -> Sequence[Checksum]:
        """As `Dialect`. Of page and append blobs it is as old as the property, which writes do not renew."""
        is_block = headers.get("x-ms-blob-type") == "BlockBlob"
        return readable([("md5", headers.get("x-ms-blob-content-md5"))]) if is_block else ()

    def check(self, head: Head, part: Part, where: Where) -> None:
        """As `Dialect`."""
        if head.status != PARTIAL:
            raise where.other_range(part.wanted.key)

    def code(self, head: Head) -> str:
        """As `Dialect`."""
        return code_in(head.error) or head.headers.get("x-ms-error-code", "")

    def meaning(self, code: str) -> type[AdapterError] | None:
        """As `Dialect`."""
        return _MEANINGS.get(code)


def _stored(row: Mapping[str, str], name: str) -> StoredObject:
    size, etag = int(row.get(_SIZE, "0") or 0), row.get(_ETAG, "").strip('"')
    if not 0 <= size <= _MOST_BYTES_OF_A_BLOB or not etag:
        raise ValueError("not a size, or no version")
    is_folder = row.get(_FOLDER_MARK, "").lower() == "true"
    return StoredObject(f"{name}/" if is_folder else name, size, etag)
