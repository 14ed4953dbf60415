"""Buckets of the honest stores without an adapter around them; keys and token servers that exist nowhere else."""

from __future__ import annotations

import json
from collections.abc import Mapping

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from adapter.storage.bucket import Page, StoredObject
from adapter.storage.net.messages import FREE, Guard
from adapter.workers import Stop
from tests.fakes.hell import Behaviour, Peer, answering
from tests.real.blocking import BlockingBucket, BlockingClients
from tests.security.stores import CONTENT, ETAG, KEY, PAGES, STORES, TYPES
from tests.unit.storage.rigs import make_config

STORED = {kind: StoredObject(KEY, len(CONTENT), "7" if kind == "gcs" else ETAG) for kind in STORES}
NO_IDENTITY = ("GOOGLE_APPLICATION_CREDENTIALS", "GCE_METADATA_HOST", "AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_FEDERATED_TOKEN_FILE")
TOKEN = json.dumps({"access_token": "the-token", "expires_in": 3600, "token_type": "Bearer"}).encode()


def page(kind: str, body: bytes | str | None = None, headers: Mapping[str, str | int] | None = None, status: int = 200) -> Behaviour:
    """A listing: of the one file, or whatever body there is."""
    text = PAGES[kind] if body is None else body
    raw = text.encode() if isinstance(text, str) else text
    return answering(status, {**TYPES[kind], "Content-Length": len(raw), **(headers or {})}, raw)


def cloud(kind: str, *, listing: Behaviour | None = None, reading: Behaviour | None = None) -> Behaviour:
    """Honest where nothing else is given."""
    store = STORES[kind]
    return lambda peer: ((listing or store.listing) if store.is_listing(peer) else (reading or store.reading))(peer)


def bucket_of(
    kind: str, url: str, *, requested: tuple[str, ...] = (), guard: Guard = FREE, stop: Stop | None = None, **fields: str
) -> BlockingBucket:
    """The bucket of a store there, with credentials that sign nothing that travels; `requested`: the fields that only a request names."""
    config = {name: value for name, value in (STORES[kind].config(url) | fields).items() if value}
    return BlockingClients(guard=guard).bucket(make_config(config, requested=frozenset(requested)), stop)


def listed(bucket: BlockingBucket, stop: Stop | None = None) -> Page:
    """The page of the file."""
    return bucket.list_page(KEY, stop or Stop())


def read(bucket: BlockingBucket, start: int = 0, length: int = len(CONTENT), stop: Stop | None = None) -> bytes:
    """Of the file."""
    got = bytearray()
    bucket.read(STORED[bucket.kind], start, length, got.extend, stop or Stop())
    return bytes(got)


SMALL = bytes(range(256)) * 40


def outcome(
    bucket: BlockingBucket, start: int = 0, length: int = len(SMALL), *, etag: str = "v1", size: int = len(SMALL), key: str = "m/file"
) -> tuple[bytes, Exception | None]:
    """Of a read: what reached the sink, and what was raised."""
    got = bytearray()
    try:
        bucket.read(StoredObject(key, size, etag), start, length, got.extend, Stop())
    except Exception as error:
        return bytes(got), error
    return bytes(got), None


def span(start: int, last: int, total: int = len(SMALL)) -> dict[str, str]:
    """The header of a part."""
    return {"Content-Range": f"bytes {start}-{last}/{total}"}


def private_key() -> str:
    """Of a service account."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()).decode()


def entra(token: Behaviour) -> Behaviour:
    """Microsoft's token server, as far as azure-identity asks it."""

    def answer(peer: Peer) -> None:
        tenant = f"https://{peer.headers['host']}/{peer.target.split('/')[1]}"
        about = {
            "token_endpoint": f"{tenant}/oauth2/v2.0/token",
            "authorization_endpoint": f"{tenant}/oauth2/v2.0/authorize",
            "issuer": f"{tenant}/v2.0",
            "tenant_discovery_endpoint": f"{tenant}/v2.0/.well-known/openid-configuration",
            "metadata": [],
        }
        body = json.dumps(about).encode()
        (token if peer.method == "POST" else answering(200, {**TYPES["gcs"], "Content-Length": len(body)}, body))(peer)

    return answer
