"""
What a storage config says of the way to a store, whatever its type, and the clients that are made of that.

There is one client for each connection, made when it is needed and kept: the last ones used. It holds what is slow to learn:
credentials that end. Knows no store: the table hands in its rows.

Bearer tokens never go over plain http, except to a loopback address that the stored config names: a token is its own proof, and each
reader on the wire could use it. Keys that sign (SigV4, Azure's Shared Key) never travel, so plain http is the operator's to choose
for them. Tokens of a config are checked where the config is read, those of a credential chain whenever one is got.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import ip_address
from typing import Any, ClassVar, Protocol
from urllib.parse import urlsplit

from adapter.errors import InvalidRequest
from adapter.storage.bucket import Bucket
from adapter.storage.net.engine import Engine
from adapter.storage.net.messages import FREE, Guard, Trust
from adapter.storage.secret.fields import Secret, trusted_pem
from adapter.storage.secret.merging import NOTHING, Binding, StorageConfig
from adapter.workers import Workers

KEPT_CLIENTS = 32


@dataclass(frozen=True, kw_only=True)
class Connection:
    """
    What a client is made from. Some types add fields.

    Two equal connections share a client, so there is nothing else in here: no bucket, no name of the config.
    """

    usual: ClassVar[str] = ""
    """For people: the vendor's own place."""
    url: str | None = None
    """None: the vendor's own place, or the type has a URL with each request."""
    is_requested: bool = False
    """Only the request names the place, so addresses are checked before they are dialled (`Means.guard`)."""
    is_anonymous: bool = False
    """Requests are not signed: a public bucket, or an endpoint that must not see any credentials."""
    trust: Trust = field(default_factory=Trust)
    keys: tuple[tuple[str, Secret], ...] = ()
    """Credentials by the names of their fields. One that is not there has none."""

    def key(self, name: str) -> str:
        """A credential, for the library or the signature that needs it; empty: there is none."""
        return next((secret.reveal() for each, secret in self.keys if each == name), "")

    @property
    def host(self) -> str:
        """For people: host and port, or the vendor's own place."""
        return urlsplit(self.url).netloc if self.url else self.usual

    def check_token(self, token: str, place: str, *, or_else: str = "") -> None:
        """
        Raise InvalidRequest when a token would be readable on its way.

        Args:
            token: what would go: `the session token of the default credential chain`.
            place: for people, whereto.
            or_else: what works without a token.
        """
        parts = urlsplit(self.url or "https://")
        may_carry = parts.scheme == "https"
        with suppress(ValueError):
            may_carry |= not self.is_requested and (parts.hostname == "localhost" or ip_address(parts.hostname or "").is_loopback)
        if not may_carry:
            raise InvalidRequest(
                f"{place} is plain http, and {token} would be readable on the way; "
                f"use https{f', or {or_else}' if or_else else ''} (plain http is for a loopback address that the storage config names)"
            )


def fields_of(
    config: StorageConfig, binding: Binding = NOTHING, place: str = "endpoint_url", needs: str = "give all of them, or none"
) -> dict[str, Any]:
    """
    The fields of `Connection` that all types read alike. Blocks: a CA bundle may be a file.

    Args:
        config: of the request.
        binding: its credentials do not count where requests are anonymous.
        place: the field that names the place.
        needs: what to do where a part of the credentials is missing.

    Raises:
        InvalidRequest: a field has a wrong type or value, or a part of the credentials is missing.
    """
    is_anonymous = config.flag("anonymous", default=False)
    found = {name: config.secret(name) for name in binding.credentials}
    keys = tuple((name, secret) for name, secret in found.items() if secret and not is_anonymous)
    binding.check_whole(dict(keys), config.label, needs)
    trust = Trust(verify=config.flag("verify_ssl", default=True), ca_pem=trusted_pem(config))
    return {"is_requested": place in config.requested, "is_anonymous": is_anonymous, "trust": trust, "keys": keys}


@dataclass(frozen=True, kw_only=True)
class Means:
    """What every client is made with, whatever its connection."""

    engine: Engine
    blocking: Workers
    """Threads for what blocks on this machine: files of the secret, and where botocore says that a bucket is."""
    asking: Workers
    """Threads that wait for servers of credentials."""
    guard: Guard = FREE
    """Of endpoints that only a request names."""

    def guard_of(self, connection: Connection) -> Guard:
        """Of the addresses of this connection."""
        return self.guard if connection.is_requested else FREE


Client = Callable[[StorageConfig], Bucket]
"""Gives the bucket of a config of one connection. Raises InvalidRequest."""


class BucketStore(Protocol):
    """A type of store that keeps buckets: a module."""

    BINDING: Binding

    def connection(self, config: StorageConfig, /) -> Connection:
        """
        Read what a client is made from; two equal connections share a client. Blocks. Raises InvalidRequest.

        The field `anonymous` must be honoured: a request that leads away from the stored place has it set, so that neither
        stored credentials nor the pod's own identity go there.
        """

    def client(self, connection: Any, means: Means, /) -> Client:
        """
        Make the client of a connection, in a thread and without asking the network: it may import the library of a vendor.

        Raises InvalidRequest: no client can be made of this.
        """


Buckets = Callable[[StorageConfig], Awaitable[Bucket]]
"""What `Clients.bucket` is, as tests replace it."""


class Clients:
    """All connections to stores that this process keeps."""

    def __init__(self, stores: Mapping[str, BucketStore], means: Means) -> None:
        """`stores` has the rows by type."""
        self._stores = stores
        self._means = means
        self._client = lru_cache(KEPT_CLIENTS)(lambda kind, connection: stores[kind].client(connection, means))

    async def bucket(self, config: StorageConfig) -> Bucket:
        """The bucket of this config. Raises InvalidRequest."""
        kind, read = config.type, self._stores[config.type].connection
        client: Client = await self._means.blocking.run(lambda _: self._client(kind, read(config)))
        return client(config)
