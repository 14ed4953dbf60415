"""
Bodies of requests: read within a bound, decompressed, parsed, and the memory that they take at once over all fronts.

A body that lies is the caller's mistake. aiohttp would decompress while it reads, and count nothing; so both is done here, as the bytes
come. Source: RFC 9110, 8.4.1: deflate is one stream of zlib (RFC 1950).

Also the metrics of the fronts, declared when one is on. Labels hold the pattern of a route, never a path.
"""

from __future__ import annotations

import asyncio
import pickle
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

import aiohttp
from aiohttp import web
from prometheus_client import Counter, Gauge, Histogram

from adapter.fronts.children import Child, ChildEnded
from adapter.fronts.failures import UNAVAILABLE, HttpError
from adapter.telemetry.metrics import PREFIX, REGISTRY
from adapter.workers import to_its_end

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 180.0, 360.0)
SECONDS = Histogram(
    f"{PREFIX}_http_request_seconds",
    "Duration of a request of an HTTP front, to the end of its answer",
    ("front", "method", "route", "status"),
    registry=REGISTRY,
    buckets=_SECONDS,
)
IN_FLIGHT = Gauge(f"{PREFIX}_http_requests", "Requests that an HTTP front works on", ("front",), registry=REGISTRY)
CONNECTIONS = Gauge(f"{PREFIX}_http_connections", "Connections to an HTTP front", ("front",), registry=REGISTRY)
REFUSED = Counter(
    f"{PREFIX}_http_refused_total",
    "Requests that an HTTP front refused without work: too_many, memory, restricted, draining",
    ("front", "reason"),
    registry=REGISTRY,
)
TABLE = (SECONDS, IN_FLIGHT, CONNECTIONS, REFUSED)

READ_SECONDS = 60.0
"""Longest time for a client to send its body: until then it has one of HTTP_MAX_REQUESTS."""
FREE_BYTES = 256 * 1024
"""A body up to this length is not counted."""
THREAD_BYTES = 64 * 1024
"""
JSON above this length is parsed in a thread: the event loop has other requests. Above `FREE_BYTES` it is parsed in a process: no other
thread runs beside a parser.
"""
_READ = 2
"""Copies of a body at once: what has come, as it grows."""
_PASSED_ON = 3
"""Copies of tensors beside the body: the tensor, the message, and its bytes on their way to Triton."""
_HINT = "; a body below HTTP_MAX_BODY_BYTES may be too large for it, and binary data takes less than JSON"
_BITS = {"gzip": 31, "deflate": 15}
Result = TypeVar("Result")


