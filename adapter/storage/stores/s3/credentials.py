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
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, cast
from urllib.parse import urlsplit

import botocore.session
from botocore import exceptions as boto
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.config import Config
from botocore.credentials import Credentials, ProcessProvider, RefreshableCredentials, create_credential_resolver
from botocore.parsers import ResponseParserError

from adapter.errors import AdapterError, SourceDenied, SourceUnavailable
from adapter.storage.net.bridge import Bridge
from adapter.storage.net.failures import ANSWER_SECONDS, CONNECT_SECONDS, Unanswered
from adapter.storage.stores.answers import Where
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


class ChainError(Exception):
    """The chain gave nothing."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause

    def meaning(self, where: Where) -> AdapterError:
        """For the place that the credentials are for. What AWS says can pass is away, everything else a matter of credentials."""
        cause = self.cause
        if isinstance(cause, boto.ClientError) and MEANINGS.get(_code_of(cause)) is SourceUnavailable:
            giver = replace(where, words=f"AWS, which gives out the credentials for {where.words},")
            status = int(cause.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
            return giver.refused(status, _code_of(cause), kind=SourceUnavailable)
        if isinstance(cause, boto.NoCredentialsError):
            chain = "the default credential chain (environment, web identity, instance role) has no credentials"
        else:
            code = _code_of(cause) if isinstance(cause, boto.ClientError) else type(cause).__name__
            chain = f"the default credential chain failed ({code if code.isalnum() else type(cause).__name__})"
        return SourceDenied(
            f"no credentials for {where.words}: {where.label} has no access_key_id and secret_access_key, and {chain}; "
            'give both, or anonymous "true" for a public bucket'
        )


class Chain:
    """Of one connection. Blocks: used in one thread at a time."""

    def __init__(self, region: str, bridge: Bridge) -> None:
        self._region = region
        self._bridge = bridge
        self._found: Credentials | None = None

    def ask(self, stop: Stop) -> Keys:
        """Credentials, found or renewed. Raises TokensAwayError: this can pass. Raises ChainError, Stopped."""
        asking = _Asking(self._bridge, stop)
        try:
            session = botocore.session.Session()
            session.set_default_client_config(_CONFIG)
            session.register("before-send", cast("Any", asking.on_request))
            resolver = create_credential_resolver(session, region_name=self._region)
            _reach_through(resolver, asking)
            self._found = found = resolver.load_credentials()
            if found is None:
                raise boto.NoCredentialsError
            frozen = found.get_frozen_credentials()
        except FAILURES as error:
            stop.check()
            raise asking.trouble or ChainError(error) from error
        ends = found._expiry_time.timestamp() if isinstance(found, RefreshableCredentials) else NEVER  # type: ignore[attr-defined]
        return Keys("", ends, frozen)


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
        headers = {name: _text(value) for name, value in request.headers.items()}
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
        return AWSResponse(url, head.status, cast("Any", _Headers(head.headers)), cast("Any", _Raw(answer)))


class _Metadata:
    """What botocore's fetchers take for a session of its own."""

    def __init__(self, asking: _Asking, *, is_optional: bool, uses_proxies: bool) -> None:
        self._asking = asking
        self._options = {"is_optional": is_optional, "uses_proxies": uses_proxies}

    def send(self, request: AWSPreparedRequest) -> AWSResponse:
        """The whole answer."""
        return self._asking.send(request, **self._options)


class _Headers(dict[str, str]):
    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name.lower(), default)


class _Raw:
    def __init__(self, content: bytes) -> None:
        self._content = content

    def stream(self) -> Iterator[bytes]:
        """All of it."""
        return iter((self._content,))


def _reach_through(resolver: Any, asking: _Asking) -> None:
    role = resolver.get_provider("iam-role")._role_fetcher
    role._session, role._num_attempts = _Metadata(asking, is_optional=True, uses_proxies=True), 1
    task = resolver.get_provider("container-role")._fetcher
    task._session = _Metadata(asking, is_optional=False, uses_proxies=False)
    task.RETRY_ATTEMPTS, task.SLEEP_TIME = 1, 0

    def run(command: Any, **options: Any) -> _Program:
        return _Program(command, asking.stop, options)

    resolver.get_provider("custom-process")._popen = run
    profiles = resolver.get_provider("assume-role")._profile_provider_builder

    def program_of(profile_name: str) -> ProcessProvider:
        return ProcessProvider(profile_name, load_config=lambda: profiles._session.full_config, popen=run)

    profiles._create_process_provider = program_of


class _Program:
    """A program that prints credentials, as `subprocess.Popen`: ended with all that it has started when its time is up, or by the stop."""

    def __init__(self, command: Any, stop: Stop, options: Mapping[str, Any]) -> None:
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


def _code_of(error: boto.ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
