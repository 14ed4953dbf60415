"""Every secret that is read is known to redaction by its exact value, whatever a library makes of it later."""

from __future__ import annotations

import pytest

from adapter.storage.stores.table import BUCKETS
from tests.real.blocking import BlockingClients
from tests.real.certificates import make_certificates
from tests.unit.storage.rigs import make_config

CONNECTION_STRING = "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=c2VjcmV0LTQ=;EndpointSuffix=core.windows.net"
# type, fields, what must never show
SECRETS = [
    ("s3", {"access_key_id": "secret-1", "secret_access_key": "secret-2", "session_token": "secret-3"},
     ["secret-1", "secret-2", "secret-3"]),
    ("gcs", {"client_email": "a@secret", "private_key": "secret-1"}, ["a@secret", "secret-1"]),
    ("azure", {"connection_string": CONNECTION_STRING}, [CONNECTION_STRING, "c2VjcmV0LTQ="]),
    ("azure", {"account_name": "a", "account_key": "secret-1"}, ["secret-1"]),
    ("azure", {"account_name": "a", "sas_token": "sv=1&sig=secret"}, ["sv=1&sig=secret"]),
    ("azure", {"account_name": "a", "tenant_id": "t", "client_id": "i", "client_secret": "secret-1"}, ["secret-1"]),
    ("http", {"client_certificate": "c", "client_key": "secret-1"}, ["secret-1"]),
]  # fmt: skip


@pytest.fixture
def remembered(monkeypatch):
    """What redaction was told."""
    seen = []
    monkeypatch.setattr("adapter.storage.secret.fields.remember", seen.append)
    return seen


@pytest.mark.parametrize(("kind", "fields", "secrets"), SECRETS)
def test_credentials_are_remembered(remembered, tmp_path, kind, fields, secrets):
    """Also the parts of those that have parts."""
    if kind == "http":
        pair = make_certificates(tmp_path)
        fields, secrets = {"client_certificate": pair.client_certificate, "client_key": pair.client_key}, [pair.client_key.strip()]
    BUCKETS[kind].connection(make_config({"type": kind, **fields}))
    assert set(secrets) <= set(remembered)


def test_headers_and_the_query_of_a_url_are_remembered(remembered):
    """A signature, a token behind its scheme, each value of a list."""
    headers = {"Authorization": "Bearer secret-1", "X-Many": ["secret-2", "secret-3"]}
    config = make_config({"type": "http", "url": "https://h/p?sig=signature%2F45&x=models", "headers": headers})
    BlockingClients().bucket(config)
    expected = {"Bearer secret-1", "secret-1", "secret-2", "secret-3", "secret-2, secret-3", "sig=signature%2F45&x=models", "signature/45"}
    assert expected <= set(remembered)
    assert "models" not in remembered, "an ordinary word stays in texts"
