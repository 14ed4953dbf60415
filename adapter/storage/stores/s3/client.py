"""
Clients and buckets of S3, over botocore alone.

Owns clients (one per connection, made to be kept). botocore signs, finds credentials and proxies, and
parses; its retries, which sleep without a way to wake them, are off, and it sends through our own
connections. Foreign exceptions become ours here, in the words of `failures`.
"""

from __future__ import annotations

import functools
import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, cast

import botocore.session
from botocore import UNSIGNED
from botocore import exceptions as boto
from botocore.config import Config
from botocore.loaders import Loader, create_loader
from botocore.utils import get_environ_proxies

from adapter.errors import InvalidRequest, SourceUnavailable
from adapter.storage.bucket import PAGE_OBJECTS, Page, Sink, StoredObject
from adapter.storage.secret.merging import StorageConfig
from adapter.storage.stores.answers import Where
from adapter.storage.stores.body import check_part, check_size, copy_body
from adapter.storage.stores.s3.config import S3Connection
from adapter.storage.stores.s3.failures import CREDENTIAL_ERRORS, FOREIGN, config_words, meaning_of, no_credentials, not_s3
from adapter.storage.wire.botocore_session import CuttableSession
from adapter.storage.wire.cutting import cuttable
from adapter.storage.wire.network import CONNECT_TIMEOUT_SECONDS, READ_TIMEOUT_SECONDS
from adapter.storage.wire.tls import memory_file
from adapter.workers import Stop

if TYPE_CHECKING:
    from botocore.awsrequest import AWSPreparedRequest, AWSResponse
    from types_boto3_s3 import S3Client as BotoClient

DEFAULT_REGION = "us-east-1"


