"""
Who we are to Google Cloud Storage: a key, the pod's own identity, or anonymous.

google-auth knows the kinds of credentials; it blocks, so its calls run in threads of ours, and its requests go over the
engine. It repeats by itself and sleeps in between, so what can pass is raised as nothing that it repeats.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import google.auth
from google.auth import compute_engine
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError
from google.auth.transport import Request
from google.oauth2 import service_account

from adapter.errors import InvalidRequest, SourceDenied
from adapter.storage.net.engine import Bridge
from adapter.storage.net.failures import Unanswered
from adapter.storage.stores.answers import is_passing
from adapter.storage.stores.cloud import NoCredentialsError
from adapter.storage.stores.gcs.config import GcsConnection
from adapter.storage.stores.tokens import NEVER, NO_ANSWER, Token, TokensAwayError
from adapter.workers import Stop

TOKEN_URI = "https://oauth2.googleapis.com/token"  # noqa: S105 - an address
NO_DEFAULT = "no credentials (there are no default ones)"
_SCOPES = ("https://www.googleapis.com/auth/devstorage.read_only",)
_SEARCH_PAUSES_SECONDS = (0.0, 1.0, 2.0)
"""Before each look for a metadata server: a new pod's may need seconds to come up."""
_MACHINE = Path("/sys/class/dmi/id/product_name")


class _Asking(Request):
    """google-auth's transport, for one call in a thread."""

    def __init__(self, bridge: Bridge, stop: Stop) -> None:
        self._bridge = bridge
        self._stop = stop
        self.last_place = urlsplit(TOKEN_URI).netloc
        """What was asked last."""
        self.searches = False
        """That was whether there is a metadata server."""

    def __call__(
        self, url: str, method: str = "GET", body: Any = None, headers: Mapping[str, str] | None = None, timeout: Any = None, **_: Any
    ) -> Any:
        """As google-auth's. Raises TokensAwayError."""
        self.last_place, self.searches = urlsplit(url).netloc, urlsplit(url).path in ("", "/")
        content = body.encode() if isinstance(body, str) else body
        try:
            head, data = self._bridge.send(method, url, headers or {}, content, self._stop)
        except Unanswered as failure:
            raise TokensAwayError(self.last_place, failure) from failure
        if is_passing(head.status) and not self.searches:
            raise TokensAwayError(self.last_place, status=head.status, retry_after=head.headers.get("retry-after"))
        return SimpleNamespace(status=head.status, headers=head.headers, data=data)


class GoogleIdentity:
    """Gives tokens. Blocks: its methods run in a thread, one at a time."""

    def __init__(self, connection: GcsConnection) -> None:
        """Raises InvalidRequest: the key is none."""
        self._found: Any = None
        self.name = "no credentials"
        """For people."""
        if connection.is_anonymous:
            self._found = AnonymousCredentials()
        elif connection.private_key is not None and connection.client_email is not None:
            self._found = _of_key(connection.client_email.reveal(), connection.private_key.reveal(), connection.giver.url)
            self.name = "the service account key"

    def token(self, bridge: Bridge, stop: Stop) -> Token:
        """
        A new one, asked for over the bridge; an empty one: requests are anonymous.

        Raises:
            SourceDenied: the pod has default credentials that cannot be used.
            NoCredentialsError: this identity gets none.
            TokensAwayError: this can pass.
        """
        asking = _Asking(bridge, stop)
        if self._found is None:
            found = _default(asking, stop)
            self._found = found or AnonymousCredentials()
            self.name = "the default credentials, because there is no private_key in the config" if found else NO_DEFAULT
        if isinstance(self._found, AnonymousCredentials):
            return Token("", NEVER)
        try:
            self._found.refresh(asking)
        except NO_ANSWER as error:
            raise TokensAwayError(asking.last_place) from error
        except GoogleAuthError as error:
            raise NoCredentialsError(f"{self.name} of {{label}} did not work ({type(error).__name__})") from error
        expiry = self._found.expiry
        return Token(str(self._found.token), expiry.timestamp() if expiry is not None else 0.0)


def _of_key(email: str, key: str, token_uri: str | None) -> Any:
    pem = key.replace("\\n", "\n")
    account = {"type": "service_account", "client_email": email, "private_key": pem, "token_uri": token_uri or TOKEN_URI}
    try:
        return service_account.Credentials.from_service_account_info(account, scopes=_SCOPES)
    except (GoogleAuthError, ValueError, TypeError):
        # the library's own words and its exception may quote the key
        raise InvalidRequest("private_key is not a PEM private key; expected the text from the service account's JSON file") from None


def _default(asking: _Asking, stop: Stop) -> Any:
    """
    The pod's own credentials; None when it has none.

    Outside of Google's machines the connection to the metadata server is refused, or nothing answers.
    """
    for pause in _SEARCH_PAUSES_SECONDS:
        stop.pause(pause)
        try:
            return google.auth.default(scopes=_SCOPES, request=asking)[0]
        except DefaultCredentialsError:
            return None
        except TokensAwayError as error:
            if not asking.searches:
                raise
            if error.failure is not None and "within" in str(error.failure):
                break
        except (GoogleAuthError, OSError, ValueError, LookupError) as error:
            stop.check()
            raise SourceDenied(f"the default credentials of the pod cannot be used ({type(error).__name__})") from None
    return compute_engine.Credentials(scopes=_SCOPES) if _is_google_machine() else None


def _is_google_machine() -> bool:
    with suppress(OSError, ValueError):
        return _MACHINE.read_text().startswith("Google")
    return False
