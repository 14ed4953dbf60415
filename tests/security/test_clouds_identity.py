"""GCS and Azure: tokens and keys go to whom they are for, over TLS that was asked for, and to nobody else."""

from __future__ import annotations

import json
import threading
import time
from datetime import UTC, datetime
from ipaddress import ip_network

import pytest
from google.auth import _helpers

from adapter.errors import AdapterError, InvalidRequest, SourceDenied, SourceUnavailable
from adapter.storage.stores.gcs import credentials
from adapter.storage.wire.dialling import Guard
from tests.fakes.hell import Hell, answering, by_target, in_turn, redirecting
from tests.fakes.http_proxy import VARIABLES, HttpProxy
from tests.security.clouds import (
    CONTENT,
    NO_IDENTITY,
    PAGES,
    TOKEN,
    bucket_of,
    cloud,
    entra,
    listed,
    page,
    private_key,
    read,
    server_tls,
    values,
)

KINDS = ("gcs", "azure")
LOOPBACK = Guard((ip_network("127.0.0.0/8"),))
JSON = {"Content-Type": "application/json", "Content-Length": len(TOKEN)}
PRINCIPAL = {"account_key": "", "tenant_id": "t", "client_id": "c", "client_secret": "s3cret-of-the-principal"}
KEY = private_key()
ACCOUNT = b'{"email": "a@b", "scopes": ["s"]}'


@pytest.fixture(autouse=True)
def no_identity(monkeypatch):
    """Neither of the machine that runs the tests, nor its proxies."""
    for name in (*NO_IDENTITY, *VARIABLES, "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GCE_METADATA_IP", "127.0.0.1:1")
    monkeypatch.setattr(credentials, "_SEARCH_PAUSES_SECONDS", (0.0,))


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    """A server's side of TLS, and its authority."""
    return server_tls(tmp_path_factory.mktemp("tls"))


@pytest.mark.parametrize("kind", KINDS)
def test_tls_is_trusted_as_the_config_says(kind, tls, monkeypatch, tmp_path):
    """Refused without `certificate`, whatever the environment trusts with it; anything goes with `verify_ssl: false`."""
    context, certificates = tls
    (tmp_path / "other").mkdir()
    other = server_tls(tmp_path / "other")[1]
    (tmp_path / "env.pem").write_text(other.ca_pem)
    with Hell(cloud(kind), tls=context) as server:
        with pytest.raises(SourceUnavailable, match="its TLS certificate is not trusted"):
            listed(bucket_of(values(kind, server.url)))
        assert not server.requests
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "env.pem"))
        bucket = bucket_of(values(kind, server.url, certificate=certificates.ca_pem))
        assert listed(bucket).objects and read(bucket) == CONTENT
        with pytest.raises(SourceUnavailable, match="its TLS certificate is not trusted"):
            listed(bucket_of(values(kind, server.url, certificate=other.ca_pem)))


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
@pytest.mark.parametrize("kind", KINDS)
def test_verify_ssl_false_asks_no_questions(kind, tls):
    """Also in a read."""
    with Hell(cloud(kind), tls=tls[0]) as server:
        bucket = bucket_of(values(kind, server.url, verify_ssl="false"))
        assert listed(bucket).objects and read(bucket) == CONTENT


@pytest.mark.parametrize("kind", KINDS)
def test_what_only_a_request_names_is_guarded(kind):
    """An address of the pod is not dialled; what the stored config names is."""
    with Hell(cloud(kind)) as server:
        bucket = bucket_of(values(kind, server.url), requested=("endpoint_url",), guard=LOOPBACK)
        with pytest.raises(AdapterError, match="may not be dialled"):
            listed(bucket)
        assert not server.connections
        assert listed(bucket_of(values(kind, server.url), guard=LOOPBACK)).objects


