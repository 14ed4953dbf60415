"""
Clients of S3, over botocore alone.

Owns clients (one per connection, made to be kept). botocore signs, finds proxies, and parses what `pages`
lets through and has not read; its retries, which sleep without a way to wake them, are off, and it sends through our own
connections. Without keys it asks the `chain`. Foreign exceptions become ours here, in the words of `failures`.
"""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal, cast

import botocore.session
from botocore import UNSIGNED
from botocore import exceptions as boto
from botocore.awsrequest import AWSResponse
from botocore.config import Config
from botocore.credentials import Credentials, ReadOnlyCredentials
from botocore.loaders import Loader
from botocore.parsers import ResponseParserError
from botocore.utils import get_environ_proxies

from adapter.errors import InvalidRequest
from adapter.storage.secret.merging import StorageConfig
from adapter.storage.secret.tokens import plain_http_refusal
from adapter.storage.stores.answers import Where
from adapter.storage.stores.clients import Means
from adapter.storage.stores.s3 import chain
from adapter.storage.stores.s3.bucket import S3Bucket
from adapter.storage.stores.s3.config import S3Connection
from adapter.storage.stores.s3.direct import Direct, direct_from
from adapter.storage.stores.s3.failures import CREDENTIAL_ERRORS, config_words, no_credentials
from adapter.storage.stores.s3.pages import check_document
from adapter.storage.wire.botocore_session import CuttableSession
from adapter.storage.wire.dialling import FREE
from adapter.storage.wire.network import CONNECT_TIMEOUT_SECONDS, READ_TIMEOUT_SECONDS
from adapter.storage.wire.tls import memory_file
from adapter.workers import Stop

if TYPE_CHECKING:
    from botocore.awsrequest import AWSPreparedRequest
    from botocore.model import OperationModel
    from types_boto3_s3 import S3Client as BotoClient

DEFAULT_REGION = "us-east-1"
_OK, _FIRST_REFUSAL = 200, 300
_OR_ELSE = 'give the storage config an access_key_id and a secret_access_key, or "anonymous": "true" for a public bucket'


