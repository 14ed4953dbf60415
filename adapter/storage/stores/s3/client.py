"""A connection to S3 (its credentials, and where its buckets are), and its buckets: other regions, and checksums that are asked for."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from botocore.credentials import Credentials, ReadOnlyCredentials

from adapter.errors import AdapterError, InvalidRequest
from adapter.storage.bucket import PAGE_OBJECTS, FileSink, Page, Read, StoredObject
from adapter.storage.checksums import Checksum
from adapter.storage.net.access import Trust
from adapter.storage.net.engine import Bridge
from adapter.storage.net.messages import Collected, Head
from adapter.storage.secret.merging import StorageConfig
from adapter.storage.stores.answers import OK, REDIRECTS, USER_AGENT, etag_of, is_passing
from adapter.storage.stores.clients import Means
from adapter.storage.stores.cloud import PAGE_BYTES, CloudBucket, CloudClient, Sign
from adapter.storage.stores.s3 import S3Connection
from adapter.storage.stores.s3.credentials import asked
from adapter.storage.stores.s3.dialect import S3Dialect
from adapter.storage.stores.s3.requests import of_environment, place_of, signed
from adapter.storage.stores.tokens import Token, Tokens
from adapter.units import MIB

TURN_SECONDS = 11 * 60
"""Left to live: below it, credentials are renewed by one caller for all. A minute more than botocore's own `mandatory` bound."""
_OR_ELSE = 'give the storage config an access_key_id and a secret_access_key, or "anonymous": "true" for a public bucket'
_KEPT_PLACES = 256
_LARGE_BYTES = MIB
"""Smaller objects come in one GET, which tells their checksum."""
_NOT_IMPLEMENTED = 501
_ELSEWHERE = frozenset({"AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "PermanentRedirect", "TemporaryRedirect"})
_REGION = re.compile(r"[a-z0-9-]{2,32}")


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

    async def _ask(self) -> Token:
        assert self._tokens is not None  # noqa: S101 - they ask
        bridge = Bridge(self.means.engine, Trust(ca_file=self._trust.ca_file), most_bytes=PAGE_BYTES, asks=self._tokens.asks)
        return await self.means.asking.run(lambda stop: asked(self.region, bridge, stop))


class S3Bucket(CloudBucket):
    """One bucket. See `Bucket` for the contract."""

    def __init__(self, client: S3Client, config: StorageConfig, base: str) -> None:
        """`base`: as long as it is not known where the bucket is."""
        self._name = name = config.required_bucket()
        words = f"bucket {name!r} at {client.host}"
        super().__init__(client, config, place=f"s3://{name}", base=base, dialect=S3Dialect(), words=words)
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
        head = await self._answer(self._request(sign, self._dialect.object(whole), Collected(), method="HEAD"))
        if is_passing(head.status) and head.status != _NOT_IMPLEMENTED:
            raise self._where.refused(head, key=wanted.key)
        is_version = etag_of(head.headers.get("etag")) == wanted.etag
        return self._dialect.checksums(head.headers) if head.status == OK and is_version else ()

    def _refused(self, head: Head, key: str | None) -> AdapterError:
        code = self._dialect.code(head)
        if head.status not in REDIRECTS and code not in _ELSEWHERE:
            return super()._refused(head, key)
        actual = head.headers.get("x-amz-bucket-region", "")
        region = actual if _REGION.fullmatch(actual) else None
        self._other_region = region if region != self._region else None
        found = f"the bucket is in {region!r}" if region else "the bucket is in another region"
        named = f"{code}, HTTP {head.status}" if code in _ELSEWHERE else f"HTTP {head.status}"
        is_not = f"{self.words} is not in region {self._region!r}, {found} ({named})"
        return InvalidRequest(f"{is_not}; set `region` (and endpoint_url) of {self._where.label}")
