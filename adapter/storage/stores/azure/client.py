"""A connection to an account of Azure Blob Storage."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from email.utils import formatdate

from adapter.errors import InvalidRequest
from adapter.storage.secret.merging import StorageConfig
from adapter.storage.stores.azure.config import AzureConnection, container_of
from adapter.storage.stores.azure.credentials import asked, identity_of
from adapter.storage.stores.azure.dialect import VERSION, AzureDialect, authorization
from adapter.storage.stores.clients import Means
from adapter.storage.stores.cloud import CloudBucket, CloudClient, Sign
from adapter.storage.stores.tokens import Token, Tokens

_OR_ELSE = 'give the storage config an account_key, or "anonymous": "true" for a public container'


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
        self._identity = identity_of(connection) if is_chained or connection.client_secret else None
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
        assert self._identity is not None and self._tokens is not None  # noqa: S101 - they ask
        self._tokens.asks(self._identity.host)
        return await asked(self._identity, self.credentials, self._trust, self.means)


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
