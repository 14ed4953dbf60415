"""
The download engine: threads that each run libcurl's multi interface (`worker`).

`Engine.fetch` belongs to the event loop; the bytes of a body are taken in the engine's thread. Requests that
only ask (listings, tokens) have a thread that never writes to a disk. Requests whose addresses are checked have one with
connections of their own, since a kept connection is not checked again.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from urllib.parse import urlsplit

from adapter.errors import StartError
from adapter.storage.net.failures import DeniedAddress, Unanswered
from adapter.storage.net.messages import SMALL_BYTES, Head, Request
from adapter.storage.net.names import Names
from adapter.storage.net.transfer import Answer, Transfer, UnknownNameError
from adapter.storage.net.worker import Worker


class Engine:
    """All transfers of storage. Call `close` at the end."""

    def __init__(self, threads: int) -> None:
        """
        Args:
            threads: that take bodies and write them.

        Raises:
            StartError: the process cannot have these threads.
        """
        self._workers: list[Worker] = []
        self._names = Names()
        try:
            for name in ("net_ask", "net_guarded", *(f"net_{number}" for number in range(threads))):
                self._workers.append(Worker(name))
        except StartError:
            self.close()
            raise
        self._asker, self._guarded, *self._writers = self._workers

    async def fetch(self, request: Request, *, written_bytes: int = 0) -> Head:
        """
        Send a request, and those that come after it, and give their bodies to the sinks.

        Cancelled, it ends when nothing can reach the sink any more.

        Args:
            request: the request.
            written_bytes: that the sink writes to a disk.

        Returns:
            The head of the last answer: of the first that is neither 200 nor 206, which ends the sequence.

        Raises:
            Unanswered: no whole answer has come.
            whatever a sink raises.
        """
        pinned = await self._checked(request) if request.access.guard.denied else ""
        thread = self._thread(request, written_bytes)
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[tuple[Head, BaseException | None]] = loop.create_future()

        transfer = Transfer(request, Answer(loop, ended), pinned)
        thread.start(transfer)
        try:
            head, error = await asyncio.shield(ended)
        except asyncio.CancelledError:
            thread.cancel(transfer)
            while not ended.done():
                with suppress(asyncio.CancelledError):  # a second cancel must not leave the transfer behind
                    await asyncio.shield(ended)
            raise
        if isinstance(error, UnknownNameError):
            raise await self._names.why_unknown(urlsplit(request.access.proxy or request.url).hostname or "")
        if error is not None:
            raise error
        return head

    def close(self) -> None:
        """Take no more requests. Does not wait for those that run."""
        for thread in self._workers:
            thread.close()
        self._names.close()

    async def _checked(self, request: Request) -> str:
        """
        Look at all addresses of a guarded request's server: which of them is connected to is the server's choice, too.

        Returns:
            The server with its addresses, as libcurl takes them; empty where a proxy connects.

        Raises:
            DeniedAddress: one of them is denied.
        """
        parts, proxy = urlsplit(request.url), request.access.proxy
        host = parts.hostname or ""
        try:
            addresses = await self._names.addresses(host.rstrip("."))
        except Unanswered:
            if proxy:  # what the proxy alone knows is the proxy's to judge
                return ""
            raise
        for address in addresses:
            if not request.access.guard.allows(address):
                raise DeniedAddress(address)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return "" if proxy else f"+{host}:{port}:{','.join(addresses)}"

    def _thread(self, request: Request, written_bytes: int) -> Worker:
        if request.access.guard.denied:
            return self._guarded
        if not written_bytes:
            return self._asker
        if written_bytes <= SMALL_BYTES:  # two threads would wait for each other at Python's lock: a fifth more CPU, and no gain
            return self._writers[0]
        return min(self._writers, key=lambda thread: thread.transfers)