class S3Client:
    """A connection that is ready to be used, by any number of threads and for any bucket. Slow to make (0.1 s)."""

    def __init__(self, connection: S3Connection, means: Means, stop: Stop) -> None:
        """
        Asks nobody: without keys the default credential chain is asked by the first call.

        Raises:
            InvalidRequest: no client can be made of this.
            SourceDenied: the environment's own credentials are broken.
        """
        stop.check()
        self.connection = connection
        secrets = {
            "aws_access_key_id": connection.access_key_id,
            "aws_secret_access_key": connection.secret_access_key,
            "aws_session_token": connection.session_token,
        }
        self._keys = {name: secret.reveal() for name, secret in secrets.items() if secret is not None}
        self._frozen = Credentials(*self._keys.values()).get_frozen_credentials() if self._keys else None
        self._chain: chain.Chain | None = None
        session = botocore.session.Session()
        session.register_component("data_loader", _loader())
        # nobody reads the timestamps, and parsing them is half of the work of a listing
        session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=str)
        session.set_default_client_config(chain.CONFIG)
        self.region = connection.region or DEFAULT_REGION
        try:
            self.region = connection.region or cast("str | None", session.get_config_variable("region")) or DEFAULT_REGION
            if connection.access_key_id is None and not connection.is_anonymous:
                self._chain = chain.Chain(session, self.region)
                session.register_component("credential_provider", self._chain)
            self.boto = cast("BotoClient", session.create_client("s3", **self._arguments()))
        except CREDENTIAL_ERRORS as error:
            raise no_credentials(chain.ChainError(error, None), connection.host, "the storage config") from error
        except (boto.BotoCoreError, ValueError) as error:
            raise InvalidRequest(f"no S3 client for {connection.host}: {config_words(error, self.region)}") from error
        self._opened = threading.local()
        self._bundle: int | None = None
        if connection.ca_pem:
            self._bundle = memory_file(connection.ca_pem)
            weakref.finalize(self, os.close, self._bundle)
        self._http = CuttableSession(
            means.guard if connection.is_requested else FREE,
            verify=self._trust(session),
            proxies=get_environ_proxies(self.boto.meta.endpoint_url),
            timeout=(CONNECT_TIMEOUT_SECONDS, READ_TIMEOUT_SECONDS),
            max_pool_connections=means.max_connections,
        )
        self.boto.meta.events.register("before-send.s3", cast("Callable[..., None]", self._send))
        self.boto.meta.events.register("before-parse.s3.ListObjectsV2", cast("Callable[..., None]", self._give_found))
        self.boto.meta.events.register_last("before-parameter-build.s3", cast("Callable[..., None]", _follow_once))

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
        if self._chain is not None:
            self._chain.close()

    def _arguments(self) -> dict[str, Any]:
        connection = self.connection
        config = Config(
            signature_version=UNSIGNED if connection.is_anonymous else "s3v4",
            s3={"addressing_style": cast("Literal['auto', 'path', 'virtual']", connection.addressing_style)},
            retries={"total_max_attempts": 1, "mode": "standard"},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        return {"region_name": self.region, "endpoint_url": connection.endpoint_url, "config": config, **self._keys}

    def _trust(self, session: botocore.session.Session) -> bool | str:
        """What TLS certificates are checked against. botocore takes a path alone; the file is in memory."""
        if not self.connection.verify_tls:
            return False
        if self._bundle is not None:
            return f"/proc/self/fd/{self._bundle}"
        return cast("str | None", session.get_config_variable("ca_bundle")) or True

    def direct(self) -> Direct | None:
        """Where the answer to this thread's last call came from, to be asked without botocore. None: that cannot be."""
        return direct_from(self._opened.request, self._current_keys, self._http.pool_to)

    def _check_token(self, *, has_token: bool) -> None:
        """A chain may begin to give tokens at any time, so each request is looked at. Raises InvalidRequest."""
        connection = self.connection
        if has_token and connection.session_token is None and not connection.may_carry_tokens:
            raise plain_http_refusal("the session token of the default credential chain", connection.host, or_else=_OR_ELSE)

    def _current_keys(self) -> ReadOnlyCredentials:
        """What is signed with now. Raises InvalidRequest, as `_check_token`."""
        keys = cast("ReadOnlyCredentials", self._frozen) if self._chain is None else self._chain.load_credentials().get_frozen_credentials()
        self._check_token(has_token=bool(keys.token))
        return keys

    def _send(self, request: AWSPreparedRequest, **_: object) -> AWSResponse:
        self._check_token(has_token="X-Amz-Security-Token" in request.headers)
        self._opened.request, self._opened.found = request, {}
        answer = self._http.send(request)
        is_refusal = answer.status_code >= _FIRST_REFUSAL
        if request.stream_output:
            self._opened.answer = answer
        if request.method == "HEAD" or (request.stream_output and not is_refusal):
            return answer
        body, length = answer.content, answer.headers.get("Content-Length")
        try:
            found = check_document(body)
        except ResponseParserError:
            if not is_refusal:
                raise
            return _without_body(answer)  # the status says enough
        if length is not None and len(body) != int(length):
            # botocore takes a body of nothing for an empty listing
            raise boto.IncompleteReadError(actual_bytes=len(body), expected_bytes=int(length))
        if found is None or answer.status_code != _OK:
            return answer
        self._opened.found = found
        return _without_body(answer)

    def _give_found(self, customized_response_dict: dict[str, Any], **_: object) -> None:
        """Of a listing that was read already. Its body is gone, so without this it would be no listing."""
        customized_response_dict.update(self._opened.found)

    def abandon(self) -> None:
        """Close the body that this thread's last call has opened, where botocore failed over the headers and gave none."""
        answer: AWSResponse | None = getattr(self._opened, "answer", None)
        if answer is not None:
            answer.raw.close()


class _NoBody:
    """A body that nobody has to read."""

    def stream(self) -> Iterator[bytes]:
        """Nothing."""
        return iter(())


def _without_body(answer: AWSResponse) -> AWSResponse:
    return AWSResponse(answer.url, answer.status_code, cast("Any", answer.headers), _NoBody())


def _follow_once(model: OperationModel, context: dict[str, Any], **_: object) -> None:
    """A bucket that redirects is asked for its region, by botocore; when that is redirected too, again, until the stack ends."""
    if model.name == "HeadBucket":
        context["s3_redirect"]["redirected"] = True


class _Descriptions(Loader):
    """Of services. botocore looks into each of its 400 folders, twice, to know which services there are: 20 ms."""

    def list_available_services(self, type_name: str) -> list[str]:
        """Names of folders. Whoever asks for one that does not describe its service so is told then."""
        folders = filter(os.path.isdir, self.search_paths)
        return sorted({name for folder in folders for name in os.listdir(folder)})  # noqa: PTH208 - plain names


@functools.cache
def _loader() -> Loader:
    """Shared, so that the service description is parsed once."""
    return _Descriptions()
