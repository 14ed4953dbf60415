"""
What botocore is asked: where a bucket is, and what the default credential chain of AWS gives.

Addressing styles, access points, dots in names and partitions are botocore's to know: it makes a request, and an event before
it is sent takes the request's URL and its signature's scope. That needs no network.

The chain: environment, web identity (STS), profile, SSO, container, instance metadata.

botocore knows the sources and their order. It blocks, so it runs in a thread of ours; its requests go over the engine, once: what
can pass is repeated like any other trouble of a store. There is no way to hand in anything but sessions of its own for the metadata
of an instance and of a container, so private attributes of these are replaced. A test of each would hang. Programs of a profile
(`credential_process`) are not run.
"""

from __future__ import annotations

import functools
import re
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any, Literal, cast

import botocore.session
from botocore import exceptions as boto
from botocore.awsrequest import AWSPreparedRequest, AWSResponse, HeadersDict
from botocore.config import Config
from botocore.credentials import EnvProvider, RefreshableCredentials, create_credential_resolver
from botocore.parsers import ResponseParserError

from adapter.errors import InvalidRequest, SourceUnavailable
from adapter.storage.net.failures import Unanswered
from adapter.storage.net.messages import Head
from adapter.storage.stores.cloud import NEVER, NO_ANSWER, NoCredentialsError, Token, Tokens, TokensAwayError
from adapter.storage.stores.s3 import MEANINGS, Keys, S3Connection

_session = functools.cache(botocore.session.Session)
_SCOPE = re.compile(r"AWS4-HMAC-SHA256 Credential=[^,]*/([A-Za-z0-9-]+)/s3/aws4_request,")
"""With the region of a signature."""
_ONCE = {"total_max_attempts": 1, "mode": "standard"}
_CONFIG = Config(retries=cast("Any", _ONCE), defaults_mode=cast("Any", "legacy"))  # the stubs take it for a flag
"""Of every client of the chain. Another mode than `legacy` may ask the instance's metadata beside all of this."""
_OR_ELSE = 'give the storage config an access_key_id and a secret_access_key, or "anonymous": "true" for a public bucket'
_INVALID: dict[type[Exception], str] = {
    boto.InvalidRegionError: "{region!r} is not a region",
    boto.ProfileNotFound: "AWS_PROFILE names a profile that does not exist",
    boto.ParamValidationError: "not a valid bucket name or key",
}
_FAILURES = (*NO_ANSWER, boto.BotoCoreError, boto.ClientError, ResponseParserError, OSError)


def of_environment(name: str) -> str | None:
    """What the environment or the profile says, as botocore reads it: `region`, `ca_bundle`."""
    with suppress(boto.ProfileNotFound):
        return cast("str | None", botocore.session.Session().get_config_variable(name))
    return None


@functools.lru_cache(256)
def place_of(connection: S3Connection, bucket: str, region: str) -> tuple[str, str]:
    """
    Where this bucket is: its URL, without a slash at its end, and the region that requests are signed for. Slow (0.1 s).

    Raises:
        InvalidRequest: the endpoint, region or bucket name is none, or the bucket takes another signature than SigV4.
    """
    sent: list[AWSPreparedRequest] = []

    def send(request: AWSPreparedRequest, **_: object) -> Any:
        sent.append(request)
        return SimpleNamespace(status_code=200, headers={}, content=b"<ListBucketResult/>")

    style = cast("Literal['auto', 'path', 'virtual']", connection.addressing_style)
    try:
        client = _session().create_client(
            "s3",
            region_name=region,
            endpoint_url=connection.url,
            aws_access_key_id="-",
            aws_secret_access_key="-",  # noqa: S106 - nothing is sent
            config=Config(signature_version="s3v4", s3={"addressing_style": style}, retries=cast("Any", _ONCE)),
        )
        client.meta.events.register("before-send.s3", cast("Any", send))
        cast("Any", client).list_objects_v2(Bucket=bucket)
    except (boto.BotoCoreError, ValueError) as error:
        why = _INVALID.get(type(error), f"the endpoint, region or bucket name is not valid ({type(error).__name__})")
        raise InvalidRequest(f"bucket {bucket!r} at {connection.host} cannot be asked: {why.format(region=region)}") from error
    scope = _SCOPE.search(str(sent[0].headers.get("Authorization")))
    if scope is None or bucket.endswith("--x-s3"):  # Outposts, a directory bucket
        raise InvalidRequest(f"the bucket at {connection.host} wants another signature than that of S3, which is not supported")
    return sent[0].url.partition("?")[0].rstrip("/"), scope[1]


