"""
What the vendors' libraries talk through: a `requests` session whose calls can be cut, with a trust of its own.

Their retries and timeouts are not used: ours are. Of the environment, proxies count (HTTP_PROXY, HTTPS_PROXY,
NO_PROXY), and trusted certificates (REQUESTS_CA_BUNDLE) where nothing else is said; `.netrc` never does, which would
add credentials. A redirect is an answer, a cookie is not kept.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping
from http.cookiejar import DefaultCookiePolicy
from typing import Any, cast

import requests
from requests.adapters import HTTPAdapter
from requests.utils import select_proxy
from urllib3 import HTTPConnectionPool

from adapter.storage.wire.cutting import SOCKET_OPTIONS, close_pools, pools
from adapter.storage.wire.dialling import Guard
from adapter.storage.wire.gets import Answer, Passed, Server
from adapter.storage.wire.network import CONNECT_TIMEOUT_SECONDS, READ_TIMEOUT_SECONDS
from adapter.storage.wire.tls import memory_file

TIMEOUT_SECONDS = (CONNECT_TIMEOUT_SECONDS, READ_TIMEOUT_SECONDS)


class CuttableAdapter(HTTPAdapter):
    """Connections that `cutting` can cut; nothing is repeated, no wait is longer than ours."""

    def __init__(self, max_connections: int, guard: Guard) -> None:
        self._pools = pools(guard)
        super().__init__(pool_connections=4, pool_maxsize=max_connections, max_retries=0)

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        """As requests'."""
        super().init_poolmanager(*args, socket_options=SOCKET_OPTIONS, **options)
        self.poolmanager.pool_classes_by_scheme = self._pools

    def proxy_manager_for(self, *args: Any, **options: Any) -> Any:
        """As requests'."""
        manager = super().proxy_manager_for(*args, **options)
        manager.pool_classes_by_scheme = self._pools
        return manager

    def send(self, request: requests.PreparedRequest, stream: bool = False, timeout: Any = None, *args: Any, **options: Any) -> Any:
        """As requests'. Libraries forget the timeouts that they are given, and have others: 300 s in Azure's."""
        return super().send(request, stream, _shorter(timeout), *args, **options)

    def close(self) -> None:
        """As requests'."""
        for manager in (self.poolmanager, *self.proxy_manager.values()):
            close_pools(manager)


def prepared(session: requests.Session, *, ca_pem: str | None, verify: bool, max_connections: int, guard: Guard) -> requests.Session:
    """
    The session, over our connections.

    Args:
        session: also one of a library's own class.
        ca_pem: authorities that are trusted instead of all others, whatever the environment or a single request says.
        verify: False takes any certificate, likewise.
        max_connections: that are kept for each server.
        guard: which addresses may be dialled.
    """
    for scheme in ("http://", "https://"):
        session.mount(scheme, CuttableAdapter(max_connections, guard))
    if not verify:
        session.verify = False
    elif ca_pem:
        bundle = memory_file(ca_pem)
        weakref.finalize(session, os.close, bundle)
        session.verify = f"/proc/self/fd/{bundle}"
    trust = session.verify if ca_pem or not verify else None
    environment = requests.Session()  # reads what counts of the process environment, and sends nothing

    def merged(url: str, proxies: Mapping[str, str] | None, stream: Any, verify: Any, cert: Any) -> dict[str, Any]:
        settings = environment.merge_environment_settings(url, dict(proxies or {}), stream, verify, cert)
        return settings if trust is None else {**settings, "verify": trust}

    session.trust_env = False
    session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=()))  # a jar would grow with every answer, and be sent back
    # a session of a library's own class offers no other place
    session.merge_environment_settings = merged  # type: ignore[method-assign]
    session.get_redirect_target = _nowhere  # type: ignore[method-assign]  # likewise
    return session


class Below:
    """
    What lies below one URL, asked for with the trust and the headers of a prepared session, but without what it does for each request.

    Whether the URL is reached through a proxy is looked at once; what is, requests sends as it sends everything else.
    """

    def __init__(self, session: requests.Session, url: str) -> None:
        """`url` ends with a slash."""
        self._session = session
        self._url = url
        self._found: tuple[Server | None, str] | None = None

    def get(self, rest: str, headers: Mapping[str, str]) -> Answer:
        """
        The answer to a GET, its body unread. Nothing is repeated or followed.

        Args:
            rest: path below the URL, and query, quoted.
            headers: besides those of the session; names as the session spells them.

        Raises:
            requests.RequestException, urllib3's HTTPError, OSError, ValueError: there is none.
        """
        server, path = self._found = self._found or self._looked_up()
        if server is not None:
            return server.get(path + rest, {**self._session.headers, **headers}, TIMEOUT_SECONDS)
        return Passed(self._session.get(self._url + rest, headers=headers, stream=True, timeout=TIMEOUT_SECONDS).raw)

    def _looked_up(self) -> tuple[Server | None, str]:
        request, session = requests.Request("GET", self._url).prepare(), self._session
        url = request.url or self._url
        settings = session.merge_environment_settings(url, {}, True, None, None)
        if select_proxy(url, settings["proxies"]):
            return None, request.path_url
        adapter = cast("HTTPAdapter", session.get_adapter(url))

        def find() -> HTTPConnectionPool:
            """As `HTTPAdapter.send` does."""
            pool = adapter.get_connection_with_tls_context(request, settings["verify"], settings["proxies"], settings["cert"])
            adapter.cert_verify(pool, url, settings["verify"], settings["cert"])
            return pool

        return Server(find), request.path_url


def _nowhere(resp: requests.Response) -> str | None:
    """Where a redirect leads."""
    return None


def _shorter(timeout: Any) -> tuple[float, float]:
    """Ours, or what the library wants where that is less."""
    wanted = timeout if isinstance(timeout, tuple) and len(timeout) == 2 else (timeout, timeout)
    connect, read = (min(most, each) if isinstance(each, int | float) else most for most, each in zip(TIMEOUT_SECONDS, wanted, strict=True))
    return connect, read
