"""GCS and Azure: tokens and keys go to whom they are for, over TLS that was asked for, and to no other server."""

from __future__ import annotations

import json
import time
from ipaddress import ip_network

import pytest

from adapter.errors import AdapterError, InvalidRequest, SourceUnavailable
from adapter.storage.net.messages import Guard
from tests.fakes.hell import Hell, answering
from tests.real.certificates import server_tls
from tests.security.clouds import CONTENT, TOKEN, bucket_of, cloud, listed, page, private_key, read

KINDS = ("gcs", "azure")
LOOPBACK = Guard((ip_network("127.0.0.0/8"),))
JSON = {"Content-Type": "application/json", "Content-Length": len(TOKEN)}
pytestmark = pytest.mark.usefixtures("no_identity")


@pytest.mark.parametrize("kind", KINDS)
def test_tls_is_trusted_as_the_config_says(kind, monkeypatch, tmp_path):
    """Refused without `certificate`, whatever the environment trusts with it; anything goes with `verify_ssl: false`."""
    context, certificates = server_tls(tmp_path)
    (tmp_path / "other").mkdir()
    other = server_tls(tmp_path / "other")[1]
    (tmp_path / "env.pem").write_text(other.ca_pem)
    with Hell(cloud(kind), tls=context) as server:
        with pytest.raises(SourceUnavailable, match="its TLS certificate is not trusted"):
            listed(bucket_of(kind, server.url))
        assert not server.requests
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "env.pem"))
        bucket = bucket_of(kind, server.url, certificate=certificates.ca_pem)
        assert listed(bucket).objects and read(bucket) == CONTENT
        with pytest.raises(SourceUnavailable, match="its TLS certificate is not trusted"):
            listed(bucket_of(kind, server.url, certificate=other.ca_pem))


def test_a_token_server_that_only_a_request_names_is_guarded():
    """Apart from the endpoint, which may be stored."""
    with Hell(cloud("gcs")) as server, Hell(answering(200, JSON, TOKEN)) as tokens:
        key = {"anonymous": "", "client_email": "a@b", "private_key": private_key(), "token_uri": f"{tokens.url}/token"}
        assert listed(bucket_of("gcs", server.url, **key, guard=LOOPBACK)).objects
        assert tokens.connections == 1
        with pytest.raises(InvalidRequest, match="plain http"):
            bucket_of("gcs", server.url, **key, requested=("token_uri",), guard=LOOPBACK)
        key["token_uri"] = key["token_uri"].replace("http:", "https:")
        with pytest.raises(AdapterError, match="may not be dialled"):
            listed(bucket_of("gcs", server.url, **key, requested=("token_uri",), guard=LOOPBACK))
        assert tokens.connections == 1


@pytest.mark.parametrize("zone", ["UTC", "America/Los_Angeles", "Asia/Tokyo"])
def test_a_token_ends_when_it_ends_in_every_time_zone(zone, monkeypatch):
    """google-auth tells the end in UTC, without a zone: neither is a token asked for again and again, nor is one used after its end."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        soon = json.dumps({"access_token": "the-token", "expires_in": 60, "token_type": "Bearer"}).encode()
        answers = [answering(200, JSON, TOKEN), answering(200, JSON | {"Content-Length": len(soon)}, soon)]
        for answer, asked in zip(answers, (1, 2), strict=True):
            with Hell(cloud("gcs")) as server, Hell(answer) as tokens:
                key = {"anonymous": "", "client_email": "a@b", "private_key": private_key(), "token_uri": f"{tokens.url}/token"}
                bucket = bucket_of("gcs", server.url, **key)
                assert listed(bucket).objects and listed(bucket).objects
                assert len(tokens.requests) == asked
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_gets_no_password_of_the_pod_and_no_cookie_back(kind, monkeypatch, tmp_path):
    """requests shows a netrc's password to a server of that name, and sends cookies back."""
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login someone password s3cret-of-the-netrc\n")
    (tmp_path / "netrc").chmod(0o600)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with Hell(cloud(kind, listing=page(kind, None, {"Set-Cookie": "a=b; Path=/"}))) as server:
        bucket = bucket_of(kind, server.url, anonymous="true")
        assert listed(bucket).objects and listed(bucket).objects and read(bucket) == CONTENT
        for request in server.requests:
            assert "authorization" not in request.headers and "cookie" not in request.headers
