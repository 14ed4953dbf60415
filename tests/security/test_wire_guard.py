"""An endpoint that only a request names leads to no address of the pod or of its machine, by whatever name or notation."""

from __future__ import annotations

import socket
from ipaddress import ip_network

import pytest

from adapter.storage.net.failures import Unanswered
from adapter.storage.net.messages import FREE, Access, Guard, Request, Trust
from tests.fakes import hell
from tests.real.blocking import engine, run
from tests.real.certificates import server_tls

DEFAULT = Guard(tuple(map(ip_network, ["127.0.0.0/8", "::1/128", "169.254.0.0/16", "fe80::/10", "fd00:ec2::254/128"])))
"""As `REQUEST_ENDPOINTS_DENIED` is by default."""
METADATA = Guard((ip_network("169.254.0.0/16"),))
DENIED = [
    "127.0.0.1", "127.255.255.254", "0.0.0.0", "169.254.169.254", "::1", "::", "fe80::1", "fe80::1%eth0", "fd00:ec2::254",
    "::ffff:127.0.0.1", "::ffff:0.0.0.0", "::ffff:169.254.169.254", "::127.0.0.1", "::169.254.169.254",
    "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::a9fe:a9fe", "2002:7f00:1::", "2002:a9fe:a9fe::1",
    "2001:0:a9fe:a9fe::1", "2001:0:808:808:0:0:5601:5601", "2001:db8::5efe:a9fe:a9fe", "2001:db8::200:5efe:a9fe:a9fe",
]  # fmt: skip
ALLOWED = [
    "8.8.8.8",
    "10.0.0.1",
    "192.168.1.1",
    "128.0.0.1",
    "2001:4860:4860::8888",
    "fd00:ec2::253",
    "::ffff:8.8.8.8",
    "64:ff9b::808:808",
    "fd00::1",
]


@pytest.fixture(params=[False, True], ids=["plain", "tls"])
def tls(request, tmp_path):
    """None, or the context of a server."""
    return server_tls(tmp_path)[0] if request.param else None


@pytest.fixture
def ca_file(tmp_path):
    return str(tmp_path / "ca.pem")


def asked(url, *, guard=FREE, ca_file=None, proxy=""):
    """What the engine gives for a URL."""
    return run(engine().fetch(Request(url, {}, Access(Trust(ca_file=ca_file), guard, proxy), 1 << 20))).body


@pytest.mark.parametrize("address", DENIED)
def test_an_address_is_judged_by_where_it_leads(address):
    """Through a mapping, a gateway or a tunnel."""
    assert not DEFAULT.allows(address)


@pytest.mark.parametrize("address", ALLOWED)
def test_others_are_allowed(address):
    assert DEFAULT.allows(address)


@pytest.mark.parametrize("address", DENIED)
def test_an_empty_list_allows_everything(address):
    assert Guard().allows(address)
    assert FREE.allows(address)


def answering_in_turn(monkeypatch, name, *answers):
    """A name server that says something else each time. Returns how often it was asked."""
    looked_up, real = [], socket.getaddrinfo

    def look_up(host, *rest, **options):
        if host != name:
            return real(host, *rest, **options)
        looked_up.append(host)
        chosen = answers[min(len(looked_up), len(answers)) - 1]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in chosen]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return looked_up


def test_the_address_that_was_checked_is_the_one_that_is_dialled(monkeypatch):
    """A name that is looked up twice may change in between."""
    looked_up = answering_in_turn(monkeypatch, "rebound.test", ["127.0.0.1"], ["169.254.169.254"])
    with hell.Hell(hell.honest(b"x")) as server:
        assert asked(f"http://rebound.test:{server.port}/", guard=METADATA) == b"x"
        assert server.requests[0].headers["host"] == f"rebound.test:{server.port}"
    assert looked_up == ["rebound.test"]


