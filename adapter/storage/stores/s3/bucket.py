"""One bucket of S3: signed requests, other regions, and checksums that are asked for by themselves."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from urllib.parse import urlsplit

from botocore.credentials import ReadOnlyCredentials

from adapter.errors import AdapterError, InvalidRequest
from adapter.storage.bucket import PAGE_OBJECTS, FileSink, Page, Read, StoredObject
from adapter.storage.checksums import Checksum
from adapter.storage.net.access import Access, Trust, proxy_for
from adapter.storage.net.engine import Engine
from adapter.storage.net.guard import Guard
from adapter.storage.net.messages import Collected, Head, Request
from adapter.storage.stores.answers import REDIRECTS, USER_AGENT, Where, etag_of, is_passing
from adapter.storage.stores.body import Part, left_of
from adapter.storage.stores.cloud import PAGE_BYTES, CloudBucket, Route
from adapter.storage.stores.s3.dialect import ASKING, S3Dialect
from adapter.storage.stores.s3.place import BucketPlace
from adapter.storage.stores.s3.signing import Signer
from adapter.units import MIB

Keys = Callable[[], Awaitable[ReadOnlyCredentials | None]]
"""What is signed with now; None: nothing is."""
_LARGE_BYTES = MIB
"""Smaller objects come in one GET, which tells their checksum."""
_MOST_LARGE = 10_000
"""Large objects of which it is remembered what a listing told."""
_OK, _NOT_IMPLEMENTED = 200, 501
_ELSEWHERE = frozenset({"AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "PermanentRedirect", "TemporaryRedirect"})
_REGION = re.compile(r"[a-z0-9-]{2,32}")


class S3Bucket(CloudBucket):
    """One bucket. See `Bucket` for the contract."""

    def __init__(
        self,
        *,
        name: str,
        endpoint: str,
        where: Where,
        engine: Engine,
        trust: Trust,
        guard: Guard,
        place: Callable[[str | None], Awaitable[BucketPlace]],
        keys: Keys,
    ) -> None:
        """
        Args:
            name: of the bucket.
            endpoint: for people.
            where: for the words of a failure.
            engine: to ask with.
            trust: of the connection.
            guard: of addresses.
            place: where the bucket is, in the region that is named, or in the usual one.
            keys: to sign with.
        """
        super().__init__(kind="s3", place=f"s3://{name}", endpoint=endpoint, dialect=S3Dialect(), where=where, engine=engine)
        self._trust = trust
        self._guard = guard
        self._find = place
        self._keys = keys
        self._at: BucketPlace | None = None
        self._signer: Signer | None = None
        self._access: Access | None = None
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
                self._at = self._other_region = None
                raise elsewhere from None
        for stored in page.objects:
            if not stored.checksum or stored.size_bytes <= _LARGE_BYTES:
                self._checksums.pop(stored.key, None)
            elif len(self._checksums) < _MOST_LARGE:
                self._checksums[stored.key] = stored.checksum
        return page

    async def read(self, reads: Sequence[Read]) -> None:
        """As the Protocol says."""
        for read in left_of(reads):
            algorithm = self._checksums.get(read.wanted.key) if self._checksums else None
            if algorithm and isinstance(read.sink, FileSink) and read.length < read.wanted.size_bytes:
                read.sink.expect((Checksum(algorithm),))
                if read.sink.is_asking:
                    read.sink.expect(await self._told(read.wanted))
        await super().read(reads)

    async def route(self) -> Route:
        """As `CloudBucket`."""
        keys = await self._keys()
        if self._at is None:
            await self._move(None)
        assert self._at is not None and self._access is not None  # noqa: S101 - `_move` has set them
        return Route(base=self._at.base, access=self._access, sign=lambda method, url, headers: self._signed(method, url, headers, keys))

    async def _move(self, region: str | None) -> None:
        self._at = await self._find(region)
        self._signer = Signer(self._at.host, self._at.region)
        self._access = Access(self._trust, self._guard, proxy_for(self._at.base))

    def _signed(self, method: str, url: str, headers: Mapping[str, str], keys: ReadOnlyCredentials | None) -> Mapping[str, str]:
        own = {"User-Agent": USER_AGENT}
        if keys is None or self._signer is None:
            return {**headers, **own}
        encoding = {"Accept-Encoding": headers["Accept-Encoding"]} if "Accept-Encoding" in headers else {}
        signed = {name: value for name, value in headers.items() if name not in encoding}
        parts = urlsplit(url)
        return {**self._signer.signed(method, parts.path, signed, keys, query=parts.query), **encoding, **own}

    async def _told(self, wanted: StoredObject) -> tuple[Checksum, ...]:
        """
        What the store says by itself of all bytes of a version. A refusal says nothing: the GET will tell what is wrong.

        Raises SourceUnavailable: another try may be answered.
        """
        route = await self.route()
        target, _ = self._dialect.object(Part(wanted=wanted, start=0, length=wanted.size_bytes))
        url = f"{route.base}{target}"
        headers = route.sign("HEAD", url, {"If-Match": f'"{wanted.etag}"', **ASKING})
        head = await self._answer(Request(url, headers, Collected(), route.access, PAGE_BYTES, method="HEAD"))
        if is_passing(head.status) and head.status != _NOT_IMPLEMENTED:
            raise self._where.refused(head.status, key=wanted.key, retry_after=head.headers.get("retry-after"))
        is_version = etag_of(head.headers.get("etag")) == wanted.etag
        return tuple(self._dialect.checksums(head.headers)) if head.status == _OK and is_version else ()

    def _refused(self, head: Head, key: str | None) -> AdapterError:
        code = self._dialect.code(head)
        if head.status not in REDIRECTS and code not in _ELSEWHERE:
            return super()._refused(head, key)
        actual = head.headers.get("x-amz-bucket-region", "")
        region = actual if _REGION.fullmatch(actual) else None
        found = f"the bucket is in {region!r}" if region else "the bucket is in another region"
        named = f"{code}, HTTP {head.status}" if code in _ELSEWHERE else f"HTTP {head.status}"
        asked = self._at.region if self._at is not None else ""
        words = f"{self.words} is not in region {asked!r}, {found} ({named}); set `region` (and endpoint_url) of {self._where.label}"
        self._other_region = region if region != asked else None
        return InvalidRequest(words)
