"""
Who we are to Google: a service account's key, or the pod's own identity.

google-auth knows the kinds of credentials; it blocks, so its calls run in threads of ours, and its requests go over the
engine. It repeats by itself and sleeps in between, so what can pass is raised as nothing that it repeats, but for the
look for a metadata server.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import google.auth
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, TransportError
from google.oauth2 import service_account

from adapter.errors import InvalidRequest, SourceDenied
from adapter.storage.stores.cloud import NO_ANSWER, NoCredentialsError, Token, Tokens, TokensAwayError
from adapter.storage.stores.gcs import GcsConnection

_TOKEN_URI = "https://oauth2.googleapis.com/token"  # noqa: S105 - an address
_SCOPES = ("https://www.googleapis.com/auth/devstorage.read_only",)


class Identity:
    """That of a connection which is not anonymous."""

    def __init__(self, connection: GcsConnection) -> None:
        """Raises InvalidRequest: the key is none."""
        self._connection = connection
        self._words = "the default credentials, because there is no private_key in the config"
        self._found: Any = None
        """google-auth's credentials; of the pod, once they have been looked for."""
        if connection.keys:
            self._words, self._found = "the service account key", _of_key(connection)

    def asked(self, asking: Tokens) -> Token:
        """
        A new one; an empty one: requests are anonymous. Blocks.

        Raises:
            SourceDenied: the pod has default credentials that cannot be used.
            NoCredentialsError: this identity gets none.
            TokensAwayError: this can pass.
            InvalidRequest: it would go over plain http.
        """
        if self._found is None:
            self._found = _default(asking)
        if self._found is None:
            return Token("", "no credentials (there are no default ones)")
        try:
            self._found.refresh(partial(_sent, asking))
        except NO_ANSWER as error:
            raise TokensAwayError from error
        except GoogleAuthError as error:
            raise NoCredentialsError(f"{self._words} of {{label}} did not work ({type(error).__name__})") from error
        words = "a bearer token of the default credentials"
        self._connection.check_token(words, "endpoint_url", or_else='set "anonymous": "true"')
        expiry = self._found.expiry  # naive, and of UTC
        return Token(str(self._found.token), self._words, expiry.replace(tzinfo=UTC).timestamp() if expiry else 0.0)


def _sent(asking: Tokens, url: str, method: str = "GET", body: Any = None, *, headers: Mapping[str, str] | None = None, **_: Any) -> Any:
    """As google-auth's transport. Raises TokensAwayError."""
    head = asking.send(method, url, headers or {}, body)
    return SimpleNamespace(status=head.status, headers=head.headers, data=head.body)


def _of_key(connection: GcsConnection) -> Any:
    email, pem = connection.key("client_email"), connection.key("private_key").replace("\\n", "\n")
    account = {"type": "service_account", "client_email": email, "private_key": pem, "token_uri": connection.giver.url or _TOKEN_URI}
    try:
        return service_account.Credentials.from_service_account_info(account, scopes=_SCOPES)
    except (GoogleAuthError, ValueError, TypeError):
        # the library's own words and its exception may quote the key
        raise InvalidRequest("private_key is not a PEM private key; expected the text from the service account's JSON file") from None


def _default(asking: Tokens) -> Any:
    """
    The pod's own credentials; None when it has none.

    Outside of Google's machines the connection to the metadata server is refused, or nothing answers: google-auth looks
    a few times, for a new pod's may need seconds to come up, and then whether the machine is one of Google's.
    """

    def looked(*words: Any, **fields: Any) -> Any:
        try:
            return _sent(asking, *words, **fields)
        except TokensAwayError as error:
            if asking.path not in ("", "/"):  # it was no look for a metadata server
                raise
            raise TransportError("no metadata server") from error

    try:
        return google.auth.default(scopes=_SCOPES, request=cast("Any", looked))[0]
    except DefaultCredentialsError:
        return None
    except (GoogleAuthError, OSError, ValueError, LookupError) as error:
        asking.stop.check()
        raise SourceDenied(f"the default credentials of the pod cannot be used ({type(error).__name__})") from None
