"""Servers with and without TLS."""

from __future__ import annotations

import ssl

import pytest

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
