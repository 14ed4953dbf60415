"""An endpoint that only a request names leads to no address of the pod or of its machine, by whatever name or notation."""

from __future__ import annotations

import socket
import ssl
from ipaddress import ip_network

import pytest

from adapter.storage.wire.cutting import PAGE_BYTES, cuttable, pools
from adapter.storage.wire.dialling import FREE, DeniedAddress, Guard
from adapter.storage.wire.names import Address
from adapter.storage.wire.network import can_pass, network_words
from adapter.workers import Stop
from tests.fakes import hell
from tests.real.certificates import make_certificates
from tests.unit.storage.wire.askers import ASKERS, Trust

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
NOTATIONS = [
    "127.0.0.1", "127.1", "0x7f000001", "0x7f.1", "0177.0.0.1", "2130706433", "0", "0.0.0.0", "localhost", "LOCALHOST", "[::1]", "[::]",
    "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:0:0:1]",
]  # fmt: skip


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """A folder with `ca.pem`, `server.pem` and `server.key`."""
    folder = tmp_path_factory.mktemp("certificates")
    make_certificates(folder)
    return folder


@pytest.fixture(scope="module")
def server_tls(certificates):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
    return context


@pytest.fixture(scope="module")
def ca_file(certificates):
    return str(certificates / "ca.pem")


@pytest.fixture(params=["plain", "tls"])
def tls(request):
    """None, or the context of a server."""
    return None if request.param == "plain" else request.getfixturevalue("server_tls")


@pytest.mark.parametrize("address", DENIED)
def test_an_address_is_judged_by_where_it_leads(address):
    """Through a mapping, a gateway or a tunnel."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with pytest.raises(DeniedAddress) as failed:
        DEFAULT.check([Address(family, (address, 0))])
    assert str(failed.value) == f"{address} may not be dialled for a request (REQUEST_ENDPOINTS_DENIED)"


@pytest.mark.parametrize("address", ALLOWED)
def test_others_are_allowed(address):
    assert DEFAULT.allows(address)


@pytest.mark.parametrize("address", DENIED)
def test_an_empty_list_allows_everything(address):
    assert Guard().allows(address)
    assert FREE.allows(address)


@pytest.fixture(params=list(ASKERS))
def library(request):
    return ASKERS[request.param]


@pytest.mark.parametrize("host", NOTATIONS)
def test_no_notation_of_loopback_is_dialled(library, host, tls, ca_file):
    """The server is there, and nobody comes."""
    with hell.Hell(hell.honest(b"secret"), tls=tls) as server, library(Trust(ca_file=ca_file, guard=DEFAULT)) as ask:
        with pytest.raises(Exception) as failed, cuttable(Stop(), most_bytes=PAGE_BYTES):
            ask.get(f"{server.url.partition(':')[0]}://{host}:{server.port}/")
        assert "may not be dialled for a request (REQUEST_ENDPOINTS_DENIED)" in network_words(failed.value)
        assert not can_pass(failed.value)
        assert server.connections == 0


def answering_in_turn(monkeypatch, name, *answers):
    """A name server that says something else each time. Returns how often it was asked."""
    asked, real = [], socket.getaddrinfo

    def look_up(host, *rest):
        if host != name or socket.AI_NUMERICHOST in rest:
            return real(host, *rest)
        asked.append(host)
        chosen = answers[min(len(asked), len(answers)) - 1]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in chosen]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return asked


def test_the_address_that_was_checked_is_the_one_that_is_dialled(library, monkeypatch):
    """A name that is looked up twice may change in between."""
    asked = answering_in_turn(monkeypatch, "rebound.test", ["127.0.0.1"], ["169.254.169.254"])
    with hell.Hell(hell.honest(b"x")) as server, library(Trust(guard=METADATA)) as ask, cuttable(Stop(), most_bytes=PAGE_BYTES):
        assert ask.get(f"http://rebound.test:{server.port}/").read() == b"x"
        assert server.requests[0].headers["host"] == f"rebound.test:{server.port}"
        assert ask.get(f"http://rebound.test:{server.port}/").read() == b"x"  # by the same connection
    assert asked == ["rebound.test"]


def test_every_new_connection_is_checked(library, monkeypatch):
    """What a name was when the client was made counts for nothing."""
    answering_in_turn(monkeypatch, "rebound.test", ["127.0.0.1"], ["169.254.169.254"])
    with hell.Hell(hell.answering(200, {}, b"x")) as server, library(Trust(guard=METADATA)) as ask:
        with cuttable(Stop(), most_bytes=PAGE_BYTES):
            assert ask.get(f"http://rebound.test:{server.port}/").read() == b"x"
        with pytest.raises(Exception) as failed, cuttable(Stop(), most_bytes=PAGE_BYTES):
            ask.get(f"http://rebound.test:{server.port}/")
    assert "169.254.169.254 may not be dialled" in network_words(failed.value)


def test_one_denied_address_of_several_is_enough(library, monkeypatch):
    """Which of them is dialled would be the server's choice: it refuses a connection to the other."""
    answering_in_turn(monkeypatch, "mixed.test", ["127.0.0.1", "169.254.169.254"])
    with hell.Hell(hell.honest(b"x")) as server, library(Trust(guard=METADATA)) as ask:
        with pytest.raises(Exception) as failed, cuttable(Stop(), most_bytes=PAGE_BYTES):
            ask.get(f"http://mixed.test:{server.port}/")
        assert "169.254.169.254 may not be dialled" in network_words(failed.value)
        assert server.connections == 0


