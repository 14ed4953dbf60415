"""
Amazon S3 and everything that speaks like it. The only module that knows boto3/botocore.

Owns clients (one per connection, made to be kept) and the cutting of a socket that a cancelled call
waits on. botocore signs, finds credentials and proxies, and parses; its retries, which sleep without
a way to wake them, are off. Foreign exceptions become ours here, in the words of `s3_errors`.
"""

from __future__ import annotations

import functools
import os
import socket
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, cast
from urllib.parse import urlsplit

import botocore.session
from botocore import UNSIGNED
from botocore import exceptions as boto
from botocore.awsrequest import AWSHTTPConnection, AWSHTTPConnectionPool, AWSHTTPSConnection, AWSHTTPSConnectionPool
from botocore.config import Config
from botocore.httpsession import URLLib3Session
from botocore.loaders import Loader, create_loader
from botocore.parsers import ResponseParserError
from botocore.utils import get_environ_proxies
from urllib3.exceptions import HTTPError

from adapter.errors import AdapterError, InvalidRequest, SourceChanged, SourceUnavailable
from adapter.storage.connection import S3Connection
from adapter.storage.credentials import StorageConfig
from adapter.storage.cutting import CuttableConnection, cuttable
from adapter.storage.network import CONNECT_TIMEOUT_SECONDS, READ_TIMEOUT_SECONDS
from adapter.storage.s3_errors import Where, no_credentials, not_s3, refused, unreachable
from adapter.storage.source import PAGE_OBJECTS, Page, Sink, StoredObject
from adapter.storage.tls import memory_file
from adapter.workers import Stop

if TYPE_CHECKING:
    from botocore.awsrequest import AWSPreparedRequest, AWSResponse
    from types_boto3_s3 import S3Client as BotoClient
    from types_boto3_s3.type_defs import GetObjectOutputTypeDef

DEFAULT_REGION = "us-east-1"
CHUNK_BYTES = 256 * 1024
"""Most bytes in memory per read. Larger ones were measured to be no faster."""
_SOCKET_OPTIONS = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
_NETWORK_ERRORS = (boto.HTTPClientError, boto.ConnectionError, boto.IncompleteReadError, HTTPError, OSError)
_CREDENTIAL_ERRORS = (
    boto.NoCredentialsError, boto.NoAuthTokenError, boto.CredentialRetrievalError, boto.PartialCredentialsError,
    boto.MetadataRetrievalError, boto.TokenRetrievalError, boto.SSOError, boto.ProfileNotFound,
)  # fmt: skip


