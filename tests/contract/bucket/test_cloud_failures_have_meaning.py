"""What is odd about Google's and Azure's clouds: their credentials."""

from __future__ import annotations

import time

import pytest

from adapter.errors import InvalidRequest, SourceDenied
from adapter.workers import Stop
from tests.contract.bucket.conftest import bucket_of

CONTENT = bytes(range(256)) * 1200
ADC = ("GOOGLE_APPLICATION_CREDENTIALS", "GCE_METADATA_HOST", "AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_FEDERATED_TOKEN_FILE")


def listed(bucket):
    return bucket.list_page("m/", Stop()).objects[0]


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
        assert bucket.bytes_of(listed(bucket)) == CONTENT
