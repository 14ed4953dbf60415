"""Containers of Azure Blob Storage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from adapter.errors import InvalidRequest
from adapter.storage.net.access import Access, Trust, proxy_for
from adapter.storage.net.engine import Engine
from adapter.storage.net.guard import FREE, Guard
from adapter.storage.secret.endpoints import plain_http_refusal
from adapter.storage.secret.merging import StorageConfig
from adapter.storage.stores.answers import Where
from adapter.storage.stores.azure.config import AzureConnection, container_of, parts_of
from adapter.storage.stores.azure.credentials import Credential, NoTokenError, credential_of, decoded
from adapter.storage.stores.azure.dialect import AzureDialect
from adapter.storage.stores.clients import Means
from adapter.storage.stores.cloud import CloudBucket, Route
from adapter.storage.stores.tokens import TokensAwayError

_OR_ELSE = 'give the storage config an account_key, or "anonymous": "true" for a public container'
_NOT_AZURES = "connection_string, account_key or sas_token is not what Azure gives out as such"
_LOOPBACK_DEVELOPMENT = "http://127.0.0.1:10000/devstoreaccount1"


@dataclass(frozen=True)
class _Account:
    """Where an account is."""

    url: str
    """Without a slash at its end."""
    name: str


class AzureClient:
    """As `Client`."""

    def __init__(self, connection: AzureConnection, means: Means) -> None:
        """Raises InvalidRequest: no client can be made of this, or tokens would go over plain http."""
        self._means = means
        self._trust = Trust(verify=connection.verify_tls, ca_pem=connection.ca_pem)
        self._guard = means.guard if connection.is_requested else FREE
        if connection.connection_string is not None:
            self._account, self._credential = _of_connection_string(parts_of(connection.connection_string))
        else:
            url = connection.account_url or ""
            self._account = _Account(url.rstrip("/"), _account_in(url) or connection.account_name or "")
            self._credential = credential_of(connection, self._account.name, means.engine, means.blocking)
        if self._credential.tokens is not None and not connection.may_carry_tokens:
            raise plain_http_refusal("the bearer token of the pod's workload identity", "endpoint_url", or_else=_OR_ELSE)

    def bucket(self, config: StorageConfig) -> AzureBucket:
        """As `Client`, for a container."""
        name, host = container_of(config), urlsplit(self._account.url).netloc
        where = Where(
            words=f"container {name!r} at {host}",
            label=config.label,
            credentials=self._credential.name,
            is_plain_http=self._account.url.startswith("http:"),
            is_unsigned=config.is_unsigned,
        )
        return AzureBucket(
            name=name, account=self._account, credential=self._credential, where=where, engine=self._means.engine, trust=self._trust,
            guard=self._guard,
        )  # fmt: skip


class AzureBucket(CloudBucket):
    """One container. See `Bucket` for the contract."""

    def __init__(
        self, *, name: str, account: _Account, credential: Credential, where: Where, engine: Engine, trust: Trust, guard: Guard
    ) -> None:
        host = urlsplit(account.url).netloc
        super().__init__(kind="azure", place=f"azure://{host}/{name}", endpoint=host, dialect=AzureDialect(), where=where, engine=engine)
        self._base = f"{account.url}/{name}"
        self._credential = credential
        self._access = Access(trust, guard, proxy_for(account.url))

    async def route(self) -> Route:
        """As `CloudBucket`."""
        credential, where = self._credential, self._where
        try:
            token = await credential.token()
        except NoTokenError as error:
            raise where.no_credentials(f"{where.credentials} of {where.label} did not work ({error})") from error
        except TokensAwayError as error:
            raise error.meaning(where, "Azure's") from error

        def sign(method: str, url: str, headers: Mapping[str, str]) -> Mapping[str, str]:
            return credential.signed(method, url, headers, token)

        return Route(base=self._base, access=self._access, sign=sign, query=credential.query)


def _of_connection_string(parts: Mapping[str, str]) -> tuple[_Account, Credential]:
    """Source: `parse_connection_str` of azure-storage-blob."""
    name, key, signature = (parts.get(each, "") for each in ("ACCOUNTNAME", "ACCOUNTKEY", "SHAREDACCESSSIGNATURE"))
    if parts.get("USEDEVELOPMENTSTORAGE") == "true":
        url = _LOOPBACK_DEVELOPMENT
    elif not (url := parts.get("BLOBENDPOINT", "")):
        suffix = parts.get("ENDPOINTSUFFIX", "core.windows.net")
        if not name:
            raise InvalidRequest(_NOT_AZURES)
        url = f"{parts.get('DEFAULTENDPOINTSPROTOCOL', 'https')}://{name}.blob.{suffix}"
    url = url if "://" in url else f"https://{url}"
    bare, _, query = url.partition("?")
    account = _Account(bare.rstrip("/"), name or _account_in(bare))
    if name and key:
        return account, Credential(name="the connection string", account=name, key=decoded(key))
    return account, Credential(name="the connection string", query=signature.lstrip("?") or query)


def _account_in(url: str) -> str:
    """The account's name, as Azure's own host names have it, and loopback's paths."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if ".blob." in host:
        return host.partition(".")[0]
    if host in ("127.0.0.1", "localhost", "::1"):
        return parts.path.strip("/").partition("/")[0]
    return ""