def test_a_token_server_that_only_a_request_names_is_guarded():
    """Apart from the endpoint, which may be stored."""
    with Hell(cloud("gcs")) as server, Hell(answering(200, JSON, TOKEN)) as tokens:
        key = {"anonymous": "", "client_email": "a@b", "private_key": KEY, "token_uri": f"{tokens.url}/token"}
        assert listed(bucket_of(values("gcs", server.url, **key), guard=LOOPBACK)).objects
        assert tokens.connections == 1
        with pytest.raises(InvalidRequest, match="plain http"):
            bucket_of(values("gcs", server.url, **key), requested=("token_uri",), guard=LOOPBACK)
        secure = key | {"token_uri": tokens.url.replace("http:", "https:")}
        with pytest.raises(AdapterError, match="may not be dialled"):
            listed(bucket_of(values("gcs", server.url, **secure), requested=("token_uri",), guard=LOOPBACK))
        assert tokens.connections == 1


def test_an_azure_connection_string_of_a_request_is_guarded():
    """Its endpoint is inside of it."""
    with Hell(cloud("azure")) as server:
        text = f"DefaultEndpointsProtocol=http;AccountName=a;AccountKey=c2VjcmV0;BlobEndpoint={server.url}/a"
        config = {"type": "azure", "container": "b", "connection_string": text}
        with pytest.raises(AdapterError, match="may not be dialled"):
            listed(bucket_of(config, requested=("connection_string",), guard=LOOPBACK))
        assert not server.connections
        assert listed(bucket_of(config, guard=LOOPBACK)).objects


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_gets_no_password_of_the_pod_and_no_cookie_back(kind, monkeypatch, tmp_path):
    """requests shows a netrc's password to whoever is called so, and sends cookies back."""
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login someone password s3cret-of-the-netrc\n")
    (tmp_path / "netrc").chmod(0o600)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with Hell(cloud(kind, listing=page(kind, None, {"Set-Cookie": "a=b; Path=/"}))) as server:
        bucket = bucket_of(values(kind, server.url, anonymous="true"))
        assert listed(bucket).objects and listed(bucket).objects and read(bucket) == CONTENT
        for request in server.requests:
            assert "authorization" not in request.headers and "cookie" not in request.headers


def test_a_key_of_google_reaches_its_token_server_alone():
    """The library would also ask Google where the account may be used, in a thread of its own, with the token."""
    before = set(threading.enumerate())
    with Hell(cloud("gcs")) as server, Hell(answering(200, JSON, TOKEN)) as tokens:
        key = {"anonymous": "", "client_email": "a@b", "private_key": KEY, "token_uri": f"{tokens.url}/token"}
        bucket = bucket_of(values("gcs", server.url, **key))
        assert listed(bucket).objects and read(bucket) == CONTENT
        names = [thread.name for thread in set(threading.enumerate()) - before]
        assert all(name.startswith(("hell", "name")) for name in names), names
        assert len(tokens.requests) == 1 and "assertion=" in tokens.requests[0].body.decode()
        assert {request.headers["authorization"] for request in server.requests} == {"Bearer the-token"}


def test_the_token_of_the_pod_does_not_leave_over_plain_http(monkeypatch):
    """Found by asking the metadata server, so the config could not know; loopback is the stored config's to name."""
    metadata = by_target(
        {
            "/token": answering(200, {"Metadata-Flavor": "Google", **JSON}, TOKEN),
            "recursive": answering(200, {"Content-Type": "application/json", "Content-Length": len(ACCOUNT)}, ACCOUNT),
            "/computeMetadata": answering(404, {"Content-Length": 0}),
        },
        answering(200, {"Metadata-Flavor": "Google", "Content-Length": 0}),
    )
    with Hell(metadata) as pod, Hell(cloud("gcs")) as server:
        monkeypatch.setenv("GCE_METADATA_IP", f"127.0.0.1:{pod.port}")
        monkeypatch.setattr("google.auth.compute_engine._metadata._GCE_METADATA_HOST", f"127.0.0.1:{pod.port}")
        config = values("gcs", server.url, anonymous="")
        with pytest.raises(InvalidRequest, match=r"endpoint_url is plain http, and a bearer token of the default credentials"):
            bucket_of({**config, "endpoint_url": "http://storage.example"})
        with pytest.raises(InvalidRequest, match="plain http"):
            bucket_of(config, requested=("endpoint_url",))
        assert not server.connections
        assert read(bucket_of(config), 5, 10) == CONTENT[5:15]
        assert server.requests[0].headers["authorization"] == "Bearer the-token"


