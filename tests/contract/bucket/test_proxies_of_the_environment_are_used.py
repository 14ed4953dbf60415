"""HTTP_PROXY, HTTPS_PROXY and NO_PROXY in both cases, and AWS_CA_BUNDLE: as users of the libraries know them, for S3 and web servers."""

from __future__ import annotations

import ssl

import pytest

from adapter.errors import InvalidRequest, SourceUnavailable
from adapter.settings.kinds import parse_networks
from adapter.storage.net.messages import Guard
from adapter.workers import Stop
from tests.contract.bucket.conftest import bucket_of
from tests.fakes.hell import Hell, answering, by_target, honest
from tests.fakes.http_proxy import HttpProxy, password_of
from tests.real.blocking import BlockingClients
from tests.real.certificates import make_certificates
from tests.unit.storage.rigs import make_config

pytestmark = pytest.mark.usefixtures("bare_environment")
CONTENT = b"content" * 1000
LISTING = (
    b"<ListBucketResult><IsTruncated>false</IsTruncated>"
    b"<Contents><Key>m/file</Key><Size>7000</Size><ETag>v</ETag></Contents></ListBucketResult>"
)
KEYS = {"access_key_id": "AKIDEXAMPLE", "secret_access_key": "a-secret-key"}


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """Certificates of a private authority, and the folder where they lie."""
    folder = tmp_path_factory.mktemp("tls")
    return make_certificates(folder), folder


@pytest.fixture(params=["http", "https"])
def server(request, given):
    """Both an S3 server and a web server."""
    tls = None
    if request.param == "https":
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(given[1] / "server.pem", given[1] / "server.key")
    listing = answering(200, {"Content-Length": len(LISTING)}, LISTING)
    with Hell(by_target({"list-type": listing}, otherwise=honest(CONTENT, {"ETag": '"v"'})), tls=tls) as started:
        yield started


def url_of(server, host="localhost"):
    """The name in the certificate, on a port that only the proxy knows."""
    return f"{server.url.partition(':')[0]}://{host}:{server.port}"


def config_of(kind, server, given, host="localhost", **changes):
    url = url_of(server, host)
    place = {"url": url} if kind == "http" else {"endpoint_url": url, "bucket": "b", **KEYS}
    certificate = {"certificate": given[0].ca_pem} if url.startswith("https") else {}
    return {"type": kind} | place | certificate | changes


def pulled(bucket):
    return bucket.bytes_of(bucket.list_page("m/file", Stop()).objects[0])


def spelled(server, name):
    return f"{server.url.partition(':')[0]}_proxy".upper() if name == "upper" else f"{server.url.partition(':')[0]}_proxy"


@pytest.mark.parametrize("case", ["upper", "lower"])
@pytest.mark.parametrize("kind", ["s3", "http"])
def test_requests_go_through_the_proxy(kind, case, server, given, monkeypatch):
    """Forwarded, or through a tunnel in which TLS is checked end to end. The proxy's password goes to the proxy alone."""
    with HttpProxy(password="user:word") as proxy:
        monkeypatch.setenv(spelled(server, case), proxy.proxy_url)
        assert pulled(bucket_of(config_of(kind, server, given))) == CONTENT
        methods = {request.method for request in proxy.requests}
        assert methods == ({"CONNECT"} if server.url.startswith("https") else {"GET"})
        assert {password_of(request) for request in proxy.requests} == {"user:word"}
        assert all("proxy-authorization" not in request.headers for request in server.requests)


@pytest.mark.parametrize("kind", ["s3", "http"])
def test_a_password_of_a_proxy_may_have_any_letters(kind, server, given, monkeypatch):
    """They are escaped, as in each URL."""
    with HttpProxy(password="us@er:p:w/ d%41") as proxy:
        monkeypatch.setenv(spelled(server, "upper"), f"http://us%40er:p%3Aw%2F%20d%2541@{proxy.endpoint}")
        assert pulled(bucket_of(config_of(kind, server, given))) == CONTENT


@pytest.mark.parametrize("case", ["NO_PROXY", "no_proxy"])
@pytest.mark.parametrize("kind", ["s3", "http"])
def test_no_proxy_is_heeded(kind, case, server, given, monkeypatch):
    """By name."""
    with HttpProxy() as proxy:
        monkeypatch.setenv(spelled(server, "upper"), proxy.proxy_url)
        monkeypatch.setenv(case, "other.example,localhost")
        assert pulled(bucket_of(config_of(kind, server, given))) == CONTENT
        assert proxy.requests == []


@pytest.mark.parametrize("kind", ["s3", "http"])
def test_a_guarded_place_behind_a_proxy_is_guarded_too(kind, server, given, monkeypatch):
    """The proxy stands where metadata can be reached from as well; the proxy itself may be anywhere."""
    with HttpProxy() as proxy:
        monkeypatch.setenv(spelled(server, "upper"), proxy.proxy_url)
        field = "url" if kind == "http" else "endpoint_url"
        config = make_config(config_of(kind, server, given), requested=frozenset({field}))
        clients = BlockingClients(guard=Guard(parse_networks("127.0.0.0/8,::1/128")))
        with pytest.raises(InvalidRequest, match="REQUEST_ENDPOINTS_DENIED"):
            clients.bucket(config).list_page("m/file", Stop())
        assert proxy.requests == []


def test_aws_ca_bundle_is_trusted_by_s3(server, given, monkeypatch):
    """Where the config names no certificate of its own."""
    if not server.url.startswith("https"):
        pytest.skip("nothing to trust")
    monkeypatch.setenv("AWS_CA_BUNDLE", str(given[1] / "ca.pem"))
    assert pulled(bucket_of(config_of("s3", server, given, certificate=""))) == CONTENT


def test_aws_ca_bundle_is_no_match_for_the_configs_own(server, given, monkeypatch, tmp_path):
    """The config decides: another authority in the environment changes nothing."""
    if not server.url.startswith("https"):
        pytest.skip("nothing to trust")
    (tmp_path / "other").mkdir()
    make_certificates(tmp_path / "other")
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "other/ca.pem"))
    assert pulled(bucket_of(config_of("s3", server, given))) == CONTENT
    with pytest.raises(SourceUnavailable, match="not trusted"):
        bucket_of(config_of("s3", server, given, certificate="")).list_page("m/", Stop())
