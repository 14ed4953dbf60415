"""
The download engine: threads that each run libcurl's multi interface (`worker`).

`Engine.fetch` belongs to the event loop; the bytes of a body are taken in the engine's thread. Requests that
only ask (listings, tokens) have a thread that never writes to a disk. A `Bridge` is for libraries that block.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from urllib.parse import urlsplit

from adapter.errors import StartError
from adapter.storage.net.failures import CONNECT_SECONDS, NAMES_AWAY, UNRESOLVED, DeniedAddress, Unanswered, UnknownName
from adapter.storage.net.messages import FREE, SMALL_BYTES, TOKEN_BYTES, Access, Collected, Guard, Head, Request, Trust, proxy_for
from adapter.storage.net.transfer import Transfer
from adapter.storage.net.worker import Worker
from adapter.workers import Stop, Workers

NAME_THREADS = 8
"""The operating system's resolver blocks for as long as its name servers are silent, 5 to 30 s, and nothing wakes it."""


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
        self._names = Workers("name", NAME_THREADS)
        try:
            for name in ("net_ask", *(f"net_{number}" for number in range(threads))):
                self._workers.append(Worker(name))
        except StartError:
            self.close()
            raise
        self._asker, *self._writers = self._workers

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
        transfer = Transfer(request, await self._checked(request) if request.access.guard.denied else ())
        try:
            return await self._worker(written_bytes).sent(transfer)
        except UnknownName as unknown:
            await self._addresses(urlsplit(request.access.proxy or request.url).hostname or "")  # raises the reason
            raise unknown from None

    def close(self) -> None:
        """Take no more requests. Does not wait for those that run."""
        for worker in self._workers:
            worker.close()
        self._names.close()

    async def _checked(self, request: Request) -> tuple[str, ...]:
        """
        Look at all addresses of a guarded request's server: which of them is connected to is the server's choice, too.

        Returns:
            The addresses; none where a proxy connects.

        Raises:
            DeniedAddress: one of them is denied.
        """
        proxy = request.access.proxy
        try:
            addresses = await self._addresses((urlsplit(request.url).hostname or "").rstrip("."))
        except Unanswered:
            if proxy:  # what the proxy alone knows is the proxy's to judge
                return ()
            raise
        for address in addresses:
            if not request.access.guard.allows(address):
                raise DeniedAddress(address)
        return () if proxy else addresses

    async def _addresses(self, host: str) -> tuple[str, ...]:
        """
        All addresses of a name, as numbers. Numbers in any notation are names as well.

        A thread whose caller has given up is left behind.

        Raises:
            Unanswered: there is none, or name servers do not tell.
        """
        asked = self._names.executor.submit(socket.getaddrinfo, host.strip("[]"), None, type=socket.SOCK_STREAM)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                found = await asyncio.wrap_future(asked)
        except TimeoutError:
            raise Unanswered(UNRESOLVED) from None
        except socket.gaierror as error:
            if error.errno == socket.EAI_NONAME:
                raise Unanswered("its name cannot be resolved (there is no such name)", can_pass=False) from error
            raise Unanswered(NAMES_AWAY if error.errno == socket.EAI_AGAIN else "its name cannot be resolved") from error
        except (UnicodeError, OSError) as error:
            raise Unanswered("its name is not a host name", can_pass=False) from error
        return tuple(dict.fromkeys(str(place[0]) for *_, place in found))

    def _worker(self, written_bytes: int) -> Worker:
        if not written_bytes:
            return self._asker
        if written_bytes <= SMALL_BYTES:  # two threads would wait for each other at Python's lock: a fifth more CPU, and no gain
            return self._writers[0]
        return min(self._writers, key=lambda worker: worker.transfers)


@dataclass
class Bridge:
    """Requests of a vendor's library, which blocks in a thread of ours. Made on the event loop, used in threads."""

    engine: Engine
    trust: Trust
    guard: Guard = FREE
    _: KW_ONLY
    asks: Callable[[str], None]
    """Told host and port before each request."""
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)

    def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, stop: Stop, *, uses_proxies: bool = True
    ) -> tuple[Head, bytes]:
        """
        The whole answer. Blocks, until the stop.

        Raises:
            Unanswered: none has come.
            CancelledError: it is not wanted any more.
        """
        self.asks(urlsplit(url).netloc)
        page = Collected()
        access = Access(self.trust, self.guard, proxy_for(url) if uses_proxies else "")
        request = Request(url, {"Accept-Encoding": "identity", **headers}, page, access, TOKEN_BYTES, method, body)
        asked = asyncio.run_coroutine_threadsafe(self.engine.fetch(request), self.loop)
        with stop.waking(asked.cancel):
            head = asked.result()
        return head, page.content or head.error