def test_a_pod_without_identity_is_nobody():
    """A metadata server that is not there; the connection is refused."""
    with Hell(cloud("gcs")) as server:
        assert read(bucket_of(values("gcs", server.url, anonymous="")), 5, 10) == CONTENT[5:15]
        assert "authorization" not in server.requests[0].headers


def test_a_metadata_server_in_trouble_makes_nobody_anonymous(monkeypatch):
    """It said that it is Google's, so the pod has an identity; a load that went on without would be denied for ever."""
    hello = answering(200, {"Metadata-Flavor": "Google", "Content-Length": 0})
    with Hell(in_turn(hello, answering(503, {"Retry-After": "4", "Content-Length": 0}))) as pod:
        monkeypatch.setenv("GCE_METADATA_IP", f"127.0.0.1:{pod.port}")
        monkeypatch.setattr("google.auth.compute_engine._metadata._GCE_METADATA_HOST", f"127.0.0.1:{pod.port}")
        with pytest.raises(SourceUnavailable, match=rf"^127.0.0.1:{pod.port}, which gives out tokens for .* \(HTTP 503\)") as caught:
            bucket_of({"type": "gcs", "bucket": "b"})
        assert caught.value.retry_after_seconds == 4
        assert len(pod.requests) == 2


@pytest.fixture
def azure_tokens(tls, monkeypatch):
    """Microsoft's token server, with the certificate of the config."""
    with Hell(entra(), tls=tls[0]) as server:
        monkeypatch.setenv("AZURE_AUTHORITY_HOST", f"https://localhost:{server.port}")
        yield server


@pytest.fixture(params=["principal", "workload"])
def azure_identity(request, monkeypatch, tmp_path):
    """Fields of a config that leads to tokens."""
    if request.param == "principal":
        return PRINCIPAL
    (tmp_path / "token").write_text("the-federated-token")
    monkeypatch.setenv("AZURE_TENANT_ID", "t")
    monkeypatch.setenv("AZURE_CLIENT_ID", "c")
    monkeypatch.setenv("AZURE_FEDERATED_TOKEN_FILE", str(tmp_path / "token"))
    return {"account_key": ""}


def test_a_token_of_azure_goes_to_the_storage(tls, azure_tokens, azure_identity):
    """Once asked for, kept."""
    with Hell(cloud("azure"), tls=tls[0]) as server:
        bucket = bucket_of(values("azure", server.url, certificate=tls[1].ca_pem, **azure_identity))
        assert listed(bucket).objects and read(bucket) == CONTENT
        assert {request.headers["authorization"] for request in server.requests} == {"Bearer the-token"}
        posts = [request for request in azure_tokens.requests if request.method == "POST"]
        assert len(posts) == 1 and "storage.azure.com" in posts[0].body.decode()


def test_a_challenge_fetches_no_token_for_another_resource(tls, azure_tokens, azure_identity):
    """The server would name the resource, the library would send it the token."""
    challenge = "Bearer authorization_uri=https://login.microsoftonline.com/t/oauth2/authorize resource_id=https://graph.microsoft.com"
    refusal = answering(401, {"WWW-Authenticate": challenge, "Content-Length": 0})
    with Hell(refusal, tls=tls[0]) as server:
        bucket = bucket_of(values("azure", server.url, certificate=tls[1].ca_pem, **azure_identity))
        for call in (listed, read):
            with pytest.raises(SourceDenied):
                call(bucket)
        assert {request.headers["authorization"] for request in server.requests} == {"Bearer the-token"}
        assert not any("graph" in request.body.decode() for request in azure_tokens.requests)


