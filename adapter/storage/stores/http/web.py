"""How a web server is asked: connections with one kind of trust, direct and through the environment's proxies, over urllib3."""

from __future__ import annotations

import ssl
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from urllib3 import BaseHTTPResponse, PoolManager, ProxyManager, Timeout, make_headers

from adapter.storage.wire.cutting import SOCKET_OPTIONS, close_pools, pools
from adapter.storage.wire.dialling import Guard
from adapter.storage.wire.network import CONNECT_TIMEOUT_SECONDS, READ_TIMEOUT_SECONDS


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

    def get(self, url: SplitResult, headers: Mapping[str, str]) -> BaseHTTPResponse:
        """The answer to a GET, its body unread. Nothing is repeated or followed."""
        return self._manager(url).urlopen(
            "GET",
            url.geturl(),
            headers={**headers, "Accept-Encoding": "identity"},
            redirect=False,
            retries=False,
            preload_content=False,
            decode_content=False,
        )

    def close(self) -> None:
        """Close idle connections."""
        for manager in (self._direct, *self._proxied.values()):
            close_pools(manager)

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
