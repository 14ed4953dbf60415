"""Who we are to Azure Blob Storage: a key, a SAS token, a service principal, the pod's workload identity, or nobody."""

from __future__ import annotations

import time
from typing import Any

import requests
from azure.core.credentials import AccessToken
from azure.core.exceptions import AzureError
from azure.identity import ClientSecretCredential, WorkloadIdentityCredential

from adapter.errors import InvalidRequest
from adapter.storage.stores.azure.config import AzureConnection
from adapter.storage.stores.azure.transport import OPTIONS, TokenTransport
from adapter.storage.stores.tokens import TOKEN_BYTES, TokensAwayError
from adapter.storage.wire.cutting import cuttable
from adapter.storage.wire.nonsense import NONSENSE
from adapter.workers import Stop

STORAGE_SCOPE = "https://storage.azure.com/.default"
NO_IDENTITY = "no credentials (the pod has no workload identity)"

_LEFT_SECONDS = 300
"""A token is renewed so long before it ends, as azure-core does."""


class NoTokenError(Exception):
    """There is none for this identity."""


class Tokens:
    """
    An identity's tokens for storage, and for nothing else, as azure-core wants them.

    A server may answer with a challenge, and the library would fetch a token for the resource and the tenant that the
    server names, and send it there. Source: `StorageBearerTokenCredentialPolicy.on_challenge`.
    """

    def __init__(self, credential: Any, transport: TokenTransport) -> None:
        self._credential = credential
        self._transport = transport
        self._token: AccessToken | None = None

    def get_token(self, *scopes: str, **_options: Any) -> AccessToken:
        """
        As `azure.core.credentials.TokenCredential`. Asks nobody: `renew` was called before.

        Raises:
            NoTokenError: the token would be for something else.
        """
        if scopes != (STORAGE_SCOPE,) or self._token is None:
            raise NoTokenError("a challenge names another resource")
        return self._token

    def renew(self, stop: Stop) -> None:
        """
        Get a token when there is none that is valid for some minutes more. Blocks.

        Raises:
            NoTokenError: this identity gets none.
            TokensAwayError: this can pass.
        """
        if self._token is not None and self._token.expires_on - time.time() > _LEFT_SECONDS:
            return
        self._transport.begin()
        try:
            with cuttable(stop, most_bytes=TOKEN_BYTES):
                self._token = self._credential.get_token(STORAGE_SCOPE)
        except (AzureError, TokensAwayError, OSError, *NONSENSE) as error:
            stop.check()
            failure = self._meaning(error)
        else:
            return
        raise failure

    def _meaning(self, error: BaseException) -> NoTokenError | TokensAwayError:
        """What lies below the wrapping: azure-identity says of everything that the authentication failed."""
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, TokensAwayError):
                return cause
            cause = cause.__cause__
        url, status = self._transport.last_url, self._transport.last_status
        if not url:
            return NoTokenError(type(error).__name__)  # no token file, for instance
        if status is not None and 300 <= status < 500:
            return NoTokenError(f"HTTP {status}")
        away = TokensAwayError(url)
        away.__cause__ = error if isinstance(error, OSError) else ValueError(type(error).__name__)
        return away


def credential_of(connection: AzureConnection, session: requests.Session) -> tuple[Any, str]:
    """
    A credential, and what to call it. A pod without any is anonymous, as it was with the Go adapter.

    Raises:
        InvalidRequest: the tenant is none.
    """
    if connection.is_anonymous:
        return None, "no credentials"
    texts = {
        "the connection string": connection.connection_string,  # the library takes it apart, nothing goes beside it
        "the account key": connection.account_key,
        "the SAS token": connection.sas_token,
    }
    for what, secret in texts.items():
        if secret is not None:
            return None if secret is connection.connection_string else secret.reveal(), what
    transport = TokenTransport(session)
    principal = (connection.tenant_id, connection.client_id, connection.client_secret)
    try:
        if all(principal):
            parts = [secret.reveal() for secret in principal if secret]
            # without the switch, an authority that Microsoft does not know is asked for at login.microsoftonline.com first
            made: Any = ClientSecretCredential(*parts, disable_instance_discovery=True, transport=transport, **OPTIONS)
            return Tokens(made, transport), "the service principal"
    except ValueError:
        raise InvalidRequest("tenant_id is not the id or domain of a tenant") from None
    try:
        made = WorkloadIdentityCredential(transport=transport, **OPTIONS)
    except ValueError:
        return None, NO_IDENTITY
    return Tokens(made, transport), "the pod's workload identity, because the config has no credentials,"
