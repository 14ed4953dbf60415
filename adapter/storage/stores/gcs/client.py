"""A connection to Google Cloud Storage."""

from __future__ import annotations

from collections.abc import Mapping

from adapter.storage.net.engine import Bridge
from adapter.storage.secret.merging import StorageConfig
from adapter.storage.stores.clients import Means
from adapter.storage.stores.cloud import CloudBucket, CloudClient, Sign
from adapter.storage.stores.gcs.config import GcsConnection
from adapter.storage.stores.gcs.credentials import GoogleIdentity
from adapter.storage.stores.gcs.dialect import GcsDialect
from adapter.storage.stores.tokens import TOKEN_BYTES, Token, Tokens

_GOOGLES = "storage.googleapis.com"


class GcsClient(CloudClient):
    """As `Client`."""

    kind, giver = "gcs", "Google's"

    def __init__(self, connection: GcsConnection, means: Means) -> None:
        """Raises InvalidRequest: the key is none."""
        super().__init__(connection, means)
        self.host = self.endpoint = self.host or _GOOGLES
        self._connection = connection
        self._identity = GoogleIdentity(connection)
        self.credentials = self._identity.name
        self._tokens = Tokens(self._ask)

    def bucket(self, config: StorageConfig) -> CloudBucket:
        """As `Client`. Of an object, the generation is the version."""
        name, base = config.required_bucket(), (self._connection.url or f"https://{_GOOGLES}").rstrip("/")
        words = f"bucket {name!r} at {self.host}"
        return CloudBucket(self, config, place=f"gs://{name}", base=base, dialect=GcsDialect(name), words=words)

    async def sign(self) -> Sign:
        """As `CloudClient`."""
        token = await self._tokens.get()
        self.credentials = self._identity.name  # the pod's are known when they have been looked for
        if token:
            words = "a bearer token of the default credentials"
            self._connection.check_token(words, "endpoint_url", or_else='set "anonymous": "true"')

        def signed(_: str, url: str, headers: Mapping[str, str]) -> tuple[str, Mapping[str, str]]:
            return url, {**headers, "Authorization": f"Bearer {token}"} if token else headers

        return signed

    async def _ask(self) -> Token:
        guard = self.means.guard_of(self._connection.giver)
        bridge = Bridge(self.means.engine, self._connection.trust, guard, most_bytes=TOKEN_BYTES, asks=self._tokens.asks)
        return await self.means.asking.run(lambda stop: self._identity.token(bridge, stop))