def test_a_token_of_azure_does_not_leave_over_plain_http(azure_identity):
    """Whoever reads it may use it."""
    with Hell(cloud("azure")) as server:
        with pytest.raises(InvalidRequest, match="is plain http, and the bearer token of"):
            bucket_of(values("azure", server.url, **azure_identity), requested=("endpoint_url",))
        assert not server.connections


TOKEN_ANSWERS = {
    "refused": (answering(401, {"Content-Type": "application/json", "Content-Length": 27}, b'{"error": "invalid_client"}'), SourceDenied),
    "another place": (redirecting("https://127.0.0.1:1/"), SourceDenied),
    "busy": (answering(503, {"Retry-After": "9", "Content-Length": 0}), SourceUnavailable),
    "too many": (answering(429, {"Retry-After": "9", "Content-Length": 0}), SourceUnavailable),
    "empty": (answering(200, {"Content-Type": "application/json", "Content-Length": 0}), SourceUnavailable),
    "a list": (answering(200, {"Content-Type": "application/json", "Content-Length": 2}, b"[]"), SourceUnavailable),
    "deep": (answering(200, {"Content-Type": "application/json", "Content-Length": 9000}, b"[" * 9000), SourceUnavailable),
    "no end": (
        answering(200, {"Content-Type": "application/json"}, b'{"access_token": "a", "expires_in": 1e999, "token_type": "Bearer"}'),
        SourceUnavailable,
    ),
}


@pytest.mark.parametrize("name", TOKEN_ANSWERS)
def test_a_token_server_of_azure_that_answers_badly_has_a_class(name, tls, monkeypatch, azure_identity):
    """What can pass may be repeated by us, at once and never by the library; its words are never quoted."""
    token, expected = TOKEN_ANSWERS[name]
    with Hell(entra(token), tls=tls[0]) as tokens, Hell(cloud("azure"), tls=tls[0]) as server:
        monkeypatch.setenv("AZURE_AUTHORITY_HOST", f"https://localhost:{tokens.port}")
        bucket = bucket_of(values("azure", server.url, certificate=tls[1].ca_pem, **azure_identity))
        begun = time.monotonic()
        with pytest.raises((expected, SourceDenied) if name in ("another place", "empty") else expected) as caught:
            listed(bucket)
        assert time.monotonic() - begun < 5
        assert len([request for request in tokens.requests if request.method == "POST"]) == 1
        assert not server.requests
        if name in ("a list", "deep", "no end"):
            assert "gave an answer that is not Azure's" in caught.value.text
        if name in ("busy", "too many"):
            assert caught.value.retry_after_seconds == 9
            assert "which gives out tokens for container 'b'" in caught.value.text


def test_a_token_server_that_is_away_is_named(monkeypatch, azure_identity):
    """And why it is away; asked once."""
    monkeypatch.setenv("AZURE_AUTHORITY_HOST", "https://localhost:1")
    with pytest.raises(SourceUnavailable, match=r"^localhost:1, which gives out tokens for container 'b' .*: the connection was refused"):
        listed(bucket_of(values("azure", "https://127.0.0.1:1", **azure_identity)))
    key = {"anonymous": "", "client_email": "a@b", "private_key": KEY, "token_uri": "http://127.0.0.1:1/token"}
    with pytest.raises(SourceUnavailable, match=r"^127.0.0.1:1, which gives out tokens for bucket 'b' .*: the connection was refused"):
        listed(bucket_of(values("gcs", "https://127.0.0.1:1", **key)))


GOOGLE_ANSWERS = TOKEN_ANSWERS | {
    "a token that is a list": (answering(200, {}, b'{"access_token": [1], "expires_in": 60}'), None),
    "a time that is a list": (answering(200, {}, b'{"access_token": "a", "expires_in": []}'), SourceUnavailable),
}


