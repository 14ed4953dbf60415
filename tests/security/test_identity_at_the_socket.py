"""
What really arrives: two servers that write everything down, one that the stored config names, and one of the request's own.

Each request is made by the store's real client, with stored secrets and with an identity of the pod in the environment.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from adapter.errors import AdapterError, InvalidRequest
from adapter.storage.bucket import StoredObject
from adapter.storage.secret.merging import merged
from adapter.storage.stores.table import BINDINGS
from adapter.workers import Stop
from tests.builders import a_spec
from tests.fakes.web import Answer, Web
from tests.real.blocking import BlockingClients

LABEL = "storage config 'k'"
OURS, THEIRS = "http://ours.invalid", "http://theirs.invalid"
"""Stand for the two servers until they have ports."""


def key(text: str) -> str:
    """An account key of Azure."""
    return base64.b64encode(text.encode()).decode()


S3 = {"type": "s3", "bucket": "bucket", "region": "us-east-1", "endpoint_url": OURS}
S3_KEYS = {"access_key_id": "stored-id", "secret_access_key": "stored-secret", "session_token": "stored-token"}
GCS = {"type": "gcs", "bucket": "bucket", "endpoint_url": OURS}
GCS_KEYS = {"client_email": "stored@email", "private_key": "KEY", "token_uri": f"{OURS}/token"}
AZURE = {"type": "azure", "container": "container", "endpoint_url": f"{OURS}/account"}
AZURE_KEYS = {"account_name": "account", "account_key": key("stored-account-key")}
SAS = {"sas_token": "sv=2024-01-01&sig=stored-signature"}
STRING = {"connection_string": f"AccountName=account;AccountKey={key('stored-string-key')};BlobEndpoint={OURS}/account"}
HTTP = {"type": "http", "url": f"{OURS}/models?sig=stored-signature"}
HEADERS = {"headers.Authorization": "Bearer stored-token", "headers.X-Tenant": "stored-tenant"}


@dataclass(frozen=True)
class Scene:
    """A stored config, what a request adds, and what may be seen where: any of these texts proves an identity."""

    name: str
    stored: dict[str, str]
    params: dict[str, str]
    at_ours: tuple[str, ...] = ()
    at_theirs: tuple[str, ...] = ()


HOME = [
    Scene("s3 keys", S3 | S3_KEYS, {}, ("Credential=stored-id/", "stored-token")),
    Scene("s3 chain", S3, {}, ("Credential=pod-id/", "pod-token")),
    Scene("gcs key", GCS | GCS_KEYS, {}, ("Bearer the-token",)),
    Scene("gcs chain", GCS, {}, ("Bearer the-token",)),
    Scene("azure key", AZURE | AZURE_KEYS, {}, ("SharedKey account:",)),
    Scene("azure sas", AZURE | SAS, {}, ("sig=stored-signature",)),
    Scene("azure string", {"type": "azure", "container": "c"} | STRING, {}, ("SharedKey account:",)),
    Scene("http headers", HTTP | HEADERS, {}, ("Bearer stored-token", "stored-tenant", "sig=stored-signature")),
    Scene("allowed: s3", S3 | S3_KEYS | {"credential_endpoints": THEIRS}, {"endpoint_url": THEIRS}, (), ("Credential=stored-id/",)),
    Scene("allowed: gcs", GCS | GCS_KEYS | {"credential_endpoints": THEIRS}, {"endpoint_url": THEIRS}, (), ("Bearer the-token",)),
    Scene("allowed: http", HTTP | HEADERS | {"credential_endpoints": "*"}, {"url": f"{THEIRS}/x"}, (), ("Bearer stored-token",)),
]
"""Where each identity is seen when it may be: the servers can tell."""
REFUSED = [
    Scene("half a pair", S3 | S3_KEYS, {"access_key_id": "own-id"}),
    Scene("a token alone", S3 | S3_KEYS, {"session_token": "own-token"}),
    Scene("no verification", S3 | S3_KEYS, {"verify_ssl": "false"}),
    Scene("no verification of the chain", GCS, {"verify_ssl": "false"}),
    Scene("another authority", AZURE | SAS, {"certificate": "-----BEGIN CERTIFICATE-----"}),
    Scene("a file", HTTP | HEADERS, {"ca_bundle": "/etc/passwd"}),
    Scene("another virtual host", HTTP | HEADERS, {"headers.host": "evil.example"}),
    Scene("more endpoints", S3 | S3_KEYS, {"endpoint_url": THEIRS, "credential_endpoints": "*"}),
    Scene("a bucket that is a host", S3 | S3_KEYS, {"bucket": "arn:aws:s3:us-east-1:123456789012:accesspoint/evil"}),
    Scene("a bucket that leads up the path", S3 | S3_KEYS, {"bucket": ".."}),
    Scene("a bucket that leads out of the path", GCS | GCS_KEYS, {"bucket": "../../../token"}),
    Scene("a bucket with a query", GCS | GCS_KEYS, {"bucket": "b/o/m?alt=media&"}),
    Scene("a container that leads out of the account", AZURE | SAS, {"container": "../other"}),
    Scene("another virtual host for a stored signature", HTTP, {"headers.X-Own": "1", "headers.Host": "evil.example"}),
    Scene("another addressing", S3 | S3_KEYS, {"addressing_style": "virtual"}),
    Scene(
        "a secret of its own for a stored principal",
        AZURE | {"tenant_id": "t", "client_id": "i", "client_secret": "s"},
        {"tenant_id": "evil"},
    ),
]


@pytest.fixture(scope="module")
def private_key() -> str:
    """Of a service account."""
    made = rsa.generate_private_key(65537, 2048)
    return made.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()).decode()


@pytest.fixture
def webs() -> Iterator[dict[str, Web]]:
    """The two servers; both give tokens."""
    with Web() as ours, Web() as theirs:
        for web in (ours, theirs):
            web.answers["/token"] = Answer(200, {"Content-Type": "application/json"}, b'{"access_token": "the-token", "expires_in": 3600}')
        yield {OURS: ours, THEIRS: theirs}


@pytest.fixture
def send(webs: dict[str, Web], private_key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Scene], None]:
    """Lists and reads, as a load does, in a pod that has an identity at every cloud that can be had without https."""
    (tmp_path / "google.json").write_text(
        json.dumps({
            "type": "service_account", "client_email": "pod@email", "private_key": private_key, "token_uri": f"{webs[OURS].url}/token",
        })
    )  # fmt: skip
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "google.json"))
    for name, value in {"ACCESS_KEY_ID": "pod-id", "SECRET_ACCESS_KEY": "pod-secret", "SESSION_TOKEN": "pod-token"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)

    def placed(values: dict[str, str]) -> dict[str, str]:
        for name, web in webs.items():
            values = {field: text.replace(name, web.url) for field, text in values.items()}
        return {field: private_key if text == "KEY" else text for field, text in values.items()}

    def send(scene: Scene) -> None:
        config = merged(placed(scene.stored), a_spec(storage_params=placed(scene.params)), LABEL, BINDINGS)
        bucket = BlockingClients().bucket(config)
        with suppress(AdapterError):
            bucket.list_page("m", Stop())
        with suppress(AdapterError):
            bucket.read(StoredObject("m", 5, "1"), 0, 5, lambda _: None, Stop())

    return send


def text_of(web: Web) -> str:
    return " ".join(f"{each.target} {dict(each.headers)}" for each in web.requests)


@pytest.mark.parametrize("scene", HOME, ids=lambda scene: scene.name)
def test_an_identity_is_seen_where_it_belongs(scene: Scene, send: Callable[[Scene], None], webs: dict[str, Web]) -> None:
    """What the other tests look for would be noticed."""
    send(scene)

    for web, texts in ((webs[OURS], scene.at_ours), (webs[THEIRS], scene.at_theirs)):
        for text in texts:
            assert text in text_of(web)


@pytest.mark.parametrize("scene", REFUSED, ids=lambda scene: scene.name)
def test_what_is_refused_sends_nothing(scene: Scene, send: Callable[[Scene], None], webs: dict[str, Web]) -> None:
    """Neither to the stored place nor to the other."""
    with pytest.raises(InvalidRequest, match=LABEL):
        send(scene)

    assert webs[OURS].requests == webs[THEIRS].requests == []
