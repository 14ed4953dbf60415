"""
Bearer tokens of a service principal, or of the pod's workload identity.

Source: Microsoft identity platform, client credentials flow (with a secret, and with a federated credential); azure-identity's
names of environment variables.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from adapter.errors import InvalidRequest
from adapter.storage.net.access import Access, Trust, proxy_for
from adapter.storage.net.failures import Unanswered
from adapter.storage.net.messages import Collected, Request
from adapter.storage.stores.answers import is_passing
from adapter.storage.stores.azure.config import AzureConnection
from adapter.storage.stores.clients import Means
from adapter.storage.stores.cloud import OK, NoCredentialsError
from adapter.storage.stores.tokens import TOKEN_BYTES, Token, TokensAwayError

_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_MOST_SECONDS = 10**9


class _Answer(msgspec.Struct):
    access_token: Annotated[str, msgspec.Meta(pattern="^[ -~]*$")]
    expires_in: int | str


@dataclass(frozen=True)
class Identity:
    """Who asks for tokens."""

    url: str
    """Where tokens are given out."""
    client: str
    secret: str
    """Of a service principal. Without one: of a workload identity."""
    token_file: str

    @property
    def host(self) -> str:
        """Host and port of `url`."""
        return urlsplit(self.url).netloc


def identity_of(connection: AzureConnection, environ: Mapping[str, str] = os.environ) -> Identity | None:  # noqa: TID251 - names are Azure's
    """The config's service principal, or the pod's workload identity; None: there is neither. Raises InvalidRequest: no tenant."""
    names = ("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_FEDERATED_TOKEN_FILE")
    (tenant, client, file), secret = (environ.get(name, "") for name in names), ""
    if connection.client_secret and connection.client_id and connection.tenant_id:
        tenant, client, secret = (each.reveal() for each in (connection.tenant_id, connection.client_id, connection.client_secret))
        if not tenant.isascii() or not all(letter.isalnum() or letter in "-." for letter in tenant):
            raise InvalidRequest("tenant_id is not the id or domain of a tenant")
    elif not (tenant and client and file):
        return None
    authority = environ.get("AZURE_AUTHORITY_HOST", "https://login.microsoftonline.com").rstrip("/")
    authority = authority if "://" in authority else f"https://{authority}"
    return Identity(f"{authority}/{quote(tenant, safe='')}/oauth2/v2.0/token", client, secret, file)


async def asked(identity: Identity, name: str, trust: Trust, means: Means) -> Token:
    """
    A new token. `name`: of the identity, for people.

    Raises:
        NoCredentialsError: this identity gets none.
        TokensAwayError: this can pass.
    """
    fields = {"client_id": identity.client, "scope": "https://storage.azure.com/.default", "grant_type": "client_credentials"}
    failed = f"{name} of {{label}} did not work"
    if identity.secret:
        fields["client_secret"] = identity.secret
    else:
        try:
            assertion = await means.blocking.run(lambda _: Path(identity.token_file).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise NoCredentialsError(f"{failed} ({type(error).__name__})") from error
        fields |= {"client_assertion_type": _ASSERTION, "client_assertion": assertion}
    page, access, began = Collected(), Access(trust, proxy=proxy_for(identity.url)), time.time()
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json", "Accept-Encoding": "identity"}
    try:
        body = urlencode(fields).encode()
        head = await means.engine.fetch(Request(identity.url, headers, page, access, TOKEN_BYTES, method="POST", body=body))
    except Unanswered as failure:
        raise TokensAwayError(identity.host, failure) from failure
    if is_passing(head.status):
        raise TokensAwayError(identity.host, status=head.status, retry_after=head.headers.get("retry-after"))
    if head.status != OK:
        raise NoCredentialsError(f"{failed} (HTTP {head.status})")
    try:
        answer = msgspec.json.decode(page.content, type=_Answer)
        return Token(answer.access_token, began + min(int(answer.expires_in), _MOST_SECONDS))
    except ValueError as error:
        raise TokensAwayError(identity.host) from error
