"""What honest clouds answer, small enough that a test can spoil one thing; keys and token servers that exist nowhere else."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from adapter.storage.bucket import Bucket, Page, StoredObject
from adapter.storage.net.messages import FREE, Guard
from adapter.workers import Stop
from tests.fakes.hell import Behaviour, Peer, answering, honest
from tests.real.blocking import BlockingClients
from tests.real.certificates import Certificates, make_certificates
from tests.unit.storage.rigs import make_config

KEY, ETAG = "m/file", "0x8D4BCC2E4835CD0"
CONTENT = bytes(range(256)) * 1200
ROW = {"name": KEY, "size": str(len(CONTENT)), "generation": "7"}
STORED = {"gcs": StoredObject(KEY, len(CONTENT), "7"), "azure": StoredObject(KEY, len(CONTENT), ETAG)}
PAGES = {
    "gcs": json.dumps({"items": [ROW]}).encode(),
    "azure": (
        '<?xml version="1.0" encoding="utf-8"?><EnumerationResults ServiceEndpoint="http://x/" ContainerName="b"><Blobs>'
        f"<Blob><Name>{KEY}</Name><Properties><Etag>{ETAG}</Etag><Content-Length>{len(CONTENT)}</Content-Length>"
        "<BlobType>BlockBlob</BlobType></Properties></Blob></Blobs><NextMarker /></EnumerationResults>"
    ).encode(),
}
TYPES = {"gcs": "application/json", "azure": "application/xml"}
VERSIONS: dict[str, dict[str, str | int]] = {
    "gcs": {"x-goog-generation": "7"},
    "azure": {"ETag": f'"{ETAG}"', "Last-Modified": "Sat, 21 Nov 2026 10:00:00 GMT", "x-ms-blob-type": "BlockBlob"},
}
NO_IDENTITY = ("GOOGLE_APPLICATION_CREDENTIALS", "GCE_METADATA_HOST", "AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_FEDERATED_TOKEN_FILE")
TOKEN = json.dumps({"access_token": "the-token", "expires_in": 3600, "token_type": "Bearer"}).encode()


def page(kind: str, body: bytes | None = None, headers: Mapping[str, str | int] | None = None) -> Behaviour:
    """A listing: of the one file, or whatever body there is."""
    text = PAGES[kind] if body is None else body
    return answering(200, {"Content-Type": TYPES[kind], "Content-Length": len(text), **(headers or {})}, text)


def cloud(kind: str, *, listing: Behaviour | None = None, reading: Behaviour | None = None) -> Behaviour:
    """Honest where nothing else is given."""

    def answer(peer: Peer) -> None:
        if peer.span is None:
            (listing or page(kind))(peer)
        else:
            (reading or honest(CONTENT, VERSIONS[kind]))(peer)

    return answer


def values(kind: str, url: str, **fields: str) -> dict[str, str]:
    """A storage config with credentials that sign nothing that travels."""
    own = {"anonymous": "true"} if kind == "gcs" else {"account_name": "account", "account_key": "c2VjcmV0LW9mLXRlc3Rz"}
    place = {"gcs": url, "azure": f"{url}/account"}[kind]
    return {"type": kind, "endpoint_url": place, "bucket": "b", **own, **fields}


def bucket_of(config: Mapping[str, object], *, requested: tuple[str, ...] = (), guard: Guard = FREE, stop: Stop | None = None) -> Bucket:
    """The bucket of a config; `requested` has the fields that only a request names."""
    merged = make_config({name: value for name, value in config.items() if value}, requested=frozenset(requested))
    return BlockingClients(guard=guard).bucket(merged, stop)


def listed(bucket: Bucket, stop: Stop | None = None) -> Page:
    """The page of the file."""
    return bucket.list_page("m/", stop or Stop())


def read(bucket: Bucket, start: int = 0, length: int = len(CONTENT), stop: Stop | None = None) -> bytes:
    """Of the file."""
    got = bytearray()
    bucket.read(STORED[bucket.kind], start, length, got.extend, stop or Stop())
    return bytes(got)


def private_key() -> str:
    """Of a service account."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()).decode()


def server_tls(folder: Path) -> tuple[ssl.SSLContext, Certificates]:
    """A server's side of TLS on loopback, and who vouches for it."""
    certificates = make_certificates(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    return context, certificates


def entra(token: Behaviour | None = None) -> Behaviour:
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
        body = TOKEN if peer.method == "POST" else json.dumps(about).encode()
        if peer.method == "POST" and token is not None:
            return token(peer)
        return answering(200, {"Content-Type": "application/json", "Content-Length": len(body)}, body)(peer)

    return answer
