"""A connection to S3 (its credentials, and where its buckets are), and its buckets: other regions, and checksums that are asked for."""

from __future__ import annotations

import functools
import hashlib
import hmac
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from urllib.parse import SplitResult, quote, unquote_plus, urlencode, urlsplit
from xml.etree.ElementTree import Element

from botocore.credentials import Credentials, ReadOnlyCredentials

from adapter.errors import AdapterError, InvalidRequest, SourceUnavailable
from adapter.storage.bucket import PAGE_OBJECTS, FileSink, Page, Read, StoredObject
from adapter.storage.checksums import ALGORITHMS, Checksum, readable
from adapter.storage.net.engine import Bridge
from adapter.storage.net.messages import Collected, Head, Trust
from adapter.storage.secret.merging import StorageConfig
from adapter.storage.stores.answers import OK, REDIRECTS, USER_AGENT, code_in, etag_of, fields_of, is_passing, name_of, parsed
from adapter.storage.stores.clients import Means
from adapter.storage.stores.cloud import CloudBucket, CloudClient, Sign, Token, Tokens
from adapter.storage.stores.s3 import S3Connection
from adapter.storage.stores.s3.amazon import MEANINGS, asked, of_environment, place_of
from adapter.units import MIB

TURN_SECONDS = 11 * 60
"""Left to live: below it, credentials are renewed by one caller for all. A minute more than botocore's own `mandatory` bound."""
_OR_ELSE = 'give the storage config an access_key_id and a secret_access_key, or "anonymous": "true" for a public bucket'
_KEPT_PLACES = 256
_LARGE_BYTES = MIB
"""Smaller objects come in one GET, which tells their checksum."""
_ELSEWHERE = frozenset({"AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "PermanentRedirect", "TemporaryRedirect"})
_REGION = re.compile(r"[a-z0-9-]{2,32}")
_MOST_TAGS = 64 * PAGE_OBJECTS
"""A row has 14 elements when all of its fields are there."""
_FIELDS = ("IsTruncated", "EncodingType", "KeyCount", "NextContinuationToken")
_FIELDS_OF_A_ROW = ("Key", "ETag", "Size", "ChecksumType")
_FULL = "FULL_OBJECT"
"""The other type, COMPOSITE, is a checksum of the checksums of parts. Source: Amazon S3 API Reference, `ChecksumType`."""
_CHECKSUM = "x-amz-checksum-"
_ALGORITHM = "AWS4-HMAC-SHA256"
_EMPTY = hashlib.sha256(b"").hexdigest()
_UNSIGNED = ("accept-encoding", "user-agent")
"""Proxies change them."""
_PORTS = {"http": 80, "https": 443}


class S3Client(CloudClient):
    """As `Client`."""

    kind, giver = "s3", "AWS's"

    def __init__(self, connection: S3Connection, means: Means) -> None:
        super().__init__(connection, means)
        self._connection = connection
        self._trust = replace(connection.trust, ca_file=of_environment("ca_bundle"))
        self.region = connection.region or of_environment("region") or "us-east-1"
        self.host = connection.host or "Amazon S3"
        self.endpoint = connection.host or f"{self.host} ({self.region})"
        secrets = (connection.access_key_id, connection.secret_access_key, connection.session_token)
        keys = [secret.reveal() for secret in secrets if secret is not None]
        self._static = Credentials(*keys).get_frozen_credentials() if keys else None
        self._tokens = None if keys or connection.is_anonymous else Tokens(self._ask, early_seconds=TURN_SECONDS)
        self.place = functools.lru_cache(_KEPT_PLACES)(functools.partial(place_of, connection))
        """Where a bucket is, by its name and region; see `place_of`."""

    def bucket(self, config: StorageConfig) -> S3Bucket:
        """As `Client`."""
        return S3Bucket(self, config, self._connection.url or "")

    async def keys(self) -> ReadOnlyCredentials | None:
        """What is signed with now; None: nothing is. Raises as `CloudClient.sign`."""
        if self._tokens is None:
            return self._static
        keys: ReadOnlyCredentials = await self._tokens.get()
        if keys.token:
            self._connection.check_token("the session token of the default credential chain", self.host, or_else=_OR_ELSE)
        return keys

    async def _ask(self, asks: Callable[[str], None]) -> Token:
        bridge = Bridge(self.means.engine, Trust(ca_file=self._trust.ca_file), asks=asks)
        return await self.means.asking.run(lambda stop: asked(self.region, bridge, stop))


class S3Bucket(CloudBucket):
    """One bucket. Source: Amazon S3 API Reference, ListObjectsV2, GetObject, Error responses."""

    owner = "S3's: is something else there?"
    continuation = "continuation-token"
    most_name_bytes = 1024  # Source: Amazon S3 User Guide, Naming Amazon S3 objects
    meanings = MEANINGS

    def __init__(self, client: S3Client, config: StorageConfig, base: str) -> None:
        """`base`: as long as it is not known where the bucket is."""
        self._name = name = config.required_bucket()
        words = f"bucket {name!r} at {client.host}"
        super().__init__(client, config, place=f"s3://{name}", base=base, words=words)
        self._s3 = client
        self._region = ""
        """That is asked; empty: not known."""
        self._other_region: str | None = None
        """Where an answer says that the bucket is, until that was tried."""
        self._checksums: dict[str, str] = {}
        """Key of a large object → algorithm of a checksum of all of it, as listed."""

    async def list_page(self, prefix: str, *, token: str | None = None, limit: int = PAGE_OBJECTS, by_folder: bool = False) -> Page:
        """As the Protocol says. A bucket in another region is asked there, if its answer names the region."""
        try:
            page = await super().list_page(prefix, token=token, limit=limit, by_folder=by_folder)
        except InvalidRequest as elsewhere:
            region, self._other_region = self._other_region, None
            if region is None:
                raise
            await self._move(region)
            try:
                page = await super().list_page(prefix, token=token, limit=limit, by_folder=by_folder)
            except InvalidRequest:
                self._region, self._other_region = "", None
                raise elsewhere from None
        self._checksums |= {each.key: each.checksum for each in page.objects if each.size_bytes > _LARGE_BYTES and each.checksum}
        return page

    async def read(self, reads: Sequence[Read]) -> None:
        """As the Protocol says. An answer with a part of an object does not tell a checksum of all of it, so that is asked for."""
        for read in (read for read in reads if read.missing):
            algorithm = self._checksums.get(read.wanted.key)
            if algorithm and isinstance(read.sink, FileSink) and read.length < read.wanted.size_bytes:
                read.sink.expect((Checksum(algorithm),))
                if read.sink.is_asking:
                    read.sink.expect(await self._told(read.wanted))
        await super().read(reads)

    async def _sign(self) -> Sign:
        keys = await self._s3.keys()
        if not self._region:
            await self._move(self._s3.region)
        region = self._region

        def sign(method: str, url: str, headers: Mapping[str, str]) -> tuple[str, Mapping[str, str]]:
            given = {"User-Agent": USER_AGENT, **headers}
            return url, given if keys is None else signed(method, url, given, keys, region)

        return sign

    async def _move(self, region: str) -> None:
        place = await self._s3.means.blocking.run(lambda _: self._s3.place(self._name, region))
        self._base, self._region = place.base, place.region
        self._access = self._s3.access(place.base)

    async def _told(self, wanted: StoredObject) -> Sequence[Checksum]:
        """
        What the store says by itself of all bytes of a version. A refusal says nothing: the GET will tell what is wrong.

        Raises SourceUnavailable: another try may be answered.
        """
        whole = Read(wanted, 0, wanted.size_bytes, len)
        sign = await self.signer()
        head = await self._answer(self._request(sign, self.object(whole), Collected(), method="HEAD"))
        if is_passing(head.status) and head.status != 501:
            raise self._where.refused(head, key=wanted.key)
        is_version = etag_of(head.headers.get("etag")) == wanted.etag
        return self.checksums(head.headers) if head.status == OK and is_version else ()

    def _refused(self, head: Head, key: str | None) -> AdapterError:
        code = self.code(head)
        if head.status not in REDIRECTS and code not in _ELSEWHERE:
            return super()._refused(head, key)
        actual = head.headers.get("x-amz-bucket-region", "")
        region = actual if _REGION.fullmatch(actual) else None
        self._other_region = region if region != self._region else None
        found = f"the bucket is in {region!r}" if region else "the bucket is in another region"
        named = f"{code}, HTTP {head.status}" if code in _ELSEWHERE else f"HTTP {head.status}"
        is_not = f"{self.words} is not in region {self._region!r}, {found} ({named})"
        return InvalidRequest(f"{is_not}; set `region` (and endpoint_url) of {self._where.label}")

    def listing(self, prefix: str, token: str | None, limit: int, *, by_folder: bool) -> str:
        """As `CloudBucket`."""
        query = {"list-type": "2", "prefix": prefix, "max-keys": str(limit), "encoding-type": "url"}
        fields = sorted(self.query(query, token, by_folder=by_folder).items())
        return f"?{urlencode(fields, quote_via=quote, safe='~')}"

    @staticmethod
    def page_of(content: bytes) -> Page:
        """As `CloudBucket`. Raises SourceUnavailable: a listing that was cut short."""
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
        decode = unquote_plus if fields.get("EncodingType") == "url" else str
        objects = tuple(_stored(row, decode) for row in root if name_of(row) == "Contents")
        prefixes = (fields_of(row, ("Prefix",))["Prefix"] for row in root if name_of(row) == "CommonPrefixes")
        return Page(objects=objects, folders=tuple(map(decode, prefixes)), next_token=token or None)

    def object(self, read: Read) -> tuple[str, Mapping[str, str]]:
        """As `CloudBucket`."""
        headers = {"If-Match": f'"{read.wanted.etag}"'} if read.wanted.etag else {}
        headers |= {"x-amz-checksum-mode": "ENABLED"} if read.missing == read.wanted.size_bytes else {"Range": read.range}
        return f"/{quote(read.wanted.key, safe='/~')}", headers

    @staticmethod
    def checksums(headers: Mapping[str, str]) -> Sequence[Checksum]:
        """As `CloudBucket`. Older servers tell no type."""
        if "content-range" in headers or headers.get(f"{_CHECKSUM}type", _FULL).strip() != _FULL:
            return ()
        return readable((name, told) for name in ALGORITHMS if (told := headers.get(_CHECKSUM + name)))

    def is_answer(self, head: Head) -> bool:
        """As `CloudBucket`. Small servers know no ranges."""
        return True

    def code(self, head: Head) -> str:
        """As `CloudBucket`."""
        return code_in(head.error)


def full_checksum(algorithms: Sequence[str], kind: str | None) -> str:
    """Of a row: the algorithm of one that parts make and that is of the whole object, as `StoredObject.checksum`; else empty."""
    names = {name.lower() for name in algorithms} if kind == _FULL else set()
    return next((name for name in ALGORITHMS if name in names and Checksum(name).is_combined), "")


def _stored(row: Element, decode: Callable[[str], str]) -> StoredObject:
    fields = fields_of(row, _FIELDS_OF_A_ROW)
    algorithms = [each.text or "" for each in row if name_of(each) == "ChecksumAlgorithm"]
    checksum = full_checksum(algorithms, fields.get("ChecksumType"))
    return StoredObject(decode(fields["Key"]), int(fields["Size"]), etag_of(fields.get("ETag")), checksum=checksum)


def signed(
    method: str, url: str, headers: Mapping[str, str], keys: ReadOnlyCredentials, region: str, *, now: float | None = None
) -> dict[str, str]:
    """
    The headers with those of a signature, `Host` among them, of a request without a body.

    AWS Signature Version 4, as botocore makes it, at a fifth of the cost: botocore's was a third of what the adapter itself spends
    on a small file. A test over odd keys compares both.

    Source: Amazon S3 API Reference, Authenticating Requests: Using the Authorization Header (AWS Signature Version 4).

    Args:
        method: `GET`, `HEAD`.
        url: quoted, the fields of its query in the order of their names.
        headers: of the request.
        keys: to sign with.
        region: of the bucket.
        now: seconds since 1970; None: by the clock.
    """
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    parts = urlsplit(url)
    given = {**headers, "Host": _host_of(parts), "X-Amz-Date": moment, "X-Amz-Content-SHA256": _EMPTY}
    if keys.token:
        given["X-Amz-Security-Token"] = keys.token
    lines = sorted((name.lower(), " ".join(value.split())) for name, value in given.items() if name.lower() not in _UNSIGNED)
    names = ";".join(name for name, _ in lines)
    canonical = "\n".join((method, parts.path, parts.query, *(f"{name}:{value}" for name, value in lines), "", names, _EMPTY))
    scope = (moment[:8], region, "s3", "aws4_request")
    text = "\n".join((_ALGORITHM, moment, "/".join(scope), hashlib.sha256(canonical.encode()).hexdigest()))
    signature = hmac.digest(_key(keys.secret_key or "", *scope), text.encode(), "sha256").hex()
    credential = "/".join((keys.access_key or "", *scope))
    given["Authorization"] = f"{_ALGORITHM} Credential={credential}, SignedHeaders={names}, Signature={signature}"
    return given


@functools.lru_cache(16)
def _key(secret: str, *scope: str) -> bytes:
    """Of a day and a region; deriving one takes four times as long as a signature."""
    key = f"AWS4{secret}".encode()
    for part in scope:
        key = hmac.digest(key, part.encode(), "sha256")
    return key


def _host_of(url: SplitResult) -> str:
    """As the `Host` header has it: with the port where that is not the usual one."""
    host = url.hostname or ""
    host = f"[{host}]" if ":" in host else host
    return host if url.port in (None, _PORTS.get(url.scheme)) else f"{host}:{url.port}"
