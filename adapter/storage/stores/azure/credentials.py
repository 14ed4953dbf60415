"""
Who we are to Azure Blob Storage: a key, a SAS token, a service principal, the pod's workload identity, or anonymous.

Source: Microsoft identity platform, client credentials flow (with a secret, and with a federated credential); azure-identity's
names of environment variables.
"""

from __future__ import annotations

import base64
import binascii
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from typing import Annotated
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from adapter.errors import InvalidRequest
from adapter.storage.net.access import Access, Trust, proxy_for
from adapter.storage.net.engine import Engine
from adapter.storage.net.failures import Unanswered
from adapter.storage.net.messages import Collected, Request
from adapter.storage.stores.answers import is_passing
from adapter.storage.stores.azure.config import AzureConnection
from adapter.storage.stores.azure.dialect import VERSION
from adapter.storage.stores.azure.signing import authorization
from adapter.storage.stores.tokens import TOKEN_BYTES, Token, Tokens, TokensAwayError
from adapter.workers import Workers

SCOPE = "https://storage.azure.com/.default"
AUTHORITY = "https://login.microsoftonline.com"
NO_IDENTITY = "no credentials (the pod has no workload identity)"
_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_OK = 200
_MOST_SECONDS = 10**9


class _Answer(msgspec.Struct):
    access_token: Annotated[str, msgspec.Meta(pattern="^[ -~]*$")]
    expires_in: int | str


class NoTokenError(Exception):
    """There is none for this identity."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Who asks for tokens."""

    authority: str
    tenant: str
    client: str
    secret: str = ""
    """Of a service principal."""
    token_file: str = ""
    """Of a workload identity."""

    @property
    def url(self) -> str:
        """Where tokens are given out."""
        return f"{self.authority.rstrip('/')}/{quote(self.tenant, safe='')}/oauth2/v2.0/token"


@dataclass(frozen=True, kw_only=True)
class Credential:
    """How requests are made to be ours."""

    name: str
    """For people: `the account key`."""
    account: str = ""
    key: bytes = b""
    query: str = ""
    """A shared access signature."""
    tokens: Tokens | None = None

    async def token(self) -> str:
        """The bearer token of now; empty: none is used. Raises NoTokenError, TokensAwayError."""
        return await self.tokens.get() if self.tokens is not None else ""

    def signed(self, method: str, url: str, headers: Mapping[str, str], token: str) -> Mapping[str, str]:
        """The headers to send."""
        given = {"x-ms-version": VERSION, "x-ms-date": formatdate(usegmt=True), **headers}
        if token:
            given["Authorization"] = f"Bearer {token}"
        elif self.key:
            given["Authorization"] = authorization(method, url, given, self.account, self.key)
        return given


def workload_identity(environ: Mapping[str, str] = os.environ) -> Identity | None:  # noqa: TID251 - the names are Azure's
    """Of the pod; None where it has none."""
    names = ("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_FEDERATED_TOKEN_FILE")
    tenant, client, file = (environ.get(name, "") for name in names)
    authority = environ.get("AZURE_AUTHORITY_HOST", AUTHORITY)
    if not (tenant and client and file):
        return None
    return Identity(authority=authority if "://" in authority else f"https://{authority}", tenant=tenant, client=client, token_file=file)


def decoded(key: str) -> bytes:
    """An account key. Raises InvalidRequest."""
    try:
        return base64.b64decode(key, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidRequest("account_key is not what Azure gives out as such") from None


def credential_of(connection: AzureConnection, account: str, engine: Engine, blocking: Workers) -> Credential:
    """
    The first that the config has: key, SAS token, service principal; else the pod's identity, else none.

    Raises:
        InvalidRequest: a credential is none.
    """
    if connection.is_anonymous:
        return Credential(name="no credentials")
    if connection.account_key is not None:
        if not account:
            raise InvalidRequest("account_key needs account_name, which endpoint_url does not tell")
        return Credential(name="the account key", account=account, key=decoded(connection.account_key.reveal()))
    if connection.sas_token is not None:
        return Credential(name="the SAS token", query=connection.sas_token.reveal().lstrip("?"))
    trust = Trust(verify=connection.verify_tls, ca_pem=connection.ca_pem)
    if connection.client_secret is not None and connection.client_id is not None and connection.tenant_id is not None:
        tenant = connection.tenant_id.reveal()
        if not tenant.isascii() or not all(letter.isalnum() or letter in "-." for letter in tenant):
            raise InvalidRequest("tenant_id is not the id or domain of a tenant")
        identity: Identity | None = Identity(
            authority=os.environ.get("AZURE_AUTHORITY_HOST", AUTHORITY),  # noqa: TID251 - the name is Azure's
            tenant=tenant,
            client=connection.client_id.reveal(),
            secret=connection.client_secret.reveal(),
        )
        name = "the service principal"
    else:
        identity, name = workload_identity(), "the pod's workload identity, because the config has no credentials,"
    if identity is None:
        return Credential(name=NO_IDENTITY)
    known = identity

    async def ask() -> Token:
        tokens.asks(urlsplit(known.url).netloc)
        return await _asked(known, trust, engine, blocking)

    tokens = Tokens(ask)
    return Credential(name=name, tokens=tokens)


async def _asked(identity: Identity, trust: Trust, engine: Engine, blocking: Workers) -> Token:
    fields = {"client_id": identity.client, "scope": SCOPE, "grant_type": "client_credentials"}
    if identity.token_file:
        try:
            assertion = await blocking.run(lambda _: Path(identity.token_file).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise NoTokenError(type(error).__name__) from error
        fields |= {"client_assertion_type": _ASSERTION, "client_assertion": assertion}
    else:
        fields["client_secret"] = identity.secret
    url, place, page = identity.url, urlsplit(identity.url).netloc, Collected()
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json", "Accept-Encoding": "identity"}
    request = Request(url, headers, page, Access(trust, proxy=proxy_for(url)), TOKEN_BYTES, method="POST", body=urlencode(fields).encode())
    began = time.time()
    try:
        head = await engine.fetch(request)
    except Unanswered as failure:
        raise TokensAwayError(place, failure) from failure
    if is_passing(head.status):
        raise TokensAwayError(place, status=head.status, retry_after=head.headers.get("retry-after"))
    if head.status != _OK:
        raise NoTokenError(f"HTTP {head.status}")
    try:
        answer = msgspec.json.decode(page.content, type=_Answer)
        return Token(answer.access_token, began + min(int(answer.expires_in), _MOST_SECONDS))
    except ValueError as error:
        raise TokensAwayError(place) from error
