"""A small proxy as companies have them: it forwards plain http and opens tunnels for TLS, and notes what it was asked for."""

from __future__ import annotations

import base64
from collections.abc import Mapping

from tests.fakes.hell import Hell, Peer, answering, proxying

VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy")
"""What a test must take out of the environment before it sets its own."""


class HttpProxy(Hell):
    """Context manager. Takes any number of clients. `requests` has a `CONNECT` for each tunnel."""

    def __init__(self, routes: Mapping[str, str] | None = None, *, password: str | None = None) -> None:
        """
        Args:
            routes: `host:port` that is asked for → `host:port` that is dialled; others are dialled as asked.
            password: `user:password` that clients must give; others get a 407.
        """
        super().__init__(self._admit)
        self.password = password
        places = {name: place.rpartition(":") for name, place in (routes or {}).items()}
        self._forward = proxying({name: (host, int(port)) for name, (host, _, port) in places.items()})

    @property
    def endpoint(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self.port}"

    @property
    def proxy_url(self) -> str:
        """As it stands in HTTP_PROXY, with the password where there is one."""
        return f"http://{self.password}@{self.endpoint}" if self.password else self.url

    @property
    def targets(self) -> list[str]:
        """`METHOD target` of each request, in order of arrival, without queries."""
        return [f"{request.method} {request.target.partition('?')[0]}" for request in self.requests]

    def _admit(self, peer: Peer) -> None:
        if self.password in (None, password_of(peer)):
            self._forward(peer)
        else:
            answering(407, {"Content-Length": 0, "Connection": "close"})(peer)
            peer.hang_up()


def password_of(peer: Peer) -> str | None:
    """`user:password`, where the client of a proxy gave one."""
    scheme, _, token = peer.headers.get("proxy-authorization", "").partition(" ")
    return base64.b64decode(token).decode() if scheme == "Basic" else None
