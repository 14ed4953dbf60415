"""botocore's own HTTP session over connections that can be cut: it offers no way to hand in other connections."""

from __future__ import annotations

import functools
from typing import Any, cast

from botocore.awsrequest import AWSHTTPConnection, AWSHTTPConnectionPool, AWSHTTPSConnection, AWSHTTPSConnectionPool
from botocore.httpsession import URLLib3Session
from urllib3 import HTTPConnectionPool, PoolManager

from adapter.storage.wire.cutting import SOCKET_OPTIONS, CuttableConnection, close_pools, guarded_pools
from adapter.storage.wire.dialling import Guard


class _PlainConnection(CuttableConnection, AWSHTTPConnection):  # type: ignore[misc]  # its bases disagree in the stubs
    pass


class _TlsConnection(CuttableConnection, AWSHTTPSConnection):  # type: ignore[misc]  # likewise
    pass


class _Answering(HTTPConnectionPool):
    """A redirect is an answer: urllib3 would look at it before botocore does, and fails over botocore's headers."""

    def urlopen(self, *args: Any, **options: Any) -> Any:
        """As urllib3's."""
        return super().urlopen(*args, **{**options, "redirect": False})


class _PlainPool(_Answering, AWSHTTPConnectionPool):
    pass


class _TlsPool(_Answering, AWSHTTPSConnectionPool):
    pass


@functools.cache
def _pools(guard: Guard) -> dict[str, type]:
    kinds = {"http": (_PlainPool, _PlainConnection), "https": (_TlsPool, _TlsConnection)}
    return dict(guarded_pools(guard, kinds))


class CuttableSession(URLLib3Session):
    """Sends prepared requests. Its arguments are botocore's."""

    def __init__(self, guard: Guard, **arguments: Any) -> None:
        super().__init__(**{**arguments, "socket_options": SOCKET_OPTIONS})
        # the dictionary that it hands to its urllib3 managers; the bucket suite hangs if this stops working
        pools: dict[str, type] = self._pool_classes_by_scheme  # type: ignore[attr-defined]  # not in the stubs
        pools.update(_pools(guard))

    def pool_to(self, url: str) -> HTTPConnectionPool | None:
        """The connections to the server of a URL that something was sent to before; None: they lead to a proxy."""
        # what `send` itself asks; the bucket suite fails if it is gone
        if self._proxy_config.proxy_url_for(url):  # type: ignore[attr-defined]  # not in the stubs
            return None
        return cast("HTTPConnectionPool", self._manager.connection_from_url(url))  # type: ignore[attr-defined]  # likewise

    def close(self) -> None:
        """As botocore's."""
        managers: tuple[PoolManager, ...] = (self._manager, *self._proxy_managers.values())  # type: ignore[attr-defined]  # likewise
        for manager in managers:
            close_pools(manager)
