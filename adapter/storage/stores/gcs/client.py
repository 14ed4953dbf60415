"""Buckets of Google Cloud Storage."""

from __future__ import annotations

from collections.abc import Mapping

from google.auth.exceptions import GoogleAuthError

from adapter.storage.net.access import Access, Trust, proxy_for
from adapter.storage.net.bridge import Bridge
from adapter.storage.net.guard import FREE
from adapter.storage.secret.endpoints import plain_http_refusal
from adapter.storage.secret.merging import StorageConfig
from adapter.storage.stores.answers import Where
from adapter.storage.stores.clients import Means
from adapter.storage.stores.cloud import CloudBucket, Route
from adapter.storage.stores.gcs.config import GcsConnection
from adapter.storage.stores.gcs.credentials import GoogleIdentity
from adapter.storage.stores.gcs.dialect import GcsDialect
from adapter.storage.stores.tokens import NEVER, TOKEN_BYTES, Token, Tokens, TokensAwayError

_GOOGLES = "https://storage.googleapis.com"


class GcsClient:
    """As `Client`."""

    def __init__(self, connection: GcsConnection, means: Means) -> None:
        """Raises InvalidRequest: the key is none."""
        self.connection = connection
        self.means = means
        self.trust = Trust(verify=connection.verify_tls, ca_pem=connection.ca_pem)
        self.identity = GoogleIdentity(connection)
        self.tokens = Tokens(self._ask)

    def bucket(self, config: StorageConfig) -> GcsBucket:
        """As `Client`."""
        return GcsBucket(self, config)

    async def _ask(self) -> Token:
        guard = self.means.guard if self.connection.is_token_uri_requested else FREE
        bridge = Bridge(self.means.engine, self.trust, guard, most_bytes=TOKEN_BYTES, asks=self.tokens.asks)
        token = await self.means.asking.run(lambda stop: self.identity.token(bridge, stop))
        return token or Token("", NEVER)


class GcsBucket(CloudBucket):
    """One bucket. See `Bucket` for the contract. Of an object, the generation is the version."""

    def __init__(self, client: GcsClient, config: StorageConfig) -> None:
        connection, name = client.connection, config.required_bucket()
        self._client = client
        self._base = (connection.endpoint_url or _GOOGLES).rstrip("/")
        guard = client.means.guard if connection.is_requested else FREE
        self._access = Access(client.trust, guard, proxy_for(self._base))
        where = Where(
            words=f"bucket {name!r} at {connection.host}",
            label=config.label,
            credentials=client.identity.name,
            is_plain_http=self._base.startswith("http:"),
            is_unsigned=config.is_unsigned,
        )
        super().__init__(
            kind="gcs", place=f"gs://{name}", endpoint=connection.host, dialect=GcsDialect(name), where=where, engine=client.means.engine
        )

    async def route(self) -> Route:
        """As `CloudBucket`."""
        client, where = self._client, self._where
        try:
            token = await client.tokens.get()
        except TokensAwayError as error:
            raise error.meaning(where, "Google's") from error
        except GoogleAuthError as error:
            raise where.no_credentials(f"{client.identity.name} of {where.label} did not work ({type(error).__name__})") from error
        if token and not client.connection.may_carry_tokens:
            raise plain_http_refusal("a bearer token of the default credentials", "endpoint_url", or_else='set "anonymous": "true"')

        def sign(method: str, url: str, headers: Mapping[str, str]) -> Mapping[str, str]:
            return {**headers, "Authorization": f"Bearer {token}"} if token else headers

        return Route(base=self._base, access=self._access, sign=sign)
