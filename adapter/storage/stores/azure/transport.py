"""
How Azure's libraries reach the network: over a session of ours, with our timeouts and trust.

azure-core takes timeouts and trust from the transport alone once a transport is given; the options of a client that
say the same are dropped. Source: `azure.core.pipeline.transport.RequestsTransport.send`.
"""

from __future__ import annotations

import threading
from typing import Any

import requests
from azure.core.exceptions import AzureError, HttpResponseError
from azure.core.pipeline.transport import RequestsTransport

from adapter.storage.stores.answers import is_passing
from adapter.storage.stores.body import length_of, span_of
from adapter.storage.stores.tokens import TokensAwayError
from adapter.storage.wire.network import CONNECT_TIMEOUT_SECONDS, READ_TIMEOUT_SECONDS

OPTIONS: dict[str, Any] = {"retry_total": 0, "permit_redirects": False}
"""For every client and credential: nothing is repeated, nothing is followed."""


def root_cause(error: BaseException) -> BaseException:
    """What the network did, without the library's wrapping."""
    return getattr(error, "inner_exception", None) or error


class StorageTransport(RequestsTransport):  # type: ignore[misc]  # azure-core resolves the name at run time
    """What blobs and listings come through."""

    def __init__(self, session: requests.Session) -> None:
        super().__init__(
            session=session,
            session_owner=False,
            connection_timeout=CONNECT_TIMEOUT_SECONDS,
            read_timeout=READ_TIMEOUT_SECONDS,
            connection_verify=session.verify,
        )

    def send(self, request: Any, **options: Any) -> Any:
        """As azure-core's, without a range or length that cannot be read: the library would fail before the answer is ours to close."""
        answer = super().send(request, **options)
        if span_of(answer.headers.get("Content-Range")).total is None:
            answer.headers.pop("Content-Range", None)
        if length_of(answer.headers.get("Content-Length")) is None:
            answer.headers.pop("Content-Length", None)
        return answer

    def sleep(self, duration: float) -> None:
        """As azure-core's, which nothing can wake. Nobody calls it while retries are off."""
        raise RuntimeError("Azure's library repeats by itself")


class TokenTransport(StorageTransport):
    """What tokens come through. Network trouble and answers that can pass are raised as nothing that azure-identity repeats or hides."""

    def __init__(self, session: requests.Session) -> None:
        super().__init__(session)
        self._calls = threading.local()

    def begin(self) -> None:
        """This thread asks for a token now."""
        self._calls.url, self._calls.status = "", None

    @property
    def last_url(self) -> str:
        """What this thread asked last."""
        return str(getattr(self._calls, "url", ""))

    @property
    def last_status(self) -> int | None:
        """What it was answered with."""
        status: int | None = getattr(self._calls, "status", None)
        return status

    def send(self, request: Any, **options: Any) -> Any:
        """As azure-core's."""
        self._calls.url, self._calls.status = request.url, None
        try:
            answer = super().send(request, **options)
        except HttpResponseError:
            raise
        except AzureError as error:
            raise TokensAwayError(request.url) from root_cause(error)
        self._calls.status = answer.status_code
        if is_passing(answer.status_code):
            raise TokensAwayError(request.url, status=answer.status_code, retry_after=answer.headers.get("Retry-After"))
        return answer
