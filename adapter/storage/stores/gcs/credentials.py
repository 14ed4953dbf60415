"""
Who we are to Google Cloud Storage: a key, the pod's own identity, or nobody.

google-auth repeats by itself and sleeps in between, asks for more than tokens in threads of its own
(`before_request`), and has timeouts of two minutes. So it is handed a transport that ends its loops, and only
`refresh` and `apply` of its credentials are called.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import google.auth
import requests
from google.auth import compute_engine
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, TransportError
from google.auth.transport.requests import Request
from google.oauth2 import service_account

from adapter.errors import InvalidRequest, SourceDenied
from adapter.storage.stores.answers import is_passing
from adapter.storage.stores.gcs.config import GcsConnection
from adapter.storage.stores.tokens import TOKEN_BYTES, TokensAwayError
from adapter.storage.wire.cutting import cuttable
from adapter.storage.wire.nonsense import NONSENSE, is_nonsense
from adapter.storage.wire.sessions import TIMEOUT_SECONDS
from adapter.workers import Stop

TOKEN_URI = "https://oauth2.googleapis.com/token"  # noqa: S105 - an address
NO_DEFAULT = "no credentials (there are no default ones)"
_SCOPES = ("https://www.googleapis.com/auth/devstorage.read_only",)
_SEARCH_PAUSES_SECONDS = (0.0, 1.0, 2.0)
"""Before each look for a metadata server: a new pod's may need seconds to come up."""
_MACHINE = Path("/sys/class/dmi/id/product_name")


class Asking(Request):
    """
    google-auth's transport. Network trouble and answers that can pass are raised as nothing that google-auth repeats.

    Source of what it repeats: `TransportError`, and statuses of `google.auth.transport.DEFAULT_RETRYABLE_STATUS_CODES`.
    """

    def __init__(self, session: requests.Session) -> None:
        super().__init__(session)
        self._calls = threading.local()

    @property
    def last_url(self) -> str:
        """What this thread asked last."""
        return getattr(self._calls, "url", TOKEN_URI)

    def __call__(
        self, url: str, method: str = "GET", body: Any = None, headers: Mapping[str, str] | None = None, timeout: Any = None, **options: Any
    ) -> Any:
        """As google-auth's."""
        self._calls.url = url
        try:
            answer = super().__call__(url, method, body, headers, timeout=TIMEOUT_SECONDS, **options)  # type: ignore[no-untyped-call]
        except TransportError as error:
            raise TokensAwayError(url) from error.__cause__ or error
        away = TokensAwayError(url, status=answer.status, retry_after=answer.headers.get("Retry-After"))
        if is_passing(answer.status) and not _is_search(url):
            raise away
        return answer


class Bearer(requests.auth.AuthBase):
    """Puts a token on each request. Never asks for one meanwhile: tokens have a bound of their own."""

    def __init__(self, credentials: Any, ask: Asking) -> None:
        self._credentials = credentials
        self._ask = ask

    @property
    def has_tokens(self) -> bool:
        """False: requests go out as nobody's."""
        return not isinstance(self._credentials, AnonymousCredentials)

    def renew(self, stop: Stop) -> None:
        """Get a token when there is none that is valid. Blocks. Raises TokensAwayError, GoogleAuthError (none for this identity)."""
        if self._credentials.valid:
            return
        try:
            with cuttable(stop, most_bytes=TOKEN_BYTES):
                self._credentials.refresh(self._ask)
        except NONSENSE as error:
            if not is_nonsense(error):
                raise
            raise TokensAwayError(self._ask.last_url) from error

    def put_on(self, headers: MutableMapping[str, Any]) -> None:
        """The headers of a request, in its place."""
        self._credentials.apply(headers)

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """As requests'."""
        self.put_on(request.headers)
        return request


def credentials_of(connection: GcsConnection, ask: Asking, stop: Stop) -> tuple[Any, str]:
    """
    Credentials, and what to call them. A pod without any is anonymous, as it was with the Go adapter.

    Raises:
        InvalidRequest: the key is none.
        SourceDenied: the pod has default credentials that cannot be used.
        TokensAwayError: nobody knows now whether the pod has an identity.
    """
    if connection.is_anonymous:
        return AnonymousCredentials(), "no credentials"
    if connection.private_key is None or connection.client_email is None:
        found = _default(ask, stop)
        if found is None:
            return AnonymousCredentials(), NO_DEFAULT
        return found, "the default credentials, because there is no private_key in the config"
    account = {
        "type": "service_account",
        "client_email": connection.client_email.reveal(),
        "private_key": connection.private_key.reveal().replace("\\n", "\n"),
        "token_uri": connection.token_uri or TOKEN_URI,
    }
    try:
        made = service_account.Credentials.from_service_account_info(account, scopes=_SCOPES)
    except (GoogleAuthError, ValueError, TypeError):
        # the library's own words and its exception may quote the key
        raise InvalidRequest("private_key is not a PEM private key; expected the text from the service account's JSON file") from None
    return made, "the service account key"


def _default(ask: Asking, stop: Stop) -> Any:
    """
    The pod's own credentials; None when it has none.

    Whoever is not on Google's machines refuses the connection to the metadata server, or nobody answers.
    """
    for pause in _SEARCH_PAUSES_SECONDS:
        stop.pause(pause)
        try:
            return google.auth.default(scopes=_SCOPES, request=ask)[0]
        except DefaultCredentialsError:
            return None
        except TokensAwayError as error:
            if not _is_search(error.url):
                raise
            if isinstance(error.__cause__, requests.Timeout):
                break
        except (GoogleAuthError, OSError, *NONSENSE) as error:
            stop.check()
            raise SourceDenied(f"the default credentials of the pod cannot be used ({type(error).__name__})") from None
    return compute_engine.Credentials(scopes=_SCOPES) if _is_google_machine() else None


def _is_search(url: str) -> bool:
    """Whether google-auth asked if there is a metadata server."""
    return urlsplit(url).path in ("", "/")


def _is_google_machine() -> bool:
    with suppress(OSError, ValueError):
        return _MACHINE.read_text().startswith("Google")
    return False