def test_certificates_are_checked_against_the_name(library, monkeypatch, server_tls, ca_file):
    """Not against the address that is dialled."""
    answering_in_turn(monkeypatch, "other.test", ["127.0.0.1"])
    with hell.Hell(hell.honest(b"x"), tls=server_tls) as server, library(Trust(ca_file=ca_file, guard=METADATA)) as ask:
        with cuttable(Stop(), most_bytes=PAGE_BYTES):
            assert ask.get(f"https://localhost:{server.port}/").read() == b"x"
        with pytest.raises(Exception) as failed, cuttable(Stop(), most_bytes=PAGE_BYTES):
            ask.get(f"https://other.test:{server.port}/")
    assert network_words(failed.value) == "its TLS certificate is for another host name"
    assert not can_pass(failed.value)


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("host", ["127.0.0.1", "127.1", "2130706433", "localhost", "[::1]", "[::ffff:127.0.0.1]", "127.0.0.1."])
def test_a_proxy_is_not_asked_for_a_denied_address(library, scheme, host):
    """The proxy itself is the operator's, and may be on loopback."""
    with hell.Hell(hell.proxying()) as proxy, library(Trust(guard=DEFAULT, proxy=proxy.url)) as ask:
        with pytest.raises(Exception) as failed, cuttable(Stop(), most_bytes=PAGE_BYTES):
            ask.get(f"{scheme}://{host}:1/")
        assert "may not be dialled for a request" in network_words(failed.value)
        assert proxy.requests == []


def test_a_name_that_only_the_proxy_knows_is_the_proxys(library, tls, ca_file, monkeypatch):
    """In a network with a proxy, names of the world need not be known here."""
    real = socket.getaddrinfo

    def look_up(host, *rest):
        if host == "localhost" and socket.AI_NUMERICHOST not in rest:
            raise socket.gaierror(socket.EAI_NONAME, "unknown here")
        return real(host, *rest)

    with hell.Hell(hell.honest(b"x"), tls=tls) as server:
        knowing = hell.proxying({"localhost": ("127.0.0.1", server.port)})
        with hell.Hell(knowing) as proxy, library(Trust(ca_file=ca_file, guard=DEFAULT, proxy=proxy.url)) as ask:
            monkeypatch.setattr(socket, "getaddrinfo", look_up)
            with cuttable(Stop(), most_bytes=PAGE_BYTES):
                assert ask.get(f"{server.url.partition(':')[0]}://localhost:{server.port}/").read() == b"x"
            assert len(proxy.requests) == 1


def test_a_stored_endpoint_is_free(library):
    """A developer's store on loopback."""
    with hell.Hell(hell.honest(b"x")) as server, library(Trust()) as ask, cuttable(Stop(), most_bytes=PAGE_BYTES):
        assert ask.get(server.url).read() == b"x"


def test_guarded_and_free_clients_share_no_pools():
    """And two clients of one guard have the same kinds of pools."""
    assert pools(DEFAULT)["http"] is not pools(FREE)["http"]
    assert pools(DEFAULT)["https"].ConnectionCls.guard == DEFAULT
    assert pools(Guard(DEFAULT.denied)) == pools(DEFAULT)
