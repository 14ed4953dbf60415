"""
What botocore is asked: where a bucket is, and what the default credential chain of AWS gives.

Addressing styles, access points, dots in names and partitions are botocore's to know: it makes a request, and an event before
it is sent takes the request's URL and its signature's scope. That needs no network.

The chain: environment, web identity (STS), profile, SSO, container, instance metadata.

botocore knows the sources and their order. It blocks, so it runs in a thread of ours; its requests go over the engine, once: what
can pass is repeated like any other trouble of a store. There is no way to hand in anything but sessions of its own for the metadata
of an instance and of a container, and programs of a profile are waited for without an end, so private attributes of these
are replaced. A test of each would hang.
"""

from __future__ import annotations

import functools
import os
import re
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple, cast
from urllib.parse import urlsplit

import botocore.session
from botocore import UNSIGNED
from botocore import exceptions as boto
from botocore.awsrequest import AWSPreparedRequest, AWSResponse, HeadersDict
from botocore.config import Config
from botocore.credentials import ProcessProvider, RefreshableCredentials, create_credential_resolver
from botocore.parsers import ResponseParserError

from adapter.errors import AdapterError, InvalidRequest, SourceDenied, SourceNotFound, SourceUnavailable
from adapter.storage.net.engine import Bridge
from adapter.storage.net.failures import ANSWER_SECONDS, CONNECT_SECONDS, Unanswered
from adapter.storage.net.messages import Head
from adapter.storage.stores.cloud import NEVER, NoCredentialsError, Token, TokensAwayError
from adapter.storage.stores.s3 import S3Connection
from adapter.workers import Stop

_SCOPE = re.compile(r"AWS4-HMAC-SHA256 Credential=[^,]*/([A-Za-z0-9-]+)/s3/aws4_request,")
"""With the region of a signature."""
PROGRAM_SECONDS = CONNECT_SECONDS + ANSWER_SECONDS
"""As long as a request may take that is connected and answered at the last moment."""
_GIVES = "the credentials"
_CONFIG = Config(retries={"total_max_attempts": 1, "mode": "standard"}, defaults_mode=cast("Any", "legacy"))  # the stubs take it for a flag
"""Of every client of the chain. Another mode than `legacy` may ask the instance's metadata beside all of this."""
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
FAILURES = (
    boto.BotoCoreError, boto.ClientError, ResponseParserError, ValueError, LookupError, TypeError, AttributeError, RecursionError, OSError,
)  # fmt: skip


class BucketPlace(NamedTuple):
    """Where requests for a bucket go."""

    base: str
    """URL of the bucket, without a slash at its end."""
    region: str
    """That requests are signed for."""


def of_environment(name: str) -> str | None:
    """What the environment or the profile says, as botocore reads it: `region`, `ca_bundle`."""
    with suppress(boto.ProfileNotFound):
        return cast("str | None", botocore.session.Session().get_config_variable(name))
    return None


def place_of(connection: S3Connection, bucket: str, region: str) -> BucketPlace:
    """
    Where this bucket is. Slow (0.1 s).

    Raises:
        InvalidRequest: the endpoint, region or bucket name is none, or the bucket takes another signature than SigV4.
    """
    where = connection.host or "Amazon S3"
    other_signature = InvalidRequest(f"the bucket at {where} wants another signature than that of S3, which is not supported")
    if bucket.endswith("--x-s3"):  # a directory bucket
        raise other_signature
    sent: list[Any] = []

    def send(request: Any, **_: object) -> Any:
        sent.append(request)
        return SimpleNamespace(status_code=200, headers={}, content=b"<ListBucketResult/>")

    try:
        client = _session().create_client(
            "s3",
            region_name=region,
            endpoint_url=connection.url,
            aws_access_key_id="-",
            aws_secret_access_key="-",  # noqa: S106 - nothing is sent
            config=Config(
                signature_version=UNSIGNED if connection.is_anonymous else "s3v4",
                s3={"addressing_style": cast("Literal['auto', 'path', 'virtual']", connection.addressing_style)},
                retries={"total_max_attempts": 1, "mode": "standard"},
            ),
        )
        client.meta.events.register("before-send.s3", cast("Any", send))
        cast("Any", client).list_objects_v2(Bucket=bucket)
    except (boto.BotoCoreError, ValueError) as error:
        why = f"the endpoint, region or bucket name is not valid ({type(error).__name__})"
        if isinstance(error, boto.InvalidRegionError):
            why = f"{region!r} is not a region"
        elif isinstance(error, boto.ProfileNotFound):
            why = "AWS_PROFILE names a profile that does not exist"
        elif isinstance(error, boto.ParamValidationError):
            why = "not a valid bucket name or key"
        raise InvalidRequest(f"bucket {bucket!r} at {where} cannot be asked: {why}") from error
    base, signed = sent[0].url.partition("?")[0].rstrip("/"), sent[0].headers.get("Authorization") or b""
    if connection.is_anonymous:
        return BucketPlace(base, region)
    scope = _SCOPE.match(signed.decode() if isinstance(signed, bytes) else signed)
    if scope is None:  # Outposts
        raise other_signature
    return BucketPlace(base, scope[1])


