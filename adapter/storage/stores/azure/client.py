"""
A connection to an account of Azure Blob Storage: a key, a signature, or the tokens of an identity.

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
from adapter.storage.net.access import Access, proxy_for
from adapter.storage.net.failures import Unanswered
from adapter.storage.net.messages import Collected, Request
from adapter.storage.secret.merging import StorageConfig
from adapter.storage.stores.answers import OK, is_passing
from adapter.storage.stores.azure import AzureConnection, container_of
from adapter.storage.stores.azure.dialect import VERSION, AzureDialect, authorization
from adapter.storage.stores.clients import Means
from adapter.storage.stores.cloud import CloudBucket, CloudClient, Sign
from adapter.storage.stores.tokens import TOKEN_BYTES, NoCredentialsError, Token, Tokens, TokensAwayError

_OR_ELSE = 'give the storage config an account_key, or "anonymous": "true" for a public container'
_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_MOST_SECONDS = 10**9


class _Answer(msgspec.Struct):
    access_token: Annotated[str, msgspec.Meta(pattern="^[ -~]*$")]
    expires_in: int | str


@dataclass(frozen=True)
class _Identity:
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


def _identity_of(connection: AzureConnection) -> _Identity | None:
    """The config's service principal, or the pod's workload identity; None: there is neither. Raises InvalidRequest: no tenant."""
    environ = os.environ  # noqa: TID251 - names are Azure's
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
    return _Identity(f"{authority}/{quote(tenant, safe='')}/oauth2/v2.0/token", client, secret, file)


class AzureClient(CloudClient):
    """As `Client`."""

    kind, giver = "azure", "Azure's"

    def __init__(self, connection: AzureConnection, means: Means) -> None:
        """Raises InvalidRequest: no client can be made of this, or tokens would go over plain http."""
        super().__init__(connection, means)
        self._url, self._account = connection.url, connection.account
        self._key = _decoded(connection)
        self._query = connection.sas_token.reveal().lstrip("?") if connection.sas_token else ""
        is_chained = not (connection.credentials or connection.is_anonymous)
        self._identity = _identity_of(connection) if is_chained or connection.client_secret else None
        self.credentials = connection.credentials or "no credentials"
        if is_chained:
            of_pod = "the pod's workload identity, because the config has no credentials,"
            self.credentials = of_pod if self._identity else "no credentials (the pod has no workload identity)"
        self._tokens = Tokens(self._ask) if self._identity else None
        if self._tokens:
            connection.check_token("the bearer token of the pod's workload identity", "endpoint_url", or_else=_OR_ELSE)

    def bucket(self, config: StorageConfig) -> CloudBucket:
        """As `Client`, for a container."""
        name = container_of(config)
        words = f"container {name!r} at {self.host}"
        place, base = f"azure://{self.host}/{name}", f"{self._url}/{name}"
        return CloudBucket(self, config, place=place, base=base, dialect=AzureDialect(), words=words)

    async def sign(self) -> Sign:
        """As `CloudClient`."""
        token = await self._tokens.get() if self._tokens else ""

        def signed(method: str, url: str, headers: Mapping[str, str]) -> tuple[str, Mapping[str, str]]:
            given = {"x-ms-version": VERSION, "x-ms-date": formatdate(usegmt=True), **headers}
            if token:
                given["Authorization"] = f"Bearer {token}"
            elif self._key:
                given["Authorization"] = authorization(method, url, given, self._account, self._key)
            elif self._query:
                url += f"{'&' if '?' in url else '?'}{self._query}"
            return url, given

        return signed

    async def _ask(self) -> Token:
        """Raises NoCredentialsError; TokensAwayError: this can pass."""
        identity = self._identity
        assert identity is not None and self._tokens is not None  # noqa: S101 - they ask
        self._tokens.asks(identity.host)
        fields = {"client_id": identity.client, "scope": "https://storage.azure.com/.default", "grant_type": "client_credentials"}
        failed = f"{self.credentials} of {{label}} did not work"
        if identity.secret:
            fields["client_secret"] = identity.secret
        else:
            try:
                assertion = await self.means.blocking.run(lambda _: Path(identity.token_file).read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise NoCredentialsError(f"{failed} ({type(error).__name__})") from error
            fields |= {"client_assertion_type": _ASSERTION, "client_assertion": assertion}
        page, access, began = Collected(), Access(self._trust, proxy=proxy_for(identity.url)), time.time()
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json", "Accept-Encoding": "identity"}
        request = Request(identity.url, headers, page, access, TOKEN_BYTES, method="POST", body=urlencode(fields).encode())
        try:
            head = await self.means.engine.fetch(request)
        except Unanswered as failure:
            raise TokensAwayError(identity.host, failure) from failure
        if is_passing(head.status):
            raise TokensAwayError(identity.host, head=head)
        if head.status != OK:
            raise NoCredentialsError(f"{failed} (HTTP {head.status})")
        try:
            answer = msgspec.json.decode(page.content, type=_Answer)
            return Token(answer.access_token, began + min(int(answer.expires_in), _MOST_SECONDS))
        except ValueError as error:
            raise TokensAwayError(identity.host) from error


def _decoded(connection: AzureConnection) -> bytes:
    """The account's key; empty: there is none."""
    if connection.account_key is None:
        return b""
    if not connection.account:
        raise InvalidRequest("account_key needs account_name, which endpoint_url does not tell")
    try:
        return base64.b64decode(connection.account_key.reveal(), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidRequest("account_key is not what Azure gives out as such") from None
