"""
What a storage config says of the way to a store, whatever its type: the value that texts, addresses and tokens are decided by.

Bearer tokens never go over plain http, except to a loopback address that the stored config names: a token is its own proof, and each
reader on the wire could use it. Keys that sign (SigV4, Azure's Shared Key) never travel, so plain http is the operator's to choose
for them. Tokens of a config are checked where the config is read, those of a credential chain whenever they are to be sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from adapter.errors import InvalidRequest
from adapter.storage.net.access import Trust
from adapter.storage.secret.merging import StorageConfig
from adapter.storage.secret.trust import trusted_pem


@dataclass(frozen=True, kw_only=True)
class Connection:
    """
    What a client is made from. Types with credentials add fields for them.

    Two equal connections share a client, so there is nothing else in here: no bucket, no name of the config.
    """

    url: str | None = None
    """None: the vendor's own place, or the type has a URL with each request."""
    is_requested: bool = False
    """Only the request names the place, so addresses are checked before they are dialled (`Means.guard`)."""
    is_anonymous: bool = False
    """Requests are not signed: a public bucket, or an endpoint that must not see any credentials."""
    trust: Trust = field(default_factory=Trust)

    @property
    def host(self) -> str:
        """For people: host and port; empty: the vendor's own."""
        return urlsplit(self.url).netloc if self.url else ""

    def check_token(self, token: str, place: str, *, or_else: str = "", urls: Sequence[str] = ()) -> None:
        """
        Raise InvalidRequest when a token would be readable on its way.

        Args:
            token: what would go: `the session token of the default credential chain`.
            place: for people, whereto.
            or_else: what works without a token.
            urls: whereto; without any: `url`.
        """
        if all(self._may_carry(url) for url in urls or (self.url or "https://",)):
            return
        raise InvalidRequest(
            f"{place} is plain http, and {token} would be readable on the way; "
            f"use https{f', or {or_else}' if or_else else ''} (plain http is for a loopback address that the storage config names)"
        )

    def _may_carry(self, url: str) -> bool:
        parts = urlsplit(url)
        host = parts.hostname or ""
        with suppress(ValueError):
            return parts.scheme == "https" or (not self.is_requested and (host == "localhost" or ip_address(host).is_loopback))
        return False


def fields_of(config: StorageConfig, place: str = "endpoint_url") -> Mapping[str, Any]:
    """
    The fields of `Connection` that all types read alike. Blocks: a CA bundle may be a file.

    Args:
        config: of the request.
        place: the field that names the place.

    Raises:
        InvalidRequest: a field has a wrong type or value.
    """
    fields = config.fields
    return {
        "is_requested": place in config.requested,
        "is_anonymous": fields.flag("anonymous", default=False),
        "trust": Trust(verify=fields.flag("verify_ssl", default=True), ca_pem=trusted_pem(fields)),
    }
