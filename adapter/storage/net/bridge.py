"""Requests of a vendor's library, which blocks in a thread of ours, over the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from adapter.storage.net.access import Access, Trust, proxy_for
from adapter.storage.net.engine import Engine
from adapter.storage.net.guard import FREE, Guard
from adapter.storage.net.messages import Collected, Head, Request
from adapter.workers import Stop


class Bridge:
    """Made on the event loop, used in threads."""

    def __init__(self, engine: Engine, trust: Trust, guard: Guard = FREE, *, most_bytes: int, asks: Callable[[str], None]) -> None:
        """
        Args:
            engine: sends the requests.
            trust: of the connections.
            guard: of addresses.
            most_bytes: of the body of an answer.
            asks: told host and port before each request.
        """
        self._loop = asyncio.get_running_loop()
        self._engine = engine
        self._trust = trust
        self._guard = guard
        self._most_bytes = most_bytes
        self._asks = asks

    def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, stop: Stop, *, uses_proxies: bool = True
    ) -> tuple[Head, bytes]:
        """
        The whole answer. Blocks, until the stop.

        Raises:
            Unanswered: none has come.
            Stopped: it is not wanted any more.
        """
        self._asks(urlsplit(url).netloc)
        page = Collected()
        access = Access(self._trust, self._guard, proxy_for(url) if uses_proxies else "")
        given = {"Accept-Encoding": "identity", **headers}
        request = Request(url, given, page, access, self._most_bytes, method, body)
        future = asyncio.run_coroutine_threadsafe(self._engine.fetch(request), self._loop)

        def end() -> None:
            future.cancel()

        with stop.waking(end):
            try:
                head = future.result()
            except asyncio.CancelledError:
                stop.check()
                raise
        return head, page.content or head.error