class Budget:
    """
    Memory that bodies have now: a pod has a limit. Used in the event loop alone.

    A request takes bytes before they are read and before they are passed on, and gives all of them back when it has ended. Small bodies
    are not counted: HTTP_MAX_REQUESTS bounds them, and they go on while large ones wait. What parsing makes of a large one is bounded in
    the process that parses it.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = 0
        self.parser = Child("adapter.fronts.parser:answered", most)


class Bodies(web.BaseRequest):
    """A request whose body is read within bounds."""

    front: str
    limit: int
    """HTTP_MAX_BODY_BYTES."""
    budget: Budget
    said: bytes | bytearray = b""
    """The body, as far as it was read."""
    _taken = 0

    def take(self, size: int) -> None:
        """
        Count bytes, beside those that this request has taken.

        Raises:
            HttpError: 413: it needs more than there is for all; 503: others have it now.
        """
        mine, most = self._taken + size, self.budget.most
        if mine > most:
            raise HttpError(413, f"the body takes {mine} bytes of memory, and HTTP_BODIES_BYTES is {most}{_HINT}", {"Connection": "close"})
        if self.budget.taken + size > most:
            REFUSED.labels(self.front, "memory").inc()
            text = f"bodies of other requests take the memory that HTTP_BODIES_BYTES ({most}) gives; try again"
            raise HttpError(UNAVAILABLE, text, {"Connection": "close"})
        self.budget.taken += size
        self._taken = mine

    def _admit(self, size: int) -> None:
        """A body that has this number of bytes as far as is known. Raises HttpError: 413: above the bound; and as `take`."""
        if size > self.limit:
            raise HttpError(413, f"the body is longer than HTTP_MAX_BODY_BYTES ({self.limit} bytes)", {"Connection": "close"})
        if size > FREE_BYTES:
            self.take(max(_READ * size - self._taken, 0))

    def give_back(self) -> None:
        """All that was taken."""
        self.budget.taken -= self._taken
        self._taken = 0

    async def read_by(self, work: Callable[..., Result], *args: Any, head: int | None = None) -> Result:
        """
        What `work(*args, body)` makes of the body.

        Args:
            work: a function of a module: with much JSON it runs in another process.
            args: anything that can be pickled.
            head: bytes of JSON before the binary data; None: all of the body is JSON.

        Raises:
            HttpError: as `_body` and `take`, and from `work`; 413: it needs more memory than there is; 503: the process has ended.
        """
        body = self.said = await self._body()
        size = len(body) if head is None else head
        if size <= FREE_BYTES:
            if len(body) > FREE_BYTES:
                self.take(_PASSED_ON * len(body))
            return await off_loop_if_large(max(size, len(body) // 4), partial(work, *args, body))  # binary data is copied alone
        try:
            first, second = await self.budget.parser.call(work, args, body=body)
        except ChildEnded:
            raise HttpError(UNAVAILABLE, "the process that parses large bodies has ended; try again") from None
        self.take(_PASSED_ON * len(second))
        error, result = pickle.loads(first, buffers=[second])  # noqa: S301 - our own process
        if isinstance(error, MemoryError):
            raise HttpError(413, f"parsing the body takes more memory than HTTP_BODIES_BYTES gives{_HINT}")
        if error is not None:
            raise error
        return cast("Result", result)

    async def _body(self) -> bytearray:
        """
        The whole body, decompressed.

        Raises:
            HttpError: 415: another encoding than gzip and deflate; 400: it is not what its encoding says; 408; 413, 503: as `_admit`.
        """
        encoding = self.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding not in ("identity", *_BITS):
            raise HttpError(415, f"Content-Encoding {encoding!r} is not supported", {"Accept-Encoding": "gzip, deflate"})
        unpacking = None if encoding == "identity" else zlib.decompressobj(_BITS[encoding])
        body = bytearray()
        if unpacking is None:
            self._admit(self.content_length or 0)
        if self.headers.get("Expect", "").lower() == "100-continue":
            await self.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.writer.output_size = 0  # of the answer itself nothing is out
        try:
            async with asyncio.timeout(READ_SECONDS):
                async for chunk in self.content.iter_chunked(64 * 1024):
                    body += chunk if unpacking is None else unpacking.decompress(chunk, self.limit + 1 - len(body))
                    self._admit(len(body))
                    if unpacking is not None and unpacking.unused_data:
                        raise zlib.error("bytes come behind its end")
        except TimeoutError:
            raise HttpError(408, f"the body has not come within {READ_SECONDS:g} s", {"Connection": "close"}) from None
        except zlib.error as error:
            raise HttpError(400, f"the body is no {encoding}: {error}") from error
        except (aiohttp.ClientError, aiohttp.http_exceptions.HttpProcessingError, ValueError) as error:
            raise HttpError(400, f"the body cannot be read: {' '.join(str(error).split())[:200]}") from error
        if unpacking is not None and not unpacking.eof and body:
            raise HttpError(400, f"the body is no {encoding}: it ends early")
        return body


async def off_loop_if_large(size_bytes: int, work: Callable[[], Result]) -> Result:
    """
    Do `work` for a body of this size: in a thread, where the event loop's other requests would notice.

    A cancel goes on when the thread has ended: until then it has the memory that was taken for it.
    """
    if size_bytes <= THREAD_BYTES:
        return work()
    return await to_its_end(asyncio.get_running_loop().run_in_executor(None, work), lambda: None)
