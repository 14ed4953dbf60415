"""How a web server is asked: connections with one kind of trust, direct and through the environment's proxies, over urllib3."""

from __future__ import annotations

import ssl
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from urllib3 import PoolManager, ProxyManager, Timeout, make_headers
from urllib3 import __version__ as _urllib3  # type: ignore[attr-defined]  # it is public, and not in `__all__`
from urllib3.util import parse_url

from adapter.storage.wire.cutting import SOCKET_OPTIONS, close_pools, pools
from adapter.storage.wire.dialling import Guard
from adapter.storage.wire.gets import Answer, Passed, Server
from adapter.storage.wire.network import CONNECT_TIMEOUT_SECONDS, READ_TIMEOUT_SECONDS

_USER_AGENT = f"python-urllib3/{_urllib3}"
"""urllib3's own. There are servers that refuse requests of nobody."""
_KEPT_SERVERS = 8
"""Of those that redirects lead to, nobody knows how many there will be."""


class Web:
    """Pools of connections: direct, and through each proxy that the environment names."""

    def __init__(self, context: ssl.SSLContext, max_connections: int, guard: Guard) -> None:
        self._pools = pools(guard)
        self._options: dict[str, Any] = {
            "ssl_context": context,
            "maxsize": max_connections,
            "socket_options": SOCKET_OPTIONS,
            "timeout": Timeout(connect=CONNECT_TIMEOUT_SECONDS, read=READ_TIMEOUT_SECONDS),
        }
        self._direct = self._with_cuttable_pools(PoolManager(**self._options))
        self._proxied: dict[str, PoolManager] = {}
        self._servers: dict[tuple[str, str], Server | None] = {}
        """By scheme and place; None: they are asked through a proxy."""

    def get(self, url: SplitResult, headers: Mapping[str, str]) -> Answer:
        """The answer to a GET, its body unread. Nothing is repeated or followed. Raises HTTPError, OSError, ValueError: there is none."""
        headers = {"user-agent": _USER_AGENT, **headers, "Accept-Encoding": "identity"}
        server = self._server(url)
        if server is not None:
            return server.get(parse_url(url.geturl()).request_uri, headers)
        return Passed(
            self._manager(url).urlopen(
                "GET",
                url.geturl(),
                headers=headers,
                redirect=False,
                retries=False,
                preload_content=False,
                decode_content=False,
            )
        )

    def close(self) -> None:
        """Close idle connections."""
        for manager in (self._direct, *self._proxied.values()):
            close_pools(manager)

    def _server(self, url: SplitResult) -> Server | None:
        place, known = (url.scheme, url.netloc), self._servers
        if place in known:
            return known[place]
        if len(known) >= _KEPT_SERVERS:
            known = self._servers = {}
        is_direct = self._manager(url) is self._direct
        found = Server(lambda: self._direct.connection_from_url(f"{url.scheme}://{url.netloc}")) if is_direct else None
        known[place] = found
        return found

    def _manager(self, url: SplitResult) -> PoolManager:
        proxy = urllib.request.getproxies().get(url.scheme)
        if not proxy or urllib.request.proxy_bypass(url.netloc.rpartition("@")[2]):
            return self._direct
        if proxy not in self._proxied:
            parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
            words = unquote(f"{parts.username}:{parts.password or ''}")
            credentials = make_headers(proxy_basic_auth=words) if parts.username else None
            bare = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
            made = self._with_cuttable_pools(ProxyManager(bare, proxy_headers=credentials, **self._options))
            self._proxied.setdefault(proxy, made)  # another thread may have been faster
        return self._proxied[proxy]

    def _with_cuttable_pools(self, manager: PoolManager) -> PoolManager:
        manager.pool_classes_by_scheme = self._pools
        return manager
