"""A session that a vendor's library talks through: what counts of the environment, and what the library's options count for."""

from __future__ import annotations

import pytest
import requests
from google.auth.credentials import AnonymousCredentials
from google.auth.transport.requests import AuthorizedSession

from adapter.storage.wire import sessions
from adapter.storage.wire.cutting import PAGE_BYTES, cuttable
from adapter.storage.wire.dialling import FREE
from adapter.storage.wire.network import network_words
from adapter.storage.wire.sessions import prepared
from adapter.workers import Stop
from tests.fakes import hell
from tests.real.certificates import make_certificates

PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch):
    for name in (*PROXIES, *(name.lower() for name in PROXIES), "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NETRC"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def other_ca(tmp_path):
    """An authority that has nothing to do with the server."""
    make_certificates(tmp_path)
    return str(tmp_path / "ca.pem")


@pytest.fixture(params=["requests", "google"])
def session(request):
    """One of requests' own class, and one of a library's, which comes ready made."""
    made = requests.Session() if request.param == "requests" else AuthorizedSession(AnonymousCredentials())
    with made:
        yield made


def with_trust(session, *, ca_file=None, verify=True):
    pem = None
    if ca_file:
        with open(ca_file) as file:
            pem = file.read()
    return prepared(session, ca_pem=pem, verify=verify, max_connections=2, guard=FREE)


def got(session, url, **options):
    with cuttable(Stop(), most_bytes=PAGE_BYTES):
        return session.get(url, **options)


@pytest.mark.parametrize("variable", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
@pytest.mark.parametrize("options", [{}, {"verify": True}, {"verify": False}], ids=str)
def test_the_certificate_of_the_config_wins(session, server_tls, ca_file, other_ca, monkeypatch, variable, options):
    """Over the environment's, and over what a library says with each request."""
    with hell.Hell(hell.honest(b"x"), tls=server_tls) as server:
        monkeypatch.setenv(variable, other_ca)
        assert got(with_trust(session, ca_file=ca_file), server.url, **options).content == b"x"
        monkeypatch.setenv(variable, ca_file)
        with pytest.raises(requests.ConnectionError) as failed:
            got(with_trust(session, ca_file=other_ca), server.url, **options)
        assert network_words(failed.value).startswith("its TLS certificate is not trusted")


@pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning")
@pytest.mark.parametrize("options", [{}, {"verify": True}], ids=str)
def test_verify_ssl_of_the_config_wins(session, server_tls, other_ca, monkeypatch, options):
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", other_ca)
    with hell.Hell(hell.honest(b"x"), tls=server_tls) as server:
        assert got(with_trust(session, verify=False), server.url, **options).content == b"x"


@pytest.mark.parametrize("variable", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_the_environments_certificates_count_where_the_config_says_nothing(session, server_tls, ca_file, monkeypatch, variable):
    with hell.Hell(hell.honest(b"x"), tls=server_tls) as server:
        with pytest.raises(requests.ConnectionError):
            got(with_trust(session), server.url)
        monkeypatch.setenv(variable, ca_file)
        assert got(with_trust(session), server.url).content == b"x"


def test_netrc_adds_no_credentials(session, tmp_path, monkeypatch):
    """Nobody configured them, and they would travel to whatever endpoint has that host."""
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login somebody password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with hell.Hell(hell.honest(b"x")) as server:
        got(with_trust(session), server.url)
        assert "authorization" not in server.requests[0].headers


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy"])
def test_proxies_of_the_environment_count(session, monkeypatch, variable):
    with hell.Hell(hell.honest(b"x")) as server, hell.Hell(hell.proxying()) as proxy:
        monkeypatch.setenv(variable, proxy.url)
        assert got(with_trust(session), f"{server.url}/a").content == b"x"
        assert [peer.target for peer in proxy.requests] == [f"{server.url}/a"]
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        assert got(with_trust(session), f"{server.url}/b").content == b"x"
        assert len(proxy.requests) == 1


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "https_proxy"])
def test_tls_goes_through_a_proxys_tunnel(session, server_tls, ca_file, monkeypatch, variable):
    """The proxy sees host and port alone."""
    with hell.Hell(hell.honest(b"x"), tls=server_tls) as server, hell.Hell(hell.proxying()) as proxy:
        monkeypatch.setenv(variable, proxy.url)
        assert got(with_trust(session, ca_file=ca_file), f"{server.url}/secret").content == b"x"
        assert [(peer.method, peer.target) for peer in proxy.requests] == [("CONNECT", f"127.0.0.1:{server.port}")]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("options", [{}, {"allow_redirects": True}], ids=str)
def test_a_redirect_is_an_answer(session, status, options):
    """A store that wants to be asked elsewhere may not choose where."""
    with hell.Hell(hell.honest(b"x")) as elsewhere, hell.Hell(hell.redirecting(elsewhere.url, status)) as server:
        assert got(with_trust(session), server.url, **options).status_code == status
        assert elsewhere.connections == 0


@pytest.mark.parametrize("options", [{}, {"timeout": None}, {"timeout": 300}, {"timeout": (300, 300)}, {"timeout": (0.1, None)}], ids=str)
def test_no_library_waits_longer_than_we_do(session, monkeypatch, options):
    """Google's default is 120 s, Azure's 300 s."""
    monkeypatch.setattr(sessions, "TIMEOUT_SECONDS", (0.1, 0.1))
    with hell.Hell(hell.silent()) as server, pytest.raises(requests.Timeout):
        got(with_trust(session), server.url, **options)


def test_a_shorter_timeout_stays(session):
    """A metadata server answers at once, or is not there."""
    with hell.Hell(hell.silent()) as server, pytest.raises(requests.ReadTimeout):
        got(with_trust(session), server.url, timeout=0.1)
