"""The libraries that talk through our connections, each asked for one URL in its own way."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests
from botocore.awsrequest import AWSRequest
from urllib3 import PoolManager, ProxyManager, Timeout

from adapter.storage.wire.botocore_session import CuttableSession
from adapter.storage.wire.cutting import SOCKET_OPTIONS, close_pools, pools
from adapter.storage.wire.dialling import FREE, Guard
from adapter.storage.wire.sessions import prepared

CONNECT_SECONDS, READ_SECONDS = 3, 10


@dataclass(frozen=True)
class Asker:
    """One client, of which each call gives the answer's urllib3 response, its body unread."""

    name: str
    get: Callable[..., Any]
    pools: Callable[[], Iterator[Any]]


@dataclass(frozen=True, kw_only=True)
class Trust:
    """What a client is made with."""

    ca_file: str | None = None
    guard: Guard = FREE
    proxy: str | None = None
    connect_seconds: float = CONNECT_SECONDS
    read_seconds: float = READ_SECONDS


@contextmanager
def urllib3_asker(trust: Trust) -> Iterator[Asker]:
    context = ssl.create_default_context(cafile=trust.ca_file)
    options: dict[str, Any] = {"ssl_context": context, "socket_options": SOCKET_OPTIONS, "maxsize": 4}
    options["timeout"] = Timeout(connect=trust.connect_seconds, read=trust.read_seconds)
    if trust.proxy:
        options["proxy_ssl_context"] = context
    manager = ProxyManager(trust.proxy, **options) if trust.proxy else PoolManager(**options)
    manager.pool_classes_by_scheme = pools(trust.guard)

    def get(url: str, headers: Mapping[str, str] | None = None) -> Any:
        return manager.request(
            "GET", url, headers=dict(headers or {}), retries=False, redirect=False, preload_content=False, decode_content=False
        )

    try:
        yield Asker("urllib3", get, lambda: _pools(manager))
    finally:
        close_pools(manager)


@contextmanager
def requests_asker(trust: Trust) -> Iterator[Asker]:
    pem = Path(trust.ca_file).read_text() if trust.ca_file else None
    with requests.Session() as made:
        session = prepared(made, ca_pem=pem, verify=True, max_connections=4, guard=trust.guard)
        proxies = {"http": trust.proxy, "https": trust.proxy} if trust.proxy else None

        def get(url: str, headers: Mapping[str, str] | None = None) -> Any:
            return session.get(
                url, headers=dict(headers or {}), stream=True, timeout=(trust.connect_seconds, trust.read_seconds), proxies=proxies
            ).raw

        adapter: Any = session.get_adapter("https://")
        yield Asker(
            "requests",
            get,
            lambda: (pool for manager in (adapter.poolmanager, *adapter.proxy_manager.values()) for pool in _pools(manager)),
        )


@contextmanager
def botocore_asker(trust: Trust) -> Iterator[Asker]:
    session = CuttableSession(
        trust.guard,
        verify=trust.ca_file or True,
        timeout=(trust.connect_seconds, trust.read_seconds),
        max_pool_connections=4,
        proxies={"http": trust.proxy, "https": trust.proxy} if trust.proxy else None,
        **({"proxies_config": {"proxy_ca_bundle": trust.ca_file}} if trust.proxy and trust.ca_file else {}),
    )

    def get(url: str, headers: Mapping[str, str] | None = None) -> Any:
        return session.send(AWSRequest("GET", url, headers=dict(headers or {}), stream_output=True).prepare()).raw

    inside: Any = session
    try:
        yield Asker(
            "botocore", get, lambda: (pool for manager in (inside._manager, *inside._proxy_managers.values()) for pool in _pools(manager))
        )
    finally:
        session.close()


ASKERS = {"urllib3": urllib3_asker, "requests": requests_asker, "botocore": botocore_asker}


def idle(asker: Asker) -> int:
    """Connections in the pools that are open."""
    return sum(1 for pool in asker.pools() if pool.pool for each in pool.pool.queue if each is not None and each.sock is not None)


def _pools(manager: Any) -> Iterator[Any]:
    return (manager.pools.get(key) for key in list(manager.pools.keys()))
