"""
The language of S3: ListObjectsV2 and GetObject. Pure.

Source: Amazon S3 API Reference, ListObjectsV2, GetObject, Error responses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import quote, unquote_plus, urlencode

from adapter.errors import AdapterError, SourceDenied, SourceNotFound, SourceUnavailable
from adapter.storage.bucket import PAGE_OBJECTS, Page, StoredObject
from adapter.storage.checksums import ALGORITHMS, Checksum, readable
from adapter.storage.net.messages import Head
from adapter.storage.stores.answers import etag_of
from adapter.storage.stores.body import Part
from adapter.storage.stores.cloud import Dialect, ListingQuery
from adapter.storage.stores.xml_rows import Shape, code_in, read_rows

MOST_KEY_BYTES = 1024
"""Source: Amazon S3 User Guide, Naming Amazon S3 objects."""
MOST_TOKEN_CHARACTERS = 8 * 1024
"""Tokens hold a key, in an encoding of the server's own, and go back in a URL."""
SHAPE = Shape(
    root="ListBucketResult",
    rows={
        "Contents": frozenset({"Key", "ETag", "Size", "ChecksumAlgorithm", "ChecksumType"}),
        "CommonPrefixes": frozenset({"Prefix"}),
    },
    fields=frozenset({"IsTruncated", "EncodingType", "KeyCount", "NextContinuationToken"}),
    lists=frozenset({"ChecksumAlgorithm"}),
    most_tags=64 * PAGE_OBJECTS,
    most_attribute_bytes=256 * PAGE_OBJECTS,
)
"""A row has 14 elements when all of its fields are there. Some servers name the language in each row, or owner."""
ASKING = {"x-amz-checksum-mode": "ENABLED"}
"""Header of the requests whose answers tell checksums."""
_FULL = "FULL_OBJECT"
"""The other type, COMPOSITE, is a checksum of the checksums of parts. Source: Amazon S3 API Reference, `ChecksumType`."""
_CHECKSUM = "x-amz-checksum-"
_MOST_SIZE_BYTES = 2**63 - 1
_DENIED = (
    "AccessDenied", "AccountProblem", "AllAccessDisabled", "ExpiredToken", "InvalidAccessKeyId", "InvalidSecurity", "InvalidToken",
    "MissingSecurityHeader", "NotSignedUp", "RequestExpired", "RequestTimeTooSkewed", "SignatureDoesNotMatch", "TokenRefreshRequired",
    "UnauthorizedAccess", "UnsupportedAlgorithm",
)  # fmt: skip
_AWAY = (
    "BandwidthLimitExceeded", "IDPCommunicationError", "InternalError", "OperationAborted",
    "RequestLimitExceeded", "RequestThrottled", "RequestTimeout",
    "ServiceUnavailable", "SlowDown", "Throttling", "ThrottlingException", "TooManyRequests",
)  # fmt: skip
MEANINGS: dict[str, type[AdapterError]] = {
    **dict.fromkeys(_DENIED, SourceDenied),
    **dict.fromkeys(_AWAY, SourceUnavailable),
    "NoSuchBucket": SourceNotFound,
}
"""Of the codes that say more than the status."""


class S3Dialect(Dialect):
    """As `Dialect`."""

    owner = "S3's: is something else there?"
    version = "etag"
    version_name = "ETag"
    meanings = MEANINGS

    def listing(self, wanted: ListingQuery) -> str:
        """As `Dialect`."""
        query = {"list-type": "2", "prefix": wanted.prefix, "max-keys": str(wanted.limit), "encoding-type": "url"}
        if wanted.by_folder:
            query["delimiter"] = "/"
        if wanted.token:
            query["continuation-token"] = wanted.token
        return f"?{urlencode(sorted(query.items()), quote_via=quote, safe='~')}"

    def page_of(self, content: bytes, wanted: ListingQuery) -> Page:
        """As `Dialect`. Raises SourceUnavailable: a listing that was cut short."""
        read = read_rows(content, SHAPE)
        int(read.fields.get("KeyCount") or 0)
        told = read.fields.get("IsTruncated", "")
        is_cut = told == "true"
        if not is_cut and told.strip() != "false":
            raise ValueError("neither the end nor a part")
        token = read.fields.get("NextContinuationToken", "") if is_cut else ""
        if is_cut and not token:
            raise SourceUnavailable("cut its listing short without saying where it goes on")
        if len(token) > MOST_TOKEN_CHARACTERS:
            raise ValueError("a token that is too long")
        decode = unquote_plus if read.fields.get("EncodingType") == "url" else str
        objects = tuple(_stored(row, decode(row["Key"])) for path, row in read.rows if path == "Contents" and "Key" in row)
        folders = tuple(_checked(decode(row["Prefix"])) for path, row in read.rows if path == "CommonPrefixes" and "Prefix" in row)
        if len(objects) + len(folders) != len(read.rows) or len(read.rows) > PAGE_OBJECTS:  # small servers do not heed a smaller limit
            raise ValueError("rows without a name, or more than a page has")
        return Page(objects=objects, folders=folders, next_token=token or None)

    def object(self, part: Part) -> tuple[str, Mapping[str, str]]:
        """As `Dialect`."""
        headers = {"If-Match": f'"{part.wanted.etag}"'} if part.wanted.etag else {}
        headers |= ASKING if part.is_whole else {"Range": part.range}
        return f"/{quote(part.wanted.key, safe='/~')}", headers

    def checksums(self, headers: Mapping[str, str]) -> Sequence[Checksum]:
        """As `Dialect`. Older servers tell no type."""
        if "content-range" in headers or headers.get(f"{_CHECKSUM}type", _FULL).strip() != _FULL:
            return ()
        return readable((name, told) for name in ALGORITHMS if (told := headers.get(_CHECKSUM + name)))

    def code(self, head: Head) -> str:
        """As `Dialect`."""
        return code_in(head.error)


def full_checksum(algorithms: Sequence[str], kind: str | None) -> str:
    """Of a row: the algorithm of one that parts make and that is of the whole object, as `StoredObject.checksum`; else empty."""
    names = {name.lower() for name in algorithms} if kind == _FULL else set()
    return next((name for name in ALGORITHMS if name in names and Checksum(name).is_combined), "")


def _stored(row: Mapping[str, str], key: str) -> StoredObject:
    size = int(row.get("Size", ""))
    if not 0 <= size <= _MOST_SIZE_BYTES:
        raise ValueError("a size that is none")
    etag = etag_of(row.get("ETag"))
    checksum = full_checksum(row.get("ChecksumAlgorithm", "").split(), row.get("ChecksumType"))
    return StoredObject(_checked(key), size, _checked(etag), checksum=checksum)


def _checked(name: str) -> str:
    if len(name.encode()) > MOST_KEY_BYTES:
        raise ValueError("a key, or a version, that is too long")
    return name
