"""`Below` asks with the certificates, the headers and the proxies that the session itself would ask with."""

from __future__ import annotations

from pathlib import Path

import pytest
import requests
from urllib3.exceptions import HTTPError

from adapter.storage.wire.cutting import cuttable, most_of
from adapter.storage.wire.dialling import FREE, DeniedAddress, Guard
from adapter.storage.wire.gets import read_whole
from adapter.storage.wire.network import network_words, root_of
from adapter.storage.wire.sessions import Below, prepared
from adapter.units import parse_networks
from adapter.workers import Stop
from tests.fakes import hell
from tests.fakes.http_proxy import VARIABLES, HttpProxy
from tests.real.certificates import make_certificates


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch):
    for name in (*VARIABLES, "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def session():
    with requests.Session() as made:
        yield made


@pytest.fixture
def server(server_tls):
    with hell.Hell(hell.honest(b"content"), tls=server_tls) as started:
        yield started


def below(session, url, *, ca_file=None, verify=True, guard=FREE):
    pem = Path(ca_file).read_text() if ca_file else None
    return Below(prepared(session, ca_pem=pem, verify=verify, max_connections=2, guard=guard), f"{url}/folder/")


def got(asked, **headers):
    with cuttable(Stop(), most_bytes=most_of(7)), asked.get("a%20b?q=1", headers) as body:
        return read_whole(body)


def test_the_certificate_of_the_config_wins(session, server, ca_file, tmp_path, monkeypatch):
    """Over the environment's."""
    make_certificates(tmp_path)
    other = str(tmp_path / "ca.pem")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", other)
    assert got(below(session, server.url, ca_file=ca_file)) == b"content"
    assert server.requests[0].target == "/folder/a%20b?q=1"
    with pytest.raises(OSError, match="certificate verify failed") as failed:
        got(below(requests.Session(), server.url, ca_file=other))
    assert network_words(failed.value).startswith("its TLS certificate is not trusted")


@pytest.mark.parametrize("variable", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_the_environments_certificates_are_trusted(session, server, ca_file, monkeypatch, variable):
    """Where the config has none; without either, the usual authorities."""
    with pytest.raises(OSError, match="certificate verify failed"):
        got(below(requests.Session(), server.url))
    monkeypatch.setenv(variable, ca_file)
    assert got(below(session, server.url)) == b"content"


@pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning")
def test_any_certificate_will_do_where_the_config_says_so(session, server, tmp_path, monkeypatch):
    """Whatever the environment trusts."""
    make_certificates(tmp_path)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "ca.pem"))
    assert got(below(session, server.url, verify=False)) == b"content"


def test_the_headers_are_the_sessions_and_ours(session, server, ca_file):
    """Ours count."""
    session.headers["X-Theirs"] = "1"
    got(below(session, server.url, ca_file=ca_file), **{"Accept-Encoding": "identity", "Range": "bytes=0-6"})
    headers = server.requests[0].headers
    assert (headers["x-theirs"], headers["accept-encoding"], headers["range"]) == ("1", "identity", "bytes=0-6")
    assert headers["user-agent"].startswith("python-requests/")


@pytest.mark.parametrize("exception", ["", "127.0.0.1"])
def test_a_proxy_of_the_environment_is_used(session, server, ca_file, monkeypatch, exception):
    """And NO_PROXY."""
    with HttpProxy() as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        monkeypatch.setenv("NO_PROXY", exception)
        assert got(below(session, server.url, ca_file=ca_file)) == b"content"
        assert len(proxy.requests) == (0 if exception else 1)


def test_a_guarded_session_stays_guarded(session, server, ca_file):
    """Nothing is dialled."""
    guard = Guard(parse_networks("127.0.0.0/8"))
    with pytest.raises(HTTPError) as failed:
        got(below(session, server.url, ca_file=ca_file, guard=guard))
    assert root_of(failed.value, DeniedAddress)
    assert not server.connections


def test_a_server_is_asked_again_after_its_session_was_closed(session, server, ca_file):
    """Over a new connection: closing ends idle ones only."""
    asked = below(session, server.url, ca_file=ca_file)
    assert got(asked) == got(asked) == b"content"
    assert server.connections == 1
    session.close()
    assert got(asked) == got(asked) == b"content"
    assert server.connections == 2
