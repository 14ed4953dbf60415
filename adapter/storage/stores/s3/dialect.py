"""
The language of S3: ListObjectsV2 and GetObject. Pure.

Source: Amazon S3 API Reference, ListObjectsV2, GetObject, Error responses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from urllib.parse import quote, unquote_plus, urlencode
from xml.etree.ElementTree import Element

from adapter.errors import AdapterError, SourceDenied, SourceNotFound, SourceUnavailable
from adapter.storage.bucket import PAGE_OBJECTS, Page, Read, StoredObject
from adapter.storage.checksums import ALGORITHMS, Checksum, readable
from adapter.storage.net.messages import Head
from adapter.storage.stores.answers import etag_of
from adapter.storage.stores.cloud import Dialect, ListingQuery
from adapter.storage.stores.xml_pages import code_in, fields_of, name_of, parsed

MOST_KEY_BYTES = 1024
"""Source: Amazon S3 User Guide, Naming Amazon S3 objects."""
MOST_TOKEN_CHARACTERS = 8 * 1024
"""Tokens hold a key, in an encoding of the server's own, and go back in a URL."""
_MOST_TAGS = 64 * PAGE_OBJECTS
"""A row has 14 elements when all of its fields are there."""
_FIELDS = ("IsTruncated", "EncodingType", "KeyCount", "NextContinuationToken")
_FIELDS_OF_A_ROW = ("Key", "ETag", "Size", "ChecksumType")
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
        root = parsed(content, "ListBucketResult", most_tags=_MOST_TAGS)
        fields = fields_of(root, _FIELDS)
        int(fields.get("KeyCount") or 0)
        told = fields.get("IsTruncated", "")
        is_cut = told == "true"
        if not is_cut and told.strip() != "false":
            raise ValueError("neither the end nor a part")
        token = fields.get("NextContinuationToken", "") if is_cut else ""
        if is_cut and not token:
            raise SourceUnavailable("cut its listing short without saying where it goes on")
        if len(token) > MOST_TOKEN_CHARACTERS:
            raise ValueError("a token that is too long")
        decode = unquote_plus if fields.get("EncodingType") == "url" else str
        objects = tuple(_stored(row, decode) for row in root if name_of(row) == "Contents")
        prefixes = (fields_of(row, ("Prefix",))["Prefix"] for row in root if name_of(row) == "CommonPrefixes")
        folders = tuple(_checked(decode(prefix)) for prefix in prefixes)
        if len(objects) + len(folders) > PAGE_OBJECTS:  # small servers do not heed a smaller limit
            raise ValueError("more rows than a page has")
        return Page(objects=objects, folders=folders, next_token=token or None)

    def object(self, read: Read) -> tuple[str, Mapping[str, str]]:
        """As `Dialect`."""
        headers = {"If-Match": f'"{read.wanted.etag}"'} if read.wanted.etag else {}
        headers |= ASKING if read.is_whole else {"Range": read.range}
        return f"/{quote(read.wanted.key, safe='/~')}", headers

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


def _stored(row: Element, decode: Callable[[str], str]) -> StoredObject:
    fields = fields_of(row, _FIELDS_OF_A_ROW)
    size = int(fields["Size"])
    if not 0 <= size <= _MOST_SIZE_BYTES:
        raise ValueError("a size that is none")
    algorithms = [each.text or "" for each in row if name_of(each) == "ChecksumAlgorithm"]
    checksum = full_checksum(algorithms, fields.get("ChecksumType"))
    return StoredObject(_checked(decode(fields["Key"])), size, _checked(etag_of(fields.get("ETag"))), checksum=checksum)


def _checked(name: str) -> str:
    if len(name.encode()) > MOST_KEY_BYTES:
        raise ValueError("a key, or a version, that is too long")
    return name