@pytest.mark.parametrize("name", GOOGLE_ANSWERS)
def test_a_token_server_of_google_that_answers_badly_has_a_class(name):
    """As Azure's."""
    token, expected = GOOGLE_ANSWERS[name]
    with Hell(token) as tokens, Hell(answering(401, {"Content-Length": 0})) as server:
        key = {"anonymous": "", "client_email": "a@b", "private_key": KEY, "token_uri": f"{tokens.url}/token"}
        bucket = bucket_of(values("gcs", server.url, **key))
        with pytest.raises((SourceUnavailable, SourceDenied) if name in ("empty",) or expected is None else expected) as caught:
            listed(bucket)
        assert len(tokens.requests) == 1
        assert expected is None or not server.requests
        if name in ("a list", "deep", "no end", "a time that is a list"):
            assert "gave an answer that is not Google's" in caught.value.text
        if name in ("busy", "too many"):
            assert caught.value.retry_after_seconds == 9
            assert "which gives out tokens for bucket 'b'" in caught.value.text


@pytest.mark.parametrize("kind", KINDS)
def test_a_proxy_of_the_environment_is_used(kind, tls, monkeypatch):
    """Forwarding and a tunnel; NO_PROXY leads past it, for names that exist nowhere else too."""
    with Hell(cloud(kind)) as plain, Hell(cloud(kind), tls=tls[0]) as secure:
        routes = {"account.blob.core.example:80": f"127.0.0.1:{plain.port}", f"localhost:{secure.port}": f"127.0.0.1:{secure.port}"}
        with HttpProxy(routes) as proxy:
            monkeypatch.setenv("HTTP_PROXY", f"http://{proxy.endpoint}")
            monkeypatch.setenv("http_proxy", f"http://{proxy.endpoint}")
            monkeypatch.setenv("HTTPS_PROXY", f"http://{proxy.endpoint}")
            assert listed(bucket_of(values(kind, "http://account.blob.core.example"))).objects
            bucket = bucket_of(values(kind, f"https://localhost:{secure.port}", certificate=tls[1].ca_pem))
            assert listed(bucket).objects and read(bucket) == CONTENT
            assert [request.method for request in proxy.requests] == ["GET", "CONNECT"]
            monkeypatch.setenv("NO_PROXY", "localhost,127.0.0.1")
            assert listed(bucket_of(values(kind, secure.url, certificate=tls[1].ca_pem))).objects
            assert listed(bucket_of(values(kind, plain.url))).objects
            assert len(proxy.requests) == 2


def test_the_pages_of_these_tests_are_json_and_xml():
    """So that a test that refuses them refuses them for its own reason."""
    assert json.loads(PAGES["gcs"]) and PAGES["azure"].startswith(b"<?xml")


@pytest.mark.parametrize("kind", KINDS)
def test_a_token_that_ends_in_the_middle_of_a_pull_is_renewed(kind, tls, monkeypatch):
    """Once for each time that it ends, and without a new connection to the store."""
    now = time.time()
    with Hell(cloud(kind), tls=tls[0]) as server, Hell(entra() if kind == "azure" else answering(200, JSON, TOKEN), tls=tls[0]) as tokens:
        monkeypatch.setenv("AZURE_AUTHORITY_HOST", tokens.url)
        key = {"anonymous": "", "client_email": "a@b", "private_key": KEY, "token_uri": f"{tokens.url}/token"}
        bucket = bucket_of(values(kind, server.url, certificate=tls[1].ca_pem, **(key if kind == "gcs" else PRINCIPAL)))
        assert listed(bucket).objects

        def given() -> int:
            return sum(peer.method == "POST" for peer in tokens.requests)

        for hours in (0, 2, 4):
            monkeypatch.setattr(time, "time", lambda hours=hours: now + hours * 3600)
            monkeypatch.setattr(
                _helpers, "utcnow", lambda hours=hours: datetime.fromtimestamp(now + hours * 3600, UTC).replace(tzinfo=None)
            )
            for _ in range(3):
                assert read(bucket) == CONTENT
            assert given() == 1 + hours // 2
        assert server.connections == 1