class S3Client:
    """A connection that is ready to be used, by any number of threads and for any bucket. Slow to make (0.1 s)."""

    def __init__(self, connection: S3Connection, max_connections: int) -> None:
        """
        Blocks: without keys the default credential chain is asked, and may ask the network.

        Raises:
            InvalidRequest: no client can be made of this.
            SourceDenied: the environment's own credentials are broken.
        """
        self.connection = connection
        session = botocore.session.Session()
        session.register_component("data_loader", _loader())
        # nobody reads the timestamps, and parsing them is half of the work of a listing
        session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=str)
        timeouts = Config(connect_timeout=CONNECT_TIMEOUT_SECONDS, read_timeout=READ_TIMEOUT_SECONDS)
        session.set_default_client_config(timeouts)  # for the calls of the credential chain
        self.region = connection.region or DEFAULT_REGION
        try:
            self.region = connection.region or cast("str | None", session.get_config_variable("region")) or DEFAULT_REGION
            self.boto = cast("BotoClient", session.create_client("s3", **self._arguments()))
        except CREDENTIAL_ERRORS as error:
            raise no_credentials(error, connection.host, "the storage config") from error
        except (boto.BotoCoreError, ValueError) as error:
            raise InvalidRequest(f"no S3 client for {connection.host}: {config_words(error, self.region)}") from error
        self._bundle: int | None = None
        if connection.ca_pem:
            self._bundle = memory_file(connection.ca_pem)
            weakref.finalize(self, os.close, self._bundle)
        self._http = CuttableSession(
            verify=self._trust(session),
            proxies=get_environ_proxies(self.boto.meta.endpoint_url),
            timeout=(CONNECT_TIMEOUT_SECONDS, READ_TIMEOUT_SECONDS),
            max_pool_connections=max_connections,
        )
        self.boto.meta.events.register("before-send.s3", cast("Callable[..., None]", self._send))

    def bucket(self, config: StorageConfig) -> S3Bucket:
        """As `Client`."""
        name = config.required_bucket()
        where = Where(
            words=f"bucket {name!r} at {self.connection.host}",
            label=config.label,
            credentials="the credentials",
            is_plain_http=(self.connection.endpoint_url or "").startswith("http:"),
            is_unsigned=config.is_unsigned,
        )
        return S3Bucket(self, name, where)

    def close(self) -> None:
        """As `Client`."""
        self.boto.close()
        self._http.close()

    def _arguments(self) -> dict[str, Any]:
        connection = self.connection
        config = Config(
            signature_version=UNSIGNED if connection.is_anonymous else "s3v4",
            s3={"addressing_style": cast("Literal['auto', 'path', 'virtual']", connection.addressing_style)},
            retries={"total_max_attempts": 1, "mode": "standard"},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        secrets = {
            "aws_access_key_id": connection.access_key_id,
            "aws_secret_access_key": connection.secret_access_key,
            "aws_session_token": connection.session_token,
        }
        return {
            "region_name": self.region,
            "endpoint_url": connection.endpoint_url,
            "config": config,
            **{name: secret.reveal() for name, secret in secrets.items() if secret is not None},
        }

    def _trust(self, session: botocore.session.Session) -> bool | str:
        """What TLS certificates are checked against. botocore takes a path alone; the file is in memory."""
        if not self.connection.verify_tls:
            return False
        if self._bundle is not None:
            return f"/proc/self/fd/{self._bundle}"
        return cast("str | None", session.get_config_variable("ca_bundle")) or True

    def _send(self, request: AWSPreparedRequest, **_: object) -> AWSResponse:
        answer = self._http.send(request)
        length = answer.headers.get("Content-Length")
        if length is not None and not request.stream_output and request.method != "HEAD" and len(answer.content) != int(length):
            # botocore takes a body of nothing for an empty listing
            raise boto.IncompleteReadError(actual_bytes=len(answer.content), expected_bytes=int(length))
        return answer


class S3Bucket:
    """One bucket. See `Bucket` for the contract."""

    kind = "s3"

    def __init__(self, client: S3Client, name: str, where: Where) -> None:
        self._client = client  # keeps the trusted certificates
        self._name = name
        self._where = where
        self.place = f"s3://{name}"
        self.words = where.words

    def list_page(self, prefix: str, stop: Stop, *, token: str | None = None, limit: int = PAGE_OBJECTS, by_folder: bool = False) -> Page:
        """As the Protocol says."""
        optional: dict[str, Any] = {"ContinuationToken": token} if token else {}
        if by_folder:
            optional["Delimiter"] = "/"
        with cuttable(stop), self._translated(stop):
            answer = self._client.boto.list_objects_v2(Bucket=self._name, Prefix=prefix, MaxKeys=limit, **optional)
        if "IsTruncated" not in answer:  # another XML document parses as an empty listing
            raise not_s3(self._where)
        next_token = answer.get("NextContinuationToken") if answer["IsTruncated"] else None
        if answer["IsTruncated"] and not next_token:
            raise SourceUnavailable(f"{self.words} cut its listing short without saying where it goes on")
        return Page(
            objects=tuple(StoredObject(row["Key"], row["Size"], _bare(row.get("ETag"))) for row in answer.get("Contents", ())),
            folders=tuple(row["Prefix"] for row in answer.get("CommonPrefixes", ())),
            next_token=next_token,
        )

    def read(self, wanted: StoredObject, start: int, length: int, sink: Sink, stop: Stop) -> None:
        """As the Protocol says."""
        if not length:
            return
        optional: dict[str, Any] = {"IfMatch": f'"{wanted.etag}"'} if wanted.etag else {}
        is_range = (start, length) != (0, wanted.size_bytes)
        if is_range:
            optional["Range"] = f"bytes={start}-{start + length - 1}"
        with cuttable(stop):
            with self._translated(stop, wanted.key):
                answer = self._client.boto.get_object(Bucket=self._name, Key=wanted.key, **optional)
            with answer["Body"] as raw:  # leaving it closes a connection that has more to say
                etag = _bare(answer.get("ETag"))
                if wanted.etag and etag and etag != wanted.etag:
                    raise self._where.other_version(wanted.key, "ETag")
                if is_range:  # the header decides: servers exist that answer a range with status 200
                    check_part(answer.get("ContentRange"), wanted, start, self._where)
                else:
                    check_size(answer.get("ContentLength"), wanted, self._where)
                copy_body(
                    cast("Any", raw), length, sink, stop, key=wanted.key, where=self._where, translated=lambda: self._translated(stop)
                )

    @contextmanager
    def _translated(self, stop: Stop, key: str | None = None) -> Iterator[None]:
        try:
            yield
        except FOREIGN as error:
            stop.check()  # we cut the socket ourselves
            raise meaning_of(error, self._where, self._client.region, key) from error


def _bare(etag: str | None) -> str:
    """Without quotes and weak mark: listings and answers of one server differ in them."""
    return (etag or "").removeprefix("W/").strip('"')


@functools.cache
def _loader() -> Loader:
    """Shared, so that the service description is parsed once."""
    return create_loader()
