"""botocore's own HTTP session over connections that can be cut: it offers no way to hand in other connections."""

from __future__ import annotations

from typing import Any

from botocore.awsrequest import AWSHTTPConnection, AWSHTTPConnectionPool, AWSHTTPSConnection, AWSHTTPSConnectionPool
from botocore.httpsession import URLLib3Session
from urllib3 import PoolManager

from adapter.storage.wire.cutting import SOCKET_OPTIONS, CuttableConnection, close_pools


class _PlainConnection(CuttableConnection, AWSHTTPConnection):  # type: ignore[misc]  # its bases disagree in the stubs
    pass


class _TlsConnection(CuttableConnection, AWSHTTPSConnection):  # type: ignore[misc]  # likewise
    pass


class _PlainPool(AWSHTTPConnectionPool):
    ConnectionCls = _PlainConnection


class _TlsPool(AWSHTTPSConnectionPool):
    ConnectionCls = _TlsConnection


class CuttableSession(URLLib3Session):
    """Sends prepared requests. Its arguments are botocore's."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**{**arguments, "socket_options": SOCKET_OPTIONS})
        # the dictionary that it hands to its urllib3 managers; the bucket suite hangs if this stops working
        pools: dict[str, type] = self._pool_classes_by_scheme  # type: ignore[attr-defined]  # not in the stubs
        pools.update(http=_PlainPool, https=_TlsPool)

    def close(self) -> None:
        """As botocore's."""
        managers: tuple[PoolManager, ...] = (self._manager, *self._proxy_managers.values())  # type: ignore[attr-defined]  # likewise
        for manager in managers:
            close_pools(manager)