class S3Client:
    """A connection that is ready to be used, by any number of threads and for any bucket. Slow to make (0.1 s)."""

    def __init__(self, connection: S3Connection, max_connections: int) -> None:
        """
        Blocks; without keys it asks the default credential chain, which may ask the network.

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
        except _CREDENTIAL_ERRORS as error:
            reason = f"the default credential chain failed ({type(error).__name__})"
            raise no_credentials(self._where("", "the storage config"), reason) from error
        except (boto.BotoCoreError, ValueError) as error:
            raise InvalidRequest(f"no S3 client for {connection.host}: {_config_words(error, self.region)}") from error
        self._bundle: int | None = None
        if connection.ca_pem:
            self._bundle = memory_file(connection.ca_pem)
            weakref.finalize(self, os.close, self._bundle)
        self._http = _CuttableSession(
            verify=self._trust(session),
            proxies=get_environ_proxies(self.boto.meta.endpoint_url),
            timeout=(CONNECT_TIMEOUT_SECONDS, READ_TIMEOUT_SECONDS),
            max_pool_connections=max_connections,
            socket_options=_SOCKET_OPTIONS,
        )
        self.boto.meta.events.register("before-send.s3", cast("Callable[..., None]", self._send))

    def source(self, config: StorageConfig) -> S3Source:
        """
        The bucket of a storage config.

        Raises:
            InvalidRequest: it has none.
        """
        return self.bucket(config.required_bucket(), label=config.label, is_unsigned=config.is_unsigned)

    def bucket(self, name: str, *, label: str = "the storage config", is_unsigned: bool = False) -> S3Source:
        """One bucket. The label says in errors which storage config led to it."""
        return S3Source(self.boto, self._where(name, label, is_unsigned=is_unsigned))

    def _where(self, bucket: str, label: str, *, is_unsigned: bool = False) -> Where:
        return Where(
            host=self.connection.host,
            bucket=bucket,
            region=self.region,
            label=label,
            is_plain_http=urlsplit(self.connection.endpoint_url or "").scheme == "http",
            is_unsigned=is_unsigned,
        )

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
        """What TLS certificates are checked against. A path is all that botocore takes: it is in memory."""
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


class S3Source:
    """One bucket of an S3 store. See `ObjectSource` for the contract."""

    kind = "s3"

    def __init__(self, client: BotoClient, where: Where) -> None:
        self._client = client
        self._where = where
        self.place = f"s3://{where.bucket}"

    def list_page(self, prefix: str, stop: Stop, *, token: str | None = None, limit: int = PAGE_OBJECTS, by_folder: bool = False) -> Page:
        """As the Protocol says."""
        optional: dict[str, Any] = {"ContinuationToken": token} if token else {}
        if by_folder:
            optional["Delimiter"] = "/"
        with cuttable(stop), self._translated(stop):
            answer = self._client.list_objects_v2(Bucket=self._where.bucket, Prefix=prefix, MaxKeys=limit, **optional)
        if "IsTruncated" not in answer:  # another XML document parses as an empty listing
            raise not_s3(self._where)
        next_token = answer.get("NextContinuationToken") if answer["IsTruncated"] else None
        if answer["IsTruncated"] and not next_token:
            raise SourceUnavailable(f"{self._where.words} cut its listing short without saying where it goes on")
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
                answer = self._client.get_object(Bucket=self._where.bucket, Key=wanted.key, **optional)
            with answer["Body"] as raw:  # leaving it closes a connection that has more to say
                self._check_version(answer, wanted)
                if is_range:
                    self._check_range(answer, wanted, start)
                elif (size := answer.get("ContentLength", length)) != length:
                    raise self._resized(wanted, str(size))
                self._copy(raw, wanted.key, length, sink, stop)

    def _check_version(self, answer: GetObjectOutputTypeDef, wanted: StoredObject) -> None:
        """Servers exist that ignore If-Match, so the answer is compared as well."""
        etag = _bare(answer.get("ETag"))
        if wanted.etag and etag and etag != wanted.etag:
            raise SourceChanged(f"{wanted.key!r} was replaced since it was listed ({self._where.words}, another ETag)")

    def _check_range(self, answer: GetObjectOutputTypeDef, wanted: StoredObject, start: int) -> None:
        """The header decides: servers exist that answer a range with status 200."""
        unit, _, rest = answer.get("ContentRange", "").partition(" ")
        span, _, total = rest.partition("/")
        if unit != "bytes" or not span.startswith(f"{start}-"):
            raise SourceUnavailable(f"{self._where.words} did not answer the range of {wanted.key!r} that was asked for")
        if total != "*" and total != str(wanted.size_bytes):
            raise self._resized(wanted, total)

    def _resized(self, wanted: StoredObject, size: str) -> SourceChanged:
        return SourceChanged(f"{wanted.key!r} has {size} bytes, but had {wanted.size_bytes} when it was listed ({self._where.words})")

    def _copy(self, raw: Any, key: str, length: int, sink: Sink, stop: Stop) -> None:
        missing = length
        while missing:
            try:
                chunk = raw.read1(min(CHUNK_BYTES, missing))
            except _NETWORK_ERRORS as error:
                stop.check()
                raise unreachable(self._where, error) from error
            stop.check()
            if not chunk:
                raise SourceUnavailable(f"{self._where.words} ended the body of {key!r} {missing} bytes early")
            sink(chunk)
            missing -= len(chunk)

    @contextmanager
    def _translated(self, stop: Stop, key: str | None = None) -> Iterator[None]:
        try:
            yield
        except (boto.ClientError, boto.BotoCoreError, ResponseParserError, HTTPError, OSError, ValueError) as error:
            stop.check()  # we cut the socket ourselves
            raise _translation(error, self._where, key) from error


def _translation(error: Exception, where: Where, key: str | None) -> AdapterError:
    if isinstance(error, boto.ClientError):
        meta = error.response.get("ResponseMetadata", {})
        return refused(
            where,
            status=meta.get("HTTPStatusCode", 0),
            code=str(error.response.get("Error", {}).get("Code", "")),
            actual_region=meta.get("HTTPHeaders", {}).get("x-amz-bucket-region"),
            key=key,
        )
    if isinstance(error, boto.NoCredentialsError):
        return no_credentials(where, "the default credential chain (environment, web identity, instance role) has none")
    if isinstance(error, _CREDENTIAL_ERRORS):
        return no_credentials(where, f"the default credential chain failed ({type(error).__name__})")
    if isinstance(error, ResponseParserError):
        return not_s3(where)
    if isinstance(error, _NETWORK_ERRORS):
        return unreachable(where, error)
    return InvalidRequest(f"{where.words} cannot be asked: {_config_words(error, where.region)}")


def _config_words(error: Exception, region: str) -> str:
    """Why botocore refused to build a client or a request. Its own words may quote any parameter."""
    if isinstance(error, boto.InvalidRegionError):
        return f"{region!r} is not a region"
    if isinstance(error, boto.ParamValidationError):
        return "not a valid bucket name or key"
    return f"the endpoint, region or bucket name is not valid ({type(error).__name__})"


def _bare(etag: str | None) -> str:
    """Without quotes and weak mark: listings and answers of one server differ in them."""
    return (etag or "").removeprefix("W/").strip('"')


@functools.cache
def _loader() -> Loader:
    """Shared, so that the service description is parsed once."""
    return create_loader()


class _PlainConnection(CuttableConnection, AWSHTTPConnection):  # type: ignore[misc]  # its bases disagree in the stubs
    pass


class _TlsConnection(CuttableConnection, AWSHTTPSConnection):  # type: ignore[misc]  # likewise
    pass


class _PlainPool(AWSHTTPConnectionPool):
    ConnectionCls = _PlainConnection


class _TlsPool(AWSHTTPSConnectionPool):
    ConnectionCls = _TlsConnection


class _CuttableSession(URLLib3Session):
    """botocore's own HTTP session over our connections."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        # the dictionary that it hands to its urllib3 managers; the source suite hangs if this stops working
        pools: dict[str, type] = self._pool_classes_by_scheme  # type: ignore[attr-defined]  # not in the stubs
        pools.update(http=_PlainPool, https=_TlsPool)
