"""One bucket of S3: pages and ranges, each compared with what was asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from adapter.storage.bucket import PAGE_OBJECTS, Page, Sink, StoredObject
from adapter.storage.stores.answers import Where
from adapter.storage.stores.body import check_told, copy_body, told_by
from adapter.storage.stores.s3.chain import asking
from adapter.storage.stores.s3.failures import FOREIGN, meaning_of
from adapter.storage.stores.s3.pages import bare, page_of
from adapter.storage.wire.cutting import PAGE_BYTES, cuttable, most_of
from adapter.workers import Stop

if TYPE_CHECKING:
    from adapter.storage.stores.s3.client import S3Client


class S3Bucket:
    """One bucket. See `Bucket` for the contract."""

    kind = "s3"

    def __init__(self, client: S3Client, name: str, where: Where) -> None:
        self._client = client  # keeps the trusted certificates
        self._name = name
        self._where = where
        self.place = f"s3://{name}"
        self.words = where.words
        self.endpoint = client.connection.host

    def list_page(self, prefix: str, stop: Stop, *, token: str | None = None, limit: int = PAGE_OBJECTS, by_folder: bool = False) -> Page:
        """As the Protocol says."""
        optional: dict[str, Any] = {"ContinuationToken": token} if token else {}
        if by_folder:
            optional["Delimiter"] = "/"
        with cuttable(stop, most_bytes=PAGE_BYTES), self._translated(stop):
            answer = self._client.boto.list_objects_v2(Bucket=self._name, Prefix=prefix, MaxKeys=limit, **optional)
            return page_of(answer, self._where)

    def read(self, wanted: StoredObject, start: int, length: int, sink: Sink, stop: Stop) -> None:
        """As the Protocol says."""
        if not length:
            return
        optional: dict[str, Any] = {"IfMatch": f'"{wanted.etag}"'} if wanted.etag else {}
        is_range = (start, length) != (0, wanted.size_bytes)
        if is_range:
            optional["Range"] = f"bytes={start}-{start + length - 1}"
        with cuttable(stop, most_bytes=most_of(length)):
            with self._translated(stop, wanted.key):
                answer = self._opened(Key=wanted.key, **optional)
            with answer["Body"] as raw:  # leaving it closes a connection that has more to say
                etag = bare(answer.get("ETag"))
                if wanted.etag and etag != wanted.etag:
                    raise self._where.other_version(wanted.key, "ETag") if etag else self._where.no_version(wanted.key, "ETag")
                check_told(told_by(answer["ResponseMetadata"]["HTTPHeaders"]), wanted, start, length, self._where, is_part=is_range)
                copy_body(
                    cast("Any", raw), length, sink, stop, key=wanted.key, where=self._where, translated=lambda: self._translated(stop)
                )

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
