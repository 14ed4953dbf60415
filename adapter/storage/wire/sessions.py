"""
What the vendors' libraries talk through: a `requests` session whose calls can be cut, with a trust of its own.

Their retries and timeouts are not used: ours are.
"""

from __future__ import annotations

import os
import weakref
from typing import Any

import requests
from requests.adapters import HTTPAdapter

from adapter.storage.wire.cutting import POOLS, SOCKET_OPTIONS, close_pools
from adapter.storage.wire.network import CONNECT_TIMEOUT_SECONDS, READ_TIMEOUT_SECONDS
from adapter.storage.wire.tls import memory_file

TIMEOUT_SECONDS = (CONNECT_TIMEOUT_SECONDS, READ_TIMEOUT_SECONDS)


class CuttableAdapter(HTTPAdapter):
    """Connections that `cutting` can cut; nothing is repeated."""

    def __init__(self, max_connections: int) -> None:
        super().__init__(pool_connections=4, pool_maxsize=max_connections, max_retries=0)

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        """As requests'."""
        super().init_poolmanager(*args, socket_options=SOCKET_OPTIONS, **options)
        self.poolmanager.pool_classes_by_scheme = POOLS

    def proxy_manager_for(self, *args: Any, **options: Any) -> Any:
        """As requests'."""
        manager = super().proxy_manager_for(*args, **options)
        manager.pool_classes_by_scheme = POOLS
        return manager

    def close(self) -> None:
        """As requests'."""
        for manager in (self.poolmanager, *self.proxy_manager.values()):
            close_pools(manager)


def prepared(session: requests.Session, *, ca_pem: str | None, verify: bool, max_connections: int) -> requests.Session:
    """The session over our connections, trusting what is given instead of the usual authorities."""
    for scheme in ("http://", "https://"):
        session.mount(scheme, CuttableAdapter(max_connections))
    if not verify:
        session.verify = False
    elif ca_pem:
        bundle = memory_file(ca_pem)
        weakref.finalize(session, os.close, bundle)
        session.verify = f"/proc/self/fd/{bundle}"
    return session