@functools.cache
def _session() -> botocore.session.Session:
    return botocore.session.Session()


def asked(region: str, bridge: Bridge, stop: Stop) -> Token:
    """
    What the chain gives. Blocks.

    Raises:
        TokensAwayError: this can pass.
        NoCredentialsError: the chain gives none.
        Stopped: by the stop.
    """
    asking = _Asking(bridge, stop)
    try:
        session = botocore.session.Session()
        session.set_default_client_config(_CONFIG)
        session.register("before-send", cast("Any", lambda request, **_: asking.send(request)))
        resolver = create_credential_resolver(session, region_name=region)
        _reach_through(resolver, asking)
        found = resolver.load_credentials()
        if found is None:
            raise boto.NoCredentialsError
        frozen = found.get_frozen_credentials()
    except FAILURES as error:
        stop.check()
        raise asking.trouble or _meaning(error) from error
    ends = found._expiry_time.timestamp() if isinstance(found, RefreshableCredentials) else NEVER  # type: ignore[attr-defined]
    return Token(frozen, ends)


def _meaning(error: Exception) -> Exception:
    """What AWS says can pass is away, everything else a matter of credentials."""
    failed = f"the default credential chain failed ({type(error).__name__})"
    if isinstance(error, boto.NoCredentialsError):
        failed = "the default credential chain (environment, web identity, instance role) has no credentials"
    elif isinstance(error, boto.ClientError):
        code = str(error.response.get("Error", {}).get("Code", ""))
        if MEANINGS.get(code) is SourceUnavailable:
            status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
            return TokensAwayError("AWS", head=Head(status), code=code, gives=_GIVES)
        failed = f"the default credential chain failed ({code})" if code.isalnum() else failed
    instead = 'give both, or anonymous "true" for a public bucket'
    return NoCredentialsError(f"{{label}} has no access_key_id and secret_access_key, and {failed}; {instead}")


class _Asking:
    """The requests of one call of the chain."""

    def __init__(self, bridge: Bridge, stop: Stop) -> None:
        self._bridge = bridge
        self.stop = stop
        self.trouble: TokensAwayError | None = None
        """The last one that can pass."""

    def send(self, request: AWSPreparedRequest, *, is_optional: bool = False, uses_proxies: bool = True) -> AWSResponse:
        """The whole answer. `is_optional`: most pods have nothing there, which is no trouble."""
        url, body = request.url, request.body
        headers = {name: value.decode() if isinstance(value, bytes) else str(value) for name, value in request.headers.items()}
        content = cast("bytes | None", body.encode() if isinstance(body, str) else body)
        host = urlsplit(url).netloc
        try:
            head, answer = self._bridge.send(
                request.method, url, headers, content if request.method != "GET" else None, self.stop, uses_proxies=uses_proxies
            )
        except Unanswered as failure:
            # an instance whose hops are limited lets a pod ask for a token (PUT), and never answers
            if not is_optional or (failure.was_connected and request.method == "GET"):
                self.trouble = TokensAwayError(host, failure, gives=_GIVES)
            raise boto.EndpointConnectionError(endpoint_url=url, error=failure) from failure
        if head.status >= 500 or head.status == 429:
            self.trouble = TokensAwayError(host, head=head, gives=_GIVES)
        raw = SimpleNamespace(stream=lambda: iter((answer,)))
        return AWSResponse(url, head.status, cast("Any", HeadersDict(head.headers)), cast("Any", raw))


def _reach_through(resolver: Any, asking: _Asking) -> None:
    role = resolver.get_provider("iam-role")._role_fetcher
    role._session, role._num_attempts = SimpleNamespace(send=partial(asking.send, is_optional=True)), 1
    task = resolver.get_provider("container-role")._fetcher
    task._session = SimpleNamespace(send=partial(asking.send, uses_proxies=False))
    task.RETRY_ATTEMPTS, task.SLEEP_TIME = 1, 0
    run = partial(_Program, asking.stop)
    resolver.get_provider("custom-process")._popen = run
    profiles = resolver.get_provider("assume-role")._profile_provider_builder

    def program_of(profile_name: str) -> ProcessProvider:
        return ProcessProvider(profile_name, load_config=lambda: profiles._session.full_config, popen=cast("Callable[..., Any]", run))

    profiles._create_process_provider = program_of


class _Program(subprocess.Popen[bytes]):
    """A program that prints credentials: ended with all that it has started when its time is up, or by the stop."""

    def __init__(self, stop: Stop, command: Any, **options: Any) -> None:
        super().__init__(command, start_new_session=True, stdin=subprocess.DEVNULL, **options)
        self._stop = stop

    def communicate(self, *_: Any) -> tuple[bytes, bytes]:
        """What it has said. Raises Stopped."""
        with self._stop.waking(self._end):
            try:
                said = super().communicate(timeout=PROGRAM_SECONDS)
            except subprocess.TimeoutExpired:
                self._end()
                said = super().communicate()
        self._stop.check()
        return said

    def _end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
