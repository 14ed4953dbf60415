"""One bucket of S3: pages and ranges, each compared with what was asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast

from adapter.storage.bucket import PAGE_OBJECTS, FileSink, Page, Sink, StoredObject
from adapter.storage.checksums import Checksum
from adapter.storage.stores.answers import Where, is_passing
from adapter.storage.stores.body import check_told, copy_body, told_by
from adapter.storage.stores.s3.chain import asking
from adapter.storage.stores.s3.checksums import ASKING, checksums_of
from adapter.storage.stores.s3.direct import Direct
from adapter.storage.stores.s3.failures import FOREIGN, meaning_of
from adapter.storage.stores.s3.pages import bare, page_of
from adapter.storage.wire.cutting import PAGE_BYTES, cuttable, most_of
from adapter.storage.wire.gets import Body
from adapter.units import MIB
from adapter.workers import Stop

_LARGE_BYTES = MIB
"""Smaller objects come in one GET, which tells their checksum."""
_MOST_LARGE = 10_000
"""Of large objects, of so many is remembered what a listing told."""

if TYPE_CHECKING:
    from adapter.storage.stores.s3.client import S3Client


class S3Bucket:
    """One bucket. See `Bucket` for the contract."""

    kind = "s3"

    def __init__(self, client: S3Client, name: str, where: Where) -> None:
        self._client = client  # keeps the trusted certificates
        self._name = name
        self._where = where
        self._direct: Direct | None = None
        """Known once it was listed."""
        self._checksums: dict[str, str] = {}
        """Key of a large object → algorithm of a checksum of all of it, as listed."""
        self.place = f"s3://{name}"
        self.words = where.words
        self.endpoint = client.connection.host
        self.is_encrypted = not where.is_plain_http

    def list_page(self, prefix: str, stop: Stop, *, token: str | None = None, limit: int = PAGE_OBJECTS, by_folder: bool = False) -> Page:
        """As the Protocol says."""
        optional: dict[str, Any] = {"ContinuationToken": token} if token else {}
        if by_folder:
            optional["Delimiter"] = "/"
        with cuttable(stop, most_bytes=PAGE_BYTES), self._translated(stop):
            answer = self._client.boto.list_objects_v2(Bucket=self._name, Prefix=prefix, MaxKeys=limit, **optional)
            page = page_of(answer, self._where)
            self._direct = self._direct or self._client.direct()
            self._remember(page)
            return page

    def read(self, wanted: StoredObject, start: int, length: int, sink: Sink, stop: Stop) -> None:
        """As the Protocol says."""
        if not length:
            return
        is_range = (start, length) != (0, wanted.size_bytes)
        headers = {"If-Match": f'"{wanted.etag}"'} if wanted.etag else {}
        if is_range:
            headers["Range"] = f"bytes={start}-{start + length - 1}"
        if is_range and isinstance(sink, FileSink):
            self._tell(wanted, sink, stop)
        with cuttable(stop, most_bytes=most_of(length)):
            answer, told = self._answer(wanted, headers, stop)
            with answer as body:  # leaving it closes a connection that has more to say
                etag = bare(told.get("etag"))
                if wanted.etag and etag != wanted.etag:
                    raise self._where.other_version(wanted.key, "ETag") if etag else self._where.no_version(wanted.key, "ETag")
                check_told(told_by(told), wanted, start, length, self._where, is_part=is_range)
                copy_body(
                    body,
                    length,
                    sink,
                    stop,
                    key=wanted.key,
                    where=self._where,
                    translated=lambda: self._translated(stop),
                    checksums=() if is_range else checksums_of(told),
                )

    def _answer(
        self, wanted: StoredObject, headers: Mapping[str, str], stop: Stop
    ) -> tuple[AbstractContextManager[Body], Mapping[str, str]]:
        """The answer to a GET, and what its headers tell."""
        with self._translated(stop, wanted.key):
            if self._direct is not None:
                found = self._direct.get(wanted.key, headers if "Range" in headers else {**headers, **ASKING})
                return found, found.headers
            answer = self._opened(Key=wanted.key, **{name.replace("-", ""): value for name, value in headers.items()})
            return cast("Any", answer["Body"]), answer["ResponseMetadata"]["HTTPHeaders"]

    def _remember(self, page: Page) -> None:
        for stored in page.objects:
            if not stored.checksum or stored.size_bytes <= _LARGE_BYTES:
                self._checksums.pop(stored.key, None)
            elif len(self._checksums) < _MOST_LARGE:
                self._checksums[stored.key] = stored.checksum

    def _tell(self, wanted: StoredObject, sink: FileSink, stop: Stop) -> None:
        """The checksum of an object that comes in parts, if its listing has promised one. One part asks for its value."""
        algorithm = self._checksums.get(wanted.key) if self._direct is not None else None
        if not algorithm:
            return
        sink.expect((Checksum(algorithm),))
        if sink.is_asking:
            sink.expect(self._asked(wanted, stop))

    def _asked(self, wanted: StoredObject, stop: Stop) -> tuple[Checksum, ...]:
        """
        What the store says by itself of all bytes of a version. A refusal says nothing: the GET will tell what is wrong.

        Raises SourceUnavailable: another try may be answered.
        """
        assert self._direct is not None  # noqa: S101 - `_tell` has looked
        with cuttable(stop, most_bytes=PAGE_BYTES), self._translated(stop, wanted.key):
            status, told = self._direct.head(wanted.key, {"If-Match": f'"{wanted.etag}"', **ASKING})
        if is_passing(status) and status != HTTPStatus.NOT_IMPLEMENTED:
            raise self._where.refused(status, key=wanted.key, retry_after=told.get("retry-after"))
        return checksums_of(told) if status == HTTPStatus.OK and bare(told.get("etag")) == wanted.etag else ()

    def _opened(self, **parameters: Any) -> Mapping[str, Any]:
        try:
            return self._client.boto.get_object(Bucket=self._name, **parameters)
        except BaseException:
            self._client.abandon()
            raise

    @contextmanager
    def _translated(self, stop: Stop, key: str | None = None) -> Iterator[None]:
        try:
            with asking(stop):
                yield
        except FOREIGN as error:
            stop.check()  # we cut the socket ourselves
            raise meaning_of(error, self._where, self._client.region, key) from error