def asked(connection: S3Connection, asking: Tokens) -> Token:
    """
    What the chain gives. Blocks.

    Raises:
        TokensAwayError: this can pass.
        NoCredentialsError: the chain gives none.
        InvalidRequest: a session token would go over plain http.
        Stopped: by the stop.
    """
    try:
        session = botocore.session.Session()
        session.set_default_client_config(_CONFIG)
        session.register("before-send", cast("Any", lambda request, **_: _answered(asking, request)))
        resolver = create_credential_resolver(session, region_name=connection.region)
        _reach_through(resolver, asking)
        found = resolver.load_credentials()
        if found is None:
            raise boto.NoCredentialsError
        frozen = found.get_frozen_credentials()
    except _FAILURES as error:
        asking.stop.check()
        raise _meaning(error) from error
    if frozen.token:
        connection.check_token("the session token of the default credential chain", connection.host, or_else=_OR_ELSE)
    ends = found._expiry_time.timestamp() if isinstance(found, RefreshableCredentials) else NEVER  # type: ignore[attr-defined]
    return Token(Keys(frozen.access_key or "", frozen.secret_key or "", frozen.token), ends_at=ends)


def _meaning(error: Exception) -> Exception:
    """What AWS says can pass is away, everything else a matter of credentials."""
    failed = f"the default credential chain failed ({type(error).__name__})"
    if isinstance(error, boto.NoCredentialsError):
        failed = "the default credential chain (environment, web identity, instance role) has no credentials"
    elif isinstance(error, boto.ClientError):
        code = str(error.response.get("Error", {}).get("Code", ""))
        if MEANINGS.get(code) is SourceUnavailable:
            return TokensAwayError(Head(int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))), code)
        failed = f"the default credential chain failed ({code})" if code.isalnum() else failed
    instead = 'give both, or anonymous "true" for a public bucket'
    return NoCredentialsError(f"{{label}} has no access_key_id and secret_access_key, and {failed}; {instead}")


def _answered(asking: Tokens, request: AWSPreparedRequest, *, is_optional: bool = False, uses_proxies: bool = True) -> AWSResponse:
    """The whole answer. Raises TokensAwayError. `is_optional`: most pods have nothing there, which is no trouble."""
    headers = {name: value.decode() if isinstance(value, bytes) else str(value) for name, value in request.headers.items()}
    body = cast("str | bytes | None", request.body) if request.method != "GET" else None
    try:
        head = asking.send(request.method, request.url, headers, body, uses_proxies=uses_proxies)
    except TokensAwayError as away:
        # an instance whose hops are limited lets a pod ask for a token (PUT), and never answers
        is_there = not isinstance(away.answer, Unanswered) or (away.answer.was_connected and request.method == "GET")
        if is_there or not is_optional:
            raise
        raise boto.EndpointConnectionError(endpoint_url=request.url, error=away) from away
    raw = SimpleNamespace(stream=lambda: iter((head.body,)))
    return AWSResponse(request.url, head.status, cast("Any", HeadersDict(head.headers)), cast("Any", raw))


def _reach_through(resolver: Any, asking: Tokens) -> None:
    role = resolver.get_provider("iam-role")._role_fetcher
    role._session, role._num_attempts = SimpleNamespace(send=partial(_answered, asking, is_optional=True)), 1
    task = resolver.get_provider("container-role")._fetcher
    task._session = SimpleNamespace(send=partial(_answered, asking, uses_proxies=False))
    task.RETRY_ATTEMPTS, task.SLEEP_TIME = 1, 0
    resolver.remove("custom-process")  # programs of a profile, whose end nothing would bound
    resolver.get_provider("assume-role")._profile_provider_builder._create_process_provider = lambda profile_name: EnvProvider({})
