"""
The default credential chain of AWS: environment, web identity (STS), profile, SSO, container, instance metadata.

botocore knows the sources and their order. It blocks, so it runs in a thread of ours; its requests go over the engine, once: what
can pass is repeated like any other trouble of a store. There is no way to hand in anything but sessions of its own for the metadata
of an instance and of a container, and programs of a profile are waited for without an end, so private attributes of these
are replaced. A test of each would hang.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import urlsplit

import botocore.session
from botocore import exceptions as boto
from botocore.awsrequest import AWSPreparedRequest, AWSResponse, HeadersDict
from botocore.config import Config
from botocore.credentials import ProcessProvider, RefreshableCredentials, create_credential_resolver
from botocore.parsers import ResponseParserError

from adapter.errors import AdapterError, SourceUnavailable
from adapter.storage.net.engine import Bridge
from adapter.storage.net.failures import ANSWER_SECONDS, CONNECT_SECONDS, Unanswered
from adapter.storage.stores.answers import Where
from adapter.storage.stores.cloud import NoCredentialsError
from adapter.storage.stores.s3.dialect import MEANINGS
from adapter.storage.stores.tokens import NEVER, Token, TokensAwayError
from adapter.workers import Stop

PROGRAM_SECONDS = CONNECT_SECONDS + ANSWER_SECONDS
"""As long as a request may take that is connected and answered at the last moment."""
_FIRST_AWAY_STATUS, _TOO_MANY = 500, 429
_GIVES = "the credentials"
_LEGACY: Any = "legacy"  # the stubs take it for a flag
_CONFIG = Config(retries={"total_max_attempts": 1, "mode": "standard"}, defaults_mode=_LEGACY)
"""Of every client of the chain. Another mode than `legacy` may ask the instance's metadata beside all of this."""
FAILURES = (
    boto.BotoCoreError, boto.ClientError, ResponseParserError, ValueError, LookupError, TypeError, AttributeError, RecursionError, OSError,
)  # fmt: skip


@dataclass(frozen=True)
class Keys(Token):
    """What is signed with."""

    credentials: Any = None


def asked(region: str, bridge: Bridge, stop: Stop) -> Keys:
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
        session.register("before-send", cast("Any", asking.on_request))
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
    return Keys("", ends, frozen)


def _meaning(error: Exception) -> Exception:
    """What AWS says can pass is away, everything else a matter of credentials."""
    failed = f"the default credential chain failed ({type(error).__name__})"
    if isinstance(error, boto.NoCredentialsError):
        failed = "the default credential chain (environment, web identity, instance role) has no credentials"
    elif isinstance(error, boto.ClientError):
        code = str(error.response.get("Error", {}).get("Code", ""))
        if MEANINGS.get(code) is SourceUnavailable:
            return _AwsAwayError(code, int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)))
        failed = f"the default credential chain failed ({code})" if code.isalnum() else failed
    instead = 'give both, or anonymous "true" for a public bucket'
    return NoCredentialsError(f"{{label}} has no access_key_id and secret_access_key, and {failed}; {instead}")


class _AwsAwayError(TokensAwayError):
    """AWS says by a code that this can pass."""

    def __init__(self, code: str, status: int) -> None:
        super().__init__("AWS", status=status)
        self._code = code

    def meaning(self, where: Where, owner: str) -> AdapterError:
        """As `TokensAwayError`."""
        giver = replace(where, words=f"{self.place}, which gives out {_GIVES} for {where.words},")
        error = giver.refused(self.status, self._code, kind=SourceUnavailable)
        assert isinstance(error, SourceUnavailable)  # noqa: S101 - of that kind
        error.is_of_giver = True
        return error


class _Asking:
    """The requests of one call of the chain."""

    def __init__(self, bridge: Bridge, stop: Stop) -> None:
        self._bridge = bridge
        self.stop = stop
        self.trouble: TokensAwayError | None = None
        """The last one that can pass."""

    def on_request(self, request: AWSPreparedRequest, **_: object) -> AWSResponse:
        """As botocore's event `before-send`."""
        return self.send(request)

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
        if head.status >= _FIRST_AWAY_STATUS or head.status == _TOO_MANY:
            self.trouble = TokensAwayError(host, status=head.status, retry_after=head.headers.get("retry-after"), gives=_GIVES)
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


class _Program:
    """A program that prints credentials, as `subprocess.Popen`: ended with all that it has started when its time is up, or by the stop."""

    def __init__(self, stop: Stop, command: Any, **options: Any) -> None:
        self._stop = stop
        self._child = subprocess.Popen(command, start_new_session=True, stdin=subprocess.DEVNULL, **options)  # noqa: S603 - the profile's own
        self.returncode: int | None = None

    def communicate(self) -> tuple[Any, Any]:
        """What it has said. Raises Stopped."""
        with self._stop.waking(self._end):
            try:
                said = self._child.communicate(timeout=PROGRAM_SECONDS)
            except subprocess.TimeoutExpired:
                self._end()
                said = self._child.communicate()
        self._stop.check()
        self.returncode = self._child.returncode
        return said

    def _end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