def test_every_request_is_checked(monkeypatch):
    """What a name was before counts for nothing."""
    answering_in_turn(monkeypatch, "rebound.test", ["127.0.0.1"], ["169.254.169.254"])
    with hell.Hell(hell.honest(b"x")) as server:
        assert asked(f"http://rebound.test:{server.port}/", guard=METADATA) == b"x"
        with pytest.raises(Unanswered, match=r"169\.254\.169\.254 may not be dialled"):
            asked(f"http://rebound.test:{server.port}/", guard=METADATA)


def test_one_denied_address_of_several_is_enough(monkeypatch):
    """Which of them is dialled would be the server's choice: it refuses a connection to the other."""
    answering_in_turn(monkeypatch, "mixed.test", ["127.0.0.1", "169.254.169.254"])
    with hell.Hell(hell.honest(b"x")) as server:
        with pytest.raises(Unanswered, match=r"169\.254\.169\.254 may not be dialled"):
            asked(f"http://mixed.test:{server.port}/", guard=METADATA)
        assert server.connections == 0


def test_certificates_are_checked_against_the_name(monkeypatch, tmp_path, ca_file):
    """Not against the address that is dialled."""
    answering_in_turn(monkeypatch, "other.test", ["127.0.0.1"])
    with hell.Hell(hell.honest(b"x"), tls=server_tls(tmp_path)[0]) as server:
        assert asked(f"https://localhost:{server.port}/", guard=METADATA, ca_file=ca_file) == b"x"
        with pytest.raises(Unanswered, match="its TLS certificate is for another host name") as failed:
            asked(f"https://other.test:{server.port}/", guard=METADATA, ca_file=ca_file)
    assert not failed.value.can_pass


def test_a_connection_of_a_request_without_a_guard_is_not_used(tls, ca_file):
    """It was not checked where it leads. One that was checked is used again."""
    with hell.Hell(hell.honest(b"x"), tls=tls) as server:
        url = f"{server.url.replace('127.0.0.1', 'localhost')}/"
        for guard, connections in ((FREE, 1), (METADATA, 2), (METADATA, 2), (FREE, 2)):
            assert asked(url, guard=guard, ca_file=ca_file) == b"x"
            assert server.connections == connections


@pytest.mark.parametrize(
    "url", ["http://{host}@allowed.test/", "http://allowed.test@{host}/", "http://allowed.test#@{host}/", "http://{host}\\@allowed.test/"]
)
def test_two_readings_of_a_url_lead_to_no_denied_address(url, monkeypatch):
    """Whatever libcurl takes for the host, it connects to the addresses of the host that was checked."""
    answering_in_turn(monkeypatch, "allowed.test", ["192.0.2.1"])
    with hell.Hell(hell.honest(b"secret")) as server:
        with pytest.raises(Unanswered):
            asked(url.format(host=f"127.0.0.1:{server.port}"), guard=DEFAULT)
        assert server.connections == 0


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("host", ["127.0.0.1", "127.1", "2130706433", "localhost", "[::1]", "[::ffff:127.0.0.1]", "127.0.0.1."])
def test_a_proxy_is_not_asked_for_a_denied_address(scheme, host):
    """The proxy itself is the operator's, and may be on loopback."""
    with hell.Hell(hell.proxying()) as proxy:
        with pytest.raises(Unanswered, match="may not be dialled for a request"):
            asked(f"{scheme}://{host}:1/", guard=DEFAULT, proxy=proxy.url)
        assert proxy.requests == []


def test_a_name_that_only_the_proxy_knows_is_the_proxys(tls, ca_file, monkeypatch):
    """In a network with a proxy, names of the world need not be known here."""
    real = socket.getaddrinfo

    def look_up(host, *rest, **options):
        if host == "localhost":
            raise socket.gaierror(socket.EAI_NONAME, "unknown here")
        return real(host, *rest, **options)

    with hell.Hell(hell.honest(b"x"), tls=tls) as server, hell.Hell(hell.proxying({"localhost": ("127.0.0.1", server.port)})) as proxy:
        monkeypatch.setattr(socket, "getaddrinfo", look_up)
        url = f"{server.url.partition(':')[0]}://localhost:{server.port}/"
        assert asked(url, guard=DEFAULT, ca_file=ca_file, proxy=proxy.url) == b"x"
        assert len(proxy.requests) == 1
