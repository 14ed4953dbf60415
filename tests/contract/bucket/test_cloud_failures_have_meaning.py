"""What is odd about Google's and Azure's clouds: their credentials."""

from __future__ import annotations

import datetime
import json
import time

import pytest
from azure.storage.blob import ContainerSasPermissions, generate_container_sas
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from adapter.errors import InvalidRequest, SourceDenied
from adapter.workers import Stop
from tests.contract.bucket.conftest import bucket_of
from tests.fakes.s3_proxy import S3Proxy
from tests.fakes.web import Answer, Web

CONTENT = bytes(range(256)) * 1200
ADC = ("GOOGLE_APPLICATION_CREDENTIALS", "GCE_METADATA_HOST", "AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_FEDERATED_TOKEN_FILE")


def listed(bucket):
    return bucket.list_page("m/", Stop()).objects[0]


def read(bucket, stored, stop=None):
    got = bytearray()
    bucket.read(stored, 0, stored.size_bytes, got.extend, stop or Stop())
    return bytes(got)


@pytest.mark.parametrize("kind", ["gcs", "azure"])
@pytest.mark.parametrize("field", ["bucket", "container"])
def test_no_bucket_is_said(kind, field):
    """In the words of the type."""
    values = {"type": kind, "anonymous": "true", "account_name": "a"}
    with pytest.raises(InvalidRequest, match=r"^no (bucket|container)"):
        bucket_of(values, **{field: ""})


GCS_KEYS = [
    ({"private_key": "the-secret"}, "has private_key but no client_email"),
    ({"client_email": "a@b"}, "has client_email but no private_key"),
    ({"private_key": "the-secret", "client_email": "a@b"}, "private_key is not a PEM private key"),
    ({"endpoint_url": "ftp://x"}, "endpoint_url is not a URL"),
    ({"token_uri": "ftp://x"}, "token_uri is not a URL"),
    ({"anonymous": "maybe"}, "anonymous is not a boolean"),
]


@pytest.mark.parametrize(("fields", "words"), GCS_KEYS)
def test_gcs_credentials_are_checked(fields, words):
    """Both or none, and never quoted."""
    with pytest.raises(InvalidRequest, match=words) as caught:
        bucket_of({"type": "gcs", "bucket": "b"}, **fields)
    assert "the-secret" not in caught.value.text


@pytest.mark.parametrize("is_escaped", [False, True])
def test_a_gcs_service_account_signs_for_a_token(gcs_server, is_escaped):
    """From `token_uri`, with the key as it stands in Google's JSON file or with its line ends written out."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()).decode()
    gcs_server.make_bucket(f"signed-{is_escaped}".lower())
    gcs_server.put(f"signed-{is_escaped}".lower(), "m/file", CONTENT)
    with Web() as tokens, S3Proxy(gcs_server.endpoint_url) as proxy:
        answer = json.dumps({"access_token": "the-token", "expires_in": 3600, "token_type": "Bearer"}).encode()
        tokens.answers["/token"] = Answer(200, {"Content-Type": "application/json"}, answer)
        bucket = bucket_of({
            "type": "gcs", "bucket": f"signed-{is_escaped}".lower(), "endpoint_url": proxy.endpoint_url, "client_email": "a@b",
            "private_key": pem.replace("\n", "\\n") if is_escaped else pem, "token_uri": f"{tokens.url}/token",
        })  # fmt: skip
        assert read(bucket, listed(bucket)) == CONTENT
        asked = len(tokens.requests)
        assert {request.target for request in tokens.requests} == {"/token"}
        read(bucket, listed(bucket))
        assert len(tokens.requests) == asked, "a token is kept"


def test_a_token_that_is_refused_is_denied(gcs_server):
    """A revoked key: said without the server's words."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()).decode()
    with Web() as tokens:
        tokens.answers["/token"] = Answer(400, {}, b'{"error": "invalid_grant", "error_description": "secret words"}')
        values = {"type": "gcs", "bucket": "b", "endpoint_url": gcs_server.endpoint_url, "client_email": "a@b", "private_key": pem}
        with pytest.raises(SourceDenied, match=r"the service account key of storage config 'k' did not work \(RefreshError\)") as caught:
            listed(bucket_of(values, token_uri=f"{tokens.url}/token"))
        assert "secret" not in caught.value.text


def test_gcs_without_default_credentials_is_anonymous(gcs_server, monkeypatch):
    """As with the Go adapter: a public bucket needs no key."""
    for name in ADC:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("HOME", "/nonexistent")
    gcs_server.make_bucket("public-one")
    gcs_server.put("public-one", "m/file", CONTENT)
    bucket = bucket_of(gcs_server.storage_config("public-one"), anonymous="")
    assert read(bucket, listed(bucket)) == CONTENT


AZURE_KEYS = [
    ({"account_name": ""}, "^no account: "),
    ({"account_name": "evil.example/x"}, "account_name is not the name of a storage account"),
    ({"client_id": "a"}, "has client_id but no tenant_id and no client_secret"),
    ({"tenant_id": "t", "client_secret": "the-secret"}, "has tenant_id and client_secret but no client_id"),
    ({"connection_string": "the-secret"}, "connection_string, account_key or sas_token is not"),
    ({"tenant_id": "a/b", "client_id": "c", "client_secret": "the-secret"}, "tenant_id is not"),
]


@pytest.mark.parametrize(("fields", "words"), AZURE_KEYS)
def test_azure_credentials_are_checked(fields, words):
    """Whole or none, and never quoted."""
    with pytest.raises(InvalidRequest, match=words) as caught:
        bucket_of({"type": "azure", "container": "b", "account_name": "a"}, **fields)
    assert "the-secret" not in caught.value.text


@pytest.fixture
def container(azure_server):
    """A private container with one blob."""
    name = f"c{time.monotonic_ns()}"
    azure_server.make_container(name)
    azure_server.put(name, "m/file", CONTENT)
    return name


def azure_values(server, container):
    """No credentials yet."""
    return {name: value for name, value in server.storage_config(container).items() if name != "account_key"}


def test_an_azure_connection_string_is_enough(azure_server, container):
    """The Go adapter wanted the account's name as well."""
    bucket = bucket_of({"type": "azure", "container": container, "connection_string": azure_server.connection_string})
    assert read(bucket, listed(bucket)) == CONTENT


def test_an_azure_sas_token_is_enough(azure_server, container):
    """For one container, for reading."""
    until = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
    permission = ContainerSasPermissions(read=True, list=True)
    token = generate_container_sas(azure_server.account, container, account_key=azure_server.key, permission=permission, expiry=until)
    bucket = bucket_of(azure_values(azure_server, container), sas_token=token)
    assert read(bucket, listed(bucket)) == CONTENT


def test_a_wrong_azure_key_is_denied(azure_server, container):
    """With the config that holds it."""
    with pytest.raises(SourceDenied, match="denied access with the account key of storage config 'k'"):
        listed(bucket_of(azure_values(azure_server, container), account_key="d3Jvbmc="))


def test_a_public_azure_container_needs_nothing(azure_server, monkeypatch):
    """Anonymous when the pod has no workload identity either."""
    for name in ADC:
        monkeypatch.delenv(name, raising=False)
    name = f"p{time.monotonic_ns()}"
    azure_server.make_container(name, public=True)
    azure_server.put(name, "m/file", CONTENT)
    for changes in ({}, {"anonymous": "true"}, {"anonymous": "true", "account_key": "ignored"}):
        bucket = bucket_of(azure_values(azure_server, name), **changes)
        assert read(bucket, listed(bucket)) == CONTENT
