"""Servers with and without TLS."""

from __future__ import annotations

import ssl

import pytest
from urllib3 import PoolManager

from adapter.storage.wire.cutting import SOCKET_OPTIONS, close_pools, pools
from adapter.storage.wire.dialling import FREE
from tests.real.certificates import make_certificates


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    """A folder with `ca.pem`, `server.pem` and `server.key`."""
    folder = tmp_path_factory.mktemp("certificates")
    make_certificates(folder)
    return folder


@pytest.fixture(scope="session")
def server_tls(certificates):
    """Of a server on loopback."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
    return context


@pytest.fixture(scope="session")
def ca_file(certificates):
    """The authority of that server."""
    return str(certificates / "ca.pem")


@pytest.fixture(params=["plain", "tls"])
def tls(request):
    """None, or the context of a server."""
    return None if request.param == "plain" else request.getfixturevalue("server_tls")


@pytest.fixture
def manager(ca_file):
    """Pools of our connections."""
    made = PoolManager(ssl_context=ssl.create_default_context(cafile=ca_file), socket_options=SOCKET_OPTIONS, maxsize=4)
    made.pool_classes_by_scheme = pools(FREE)
    yield made
    close_pools(made)
