"""
The default credential chain: environment, web identity (STS), profile, SSO, container, instance metadata.

Asked when a request needs credentials, in the thread of that request: so whoever wants them can be stopped, and what
can pass is repeated like any other trouble of a store. One thread asks; the others wait for it as long as they like, and
share its answer. botocore knows the sources and their order; its connections and pauses are ours.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from botocore import exceptions as boto
from botocore.config import Config
from botocore.credentials import CredentialResolver, Credentials, ReadOnlyCredentials, RefreshableCredentials, create_credential_resolver

from adapter.storage.stores.s3.givers import Line, Lines, Trouble
from adapter.storage.wire.botocore_chain import reach_through
from adapter.storage.wire.cutting import PAGE_BYTES, cuttable
from adapter.storage.wire.network import CONNECT_TIMEOUT_SECONDS, READ_TIMEOUT_SECONDS
from adapter.workers import Stop

if TYPE_CHECKING:
    from botocore.awsrequest import AWSPreparedRequest, AWSResponse
    from botocore.session import Session

TURN_SECONDS = 11 * 60
"""Left to live: below it, credentials are renewed by one thread for all. A minute more than botocore's own `mandatory` bound."""
_TIMEOUT_SECONDS = (CONNECT_TIMEOUT_SECONDS, READ_TIMEOUT_SECONDS)
_LEGACY: Any = "legacy"  # the stubs take it for a flag
CONFIG = Config(
    connect_timeout=CONNECT_TIMEOUT_SECONDS,
    read_timeout=READ_TIMEOUT_SECONDS,
    retries={"total_max_attempts": 1, "mode": "standard"},
    defaults_mode=_LEGACY,
)
"""Of every client of the chain. Another mode than `legacy` may ask the instance's metadata beside all of this."""


class ChainError(Exception):
    """The chain gave nothing. Its cause is botocore's exception, or whatever else came out of it."""

    def __init__(self, cause: Exception, trouble: Trouble | None) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.trouble = trouble
        """None: asking again would not help."""


class Chain:
    """What botocore's component `credential_provider` must be, for one session."""

    def __init__(self, session: Session, region: str) -> None:
        """Reads the environment. Asks nobody. Raises botocore's exceptions."""
        bundle = session.get_config_variable("ca_bundle")
        self._session = session
        self._region = region
        self._lines = Lines(cast("str | None", bundle) or True)
        services = Line(self._lines, _TIMEOUT_SECONDS)

        def send(request: AWSPreparedRequest, event_name: str, **_: object) -> AWSResponse | None:
            return None if event_name.startswith("before-send.s3.") else services.send(request)

        session.register("before-send", cast("Any", send))
        self._credentials = _SharedCredentials(self._resolver, self._lines)

    def load_credentials(self) -> Credentials:
        """As botocore's; asks nobody yet."""
        return self._credentials

    def close(self) -> None:
        """Close idle connections."""
        self._lines.close()

    def _resolver(self) -> CredentialResolver:
        """A new one for each time that it is asked: a role that was tried once is taken for a loop the second time."""
        resolver = create_credential_resolver(self._session, region_name=self._region)
        reach_through(
            resolver,
            instance=lambda seconds: Line(self._lines, min(seconds, READ_TIMEOUT_SECONDS), is_optional=True),
            container=lambda seconds: Line(self._lines, seconds, has_proxies=False),
            stop=_stop,
        )
        return resolver


_calls = threading.local()


@contextmanager
def asking(stop: Stop) -> Iterator[None]:
    """While inside, this thread waits for the chain until the stop."""
    _calls.stop = stop
    try:
        yield
    finally:
        _calls.stop = None


def _stop() -> Stop:
    stop: Stop | None = getattr(_calls, "stop", None)
    return Stop() if stop is None else stop


class _SharedCredentials(Credentials):
    """Credentials that are found at the first request, and renewed by one thread for all."""

    def __init__(self, resolver: Callable[[], CredentialResolver], lines: Lines) -> None:
        super().__init__("", "", method="chain")
        self._resolver = resolver
        self._lines = lines
        self._turn = _Turn()
        self._found: Credentials | None = None
        self._failures = 0
        self._failure: ChainError | None = None
        """Of the thread that asked last."""

    def get_frozen_credentials(self) -> ReadOnlyCredentials:
        """As botocore's. Raises ChainError, Stopped."""
        found = self._found
        failures, stop = self._failures, _stop()
        if found is not None and not (isinstance(found, RefreshableCredentials) and found.refresh_needed(TURN_SECONDS)):
            with cuttable(stop, most_bytes=PAGE_BYTES):
                return found.get_frozen_credentials()  # may renew them early, and goes on with the old ones if that fails
        with self._turn.taken(stop):
            if self._failures != failures and self._failure is not None:  # of one whom this thread has waited for
                raise ChainError(self._failure.cause, self._failure.trouble)
            self._failure = self._lines.trouble = None
            try:
                with cuttable(stop, most_bytes=PAGE_BYTES):
                    return self._ask()
            except Exception as error:
                stop.check()  # we cut the socket ourselves
                self._failure = ChainError(error, self._lines.trouble)
                self._failures += 1
                raise self._failure from error

    def _ask(self) -> ReadOnlyCredentials:
        self._found = self._found or self._resolver().load_credentials()
        if self._found is None:
            raise boto.NoCredentialsError
        return self._found.get_frozen_credentials()


class _Turn:
    """A lock whose waiting ends with the stop."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._is_taken = False

    @contextmanager
    def taken(self, stop: Stop) -> Iterator[None]:
        with stop.waking(self._wake), self._condition:
            while self._is_taken:
                self._condition.wait()
                stop.check()
            self._is_taken = True
        try:
            yield
        finally:
            with self._condition:
                self._is_taken = False
                self._condition.notify()

    def _wake(self) -> None:
        with self._condition:
            self._condition.notify_all()
