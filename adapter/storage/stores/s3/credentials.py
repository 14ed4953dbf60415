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

from adapter.errors import SourceUnavailable
from adapter.storage.net.engine import Bridge
from adapter.storage.net.failures import ANSWER_SECONDS, CONNECT_SECONDS, Unanswered
from adapter.storage.net.messages import Head
from adapter.storage.stores.s3.dialect import MEANINGS
from adapter.storage.stores.tokens import NEVER, NoCredentialsError, Token, TokensAwayError
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
        if head.status >= _FIRST_AWAY_STATUS or head.status == _TOO_MANY:
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
