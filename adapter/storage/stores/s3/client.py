"""What is kept for a connection to S3: its credentials, and where its buckets are."""

from __future__ import annotations

from collections import OrderedDict
from typing import cast

from botocore.credentials import Credentials, ReadOnlyCredentials

from adapter.storage.net.access import Trust
from adapter.storage.net.bridge import Bridge
from adapter.storage.net.guard import FREE
from adapter.storage.secret.endpoints import plain_http_refusal
from adapter.storage.secret.merging import StorageConfig
from adapter.storage.stores.answers import Where
from adapter.storage.stores.clients import Means
from adapter.storage.stores.cloud import PAGE_BYTES
from adapter.storage.stores.s3.bucket import S3Bucket
from adapter.storage.stores.s3.config import S3Connection
from adapter.storage.stores.s3.credentials import Chain, ChainError, Keys
from adapter.storage.stores.s3.place import BucketPlace, ca_bundle, place_of, region_of
from adapter.storage.stores.tokens import Tokens, TokensAwayError

TURN_SECONDS = 11 * 60
"""Left to live: below it, credentials are renewed by one caller for all. A minute more than botocore's own `mandatory` bound."""
_OR_ELSE = 'give the storage config an access_key_id and a secret_access_key, or "anonymous": "true" for a public bucket'
_KEPT_PLACES = 256


class S3Client:
    """As `Client`."""

    def __init__(self, connection: S3Connection, means: Means) -> None:
        self._connection = connection
        self._means = means
        self._trust = Trust(verify=connection.verify_tls, ca_pem=connection.ca_pem, ca_file=ca_bundle())
        secrets = (connection.access_key_id, connection.secret_access_key, connection.session_token)
        keys = [secret.reveal() for secret in secrets if secret is not None]
        self._static = Credentials(*keys).get_frozen_credentials() if keys else None
        needs_chain = self._static is None and not connection.is_anonymous
        self._endpoint = connection.host if connection.endpoint_url else f"{connection.host} ({region_of(connection)})"
        self._chain: Chain | None = None
        self._tokens = Tokens(self._asked, early_seconds=TURN_SECONDS) if needs_chain else None
        self._places: OrderedDict[tuple[str, str], BucketPlace] = OrderedDict()

    def bucket(self, config: StorageConfig) -> S3Bucket:
        """As `Client`."""
        connection, name = self._connection, config.required_bucket()

        async def place(region: str | None) -> BucketPlace:
            return await self._place(name, region)

        where = Where(
            words=f"bucket {name!r} at {connection.host}",
            label=config.label,
            credentials="the credentials",
            is_plain_http=(connection.endpoint_url or "").startswith("http:"),
            is_unsigned=config.is_unsigned,
        )
        return S3Bucket(
            name=name,
            endpoint=self._endpoint,
            where=where,
            engine=self._means.engine,
            trust=self._trust,
            guard=self._means.guard if connection.is_requested else FREE,
            place=place,
            keys=lambda: self._keys(where),
        )

    async def _keys(self, where: Where) -> ReadOnlyCredentials | None:
        if self._tokens is None:
            return self._static
        try:
            keys = cast("Keys", await self._tokens.value())
        except TokensAwayError as error:
            raise error.meaning(where, "AWS's") from error
        except ChainError as error:
            raise error.meaning(where) from error
        connection = self._connection
        if keys.credentials.token and not connection.may_carry_tokens:
            raise plain_http_refusal("the session token of the default credential chain", connection.host, or_else=_OR_ELSE)
        return cast("ReadOnlyCredentials", keys.credentials)

    async def _asked(self) -> Keys:
        if self._chain is None:
            assert self._tokens is not None  # noqa: S101 - they ask
            bridge = Bridge(self._means.engine, Trust(ca_file=self._trust.ca_file), most_bytes=PAGE_BYTES, asks=self._tokens.asks)
            self._chain = Chain(region_of(self._connection), bridge)
        return await self._means.asking.run(self._chain.ask)

    async def _place(self, bucket: str, region: str | None) -> BucketPlace:
        def find() -> BucketPlace:
            return place_of(self._connection, bucket, region or region_of(self._connection))

        key = (bucket, region or "")
        if key not in self._places:
            self._places[key] = await self._means.blocking.run(lambda _: find())
            if len(self._places) > _KEPT_PLACES:
                self._places.popitem(last=False)
        return self._places[key]
