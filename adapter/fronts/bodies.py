"""
Bodies of requests: read within a bound, decompressed, parsed, and the memory that they take at once over all fronts.

A body that lies is the caller's mistake. aiohttp would decompress while it reads, and count nothing; so both is done here, as the bytes
come. Source: RFC 9110, 8.4.1: deflate is one stream of zlib (RFC 1950).

Also the metrics of the fronts, declared when one is on. Labels hold the pattern of a route, never a path.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import aiohttp
import msgspec
import orjson
from aiohttp import web
from prometheus_client import Counter, Gauge, Histogram

from adapter.fronts.answers import UNAVAILABLE, HttpError
from adapter.telemetry.metrics import PREFIX, REGISTRY
from adapter.workers import retrieve

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
"""A body above this length is parsed in a thread: the event loop has other requests."""
_READ = 2
"""Copies of a body at once: its chunks, and their join."""
_PASSED_ON = 3
"""Copies of binary data beside the body: the tensor, the message, and its bytes on their way to Triton."""
_SIGNS = {b",": 56, b"[": 104, b"{": 120, b":": 120, b'"': 24}
"""
Bytes of memory in Python for an element, an array, an object, a pair and a quote; an element also has its place in the tensor, and a text
has two quotes. Measured on CPython 3.11 with orjson and numpy.
"""
_NARROW, _WIDE = 3, 6
"""
Bytes of memory for each byte of text, beside the body: what is parsed, the tensor, and the message on its way to Triton. Python has four
bytes for each letter of a text that has one from beyond Latin-1.
"""
_BITS = {"gzip": 31, "deflate": 15}
_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""Gives the system what glibc keeps of freed memory: beside the next bodies it would count against the pod's limit. Others have none."""
Result = TypeVar("Result")


class Budget:
    """
    Memory that bodies have now: a pod has a limit, and a body of JSON grows when it is parsed. Used in the event loop alone.

    A request takes its bytes before they are read and before they are parsed, and gives all of them back when it has ended. Small bodies
    are not counted: HTTP_MAX_REQUESTS bounds them, and they go on while large ones wait.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = 0


class Bodies(web.BaseRequest):
    """A request whose body is read within bounds."""

    def __init__(self, front: str, max_body_bytes: int, budget: Budget, *parts: Any) -> None:
        super().__init__(*parts, loop=asyncio.get_running_loop())  # type: ignore[misc]
        self.front = front
        self._limit = max_body_bytes
        self._budget = budget
        self._taken = 0

    def take(self, size: int) -> None:
        """
        Count bytes, beside those that this request has taken.

        Raises:
            HttpError: 413: it needs more than there is for all; 503: others have it now.
        """
        mine, most = self._taken + size, self._budget.most
        if mine > most:
            text = f"the body takes {mine} bytes of memory, and HTTP_BODIES_BYTES is {most}; binary data takes less than JSON"
            raise HttpError(413, text, {"Connection": "close"})
        if self._budget.taken + size > most:
            REFUSED.labels(self.front, "memory").inc()
            text = f"bodies of other requests take the memory that HTTP_BODIES_BYTES ({most}) gives; try again"
            raise HttpError(UNAVAILABLE, text, {"Connection": "close"})
        self._budget.taken += size
        self._taken = mine

    def give_back(self) -> None:
        """All that was taken."""
        if self._taken:
            self._budget.taken -= self._taken
            self._taken = 0
            if _TRIM is not None:
                _TRIM(0)

    def take_for_parsing(self, body: bytes, end: int | None = None) -> None:
        """
        Take what parsing makes of the JSON in a body, and what passing on makes of the binary data behind it.

        Args:
            body: all of it.
            end: bytes of JSON before the binary data; None: all of the body is JSON.

        Raises:
            HttpError: 413, 503: as `take`.
        """
        if is_counted(len(body)):
            end = len(body) if end is None else end
            self.take(_parsed_bytes(body, end) + _PASSED_ON * (len(body) - end))

    async def body(self) -> bytes:
        """
        The whole body, decompressed.

        Raises:
            HttpError: 413: longer than the bound; 415: another encoding than gzip and deflate; 400: it is not what its encoding says; 408;
                413, 503: as `take`.
        """
        encoding = self.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding not in ("identity", *_BITS):
            raise HttpError(415, f"Content-Encoding {encoding!r} is not supported", {"Accept-Encoding": "gzip, deflate"})
        unpacking = None if encoding == "identity" else zlib.decompressobj(_BITS[encoding])
        size, counted, parts = 0, 0, []
        told = (self.content_length or 0) if unpacking is None else 0
        if told > self._limit:
            raise _too_large(self._limit)
        if is_counted(told):
            counted = told
            self.take(_READ * counted)
        if self.headers.get("Expect", "").lower() == "100-continue":
            await self.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.writer.output_size = 0  # of the answer itself nothing is out
        try:
            async with asyncio.timeout(READ_SECONDS):
                async for chunk in self.content.iter_chunked(64 * 1024):
                    part = chunk if unpacking is None else unpacking.decompress(chunk, self._limit + 1 - size)
                    size += len(part)
                    if size > self._limit:
                        raise _too_large(self._limit)
                    if unpacking is not None and unpacking.unused_data:
                        raise zlib.error("bytes come behind its end")
                    if size > counted and is_counted(size):
                        self.take(_READ * (size - counted))
                        counted = size
                    parts.append(part)
        except TimeoutError:
            raise HttpError(408, f"the body has not come within {READ_SECONDS:g} s", {"Connection": "close"}) from None
        except zlib.error as error:
            raise HttpError(400, f"the body is no {encoding}: {error}") from error
        except (aiohttp.ClientError, aiohttp.http_exceptions.HttpProcessingError, ValueError) as error:
            raise HttpError(400, f"the body cannot be read: {' '.join(str(error).split())[:200]}") from error
        if unpacking is not None and not unpacking.eof and parts:
            raise HttpError(400, f"the body is no {encoding}: it ends early")
        return b"".join(parts)

    async def read_by(self, read: Callable[[bytes], Result]) -> Result:
        """
        What `read` makes of the body, which is JSON.

        Raises:
            HttpError: as `body` and `take_for_parsing`, and from `read`.
        """
        body = await self.body()
        self.take_for_parsing(body)
        return await off_loop_if_large(len(body), partial(read, body))


def is_counted(size: int | None) -> bool:
    """Whether a body of this length is counted; None: its length is not known yet."""
    return size is None or size > FREE_BYTES


def _parsed_bytes(body: bytes, end: int) -> int:
    is_narrow = body.isascii() and b"\\u" not in body
    return end * (_NARROW if is_narrow else _WIDE) + sum(each * body.count(sign, 0, end) for sign, each in _SIGNS.items())


def _too_large(limit: int) -> HttpError:
    return HttpError(413, f"the body is longer than HTTP_MAX_BODY_BYTES ({limit} bytes)", {"Connection": "close"})


async def off_loop_if_large(size_bytes: int, work: Callable[[], Result]) -> Result:
    """
    What is to be done with so many bytes: in a thread, where the event loop's other requests would notice.

    A cancel goes on when the thread has ended: until then it has the memory that was taken for it.
    """
    if size_bytes <= THREAD_BYTES:
        return work()
    running = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([running])
        retrieve(running)
        raise


def parsed(text: bytes) -> Any:
    """
    A JSON text; NaN and infinities may stand in it, as Triton writes them.

    Raises:
        HttpError: 400: no JSON, or nested deeper than 1,024 levels.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if b"NaN" not in text and b"Infinity" not in text:
            raise HttpError(400, f"the body is no JSON: {error}") from None
    try:
        value = json.loads(text.decode())
        orjson.dumps(value)  # all is as orjson reads it: no half of a pair in a text, no whole number beyond 64 bits
    except (ValueError, TypeError, RecursionError) as error:
        raise HttpError(400, f"the body is no JSON: {error}") from None
    return value


def structured(kind: type[Result], body: bytes) -> Result:
    """A body of JSON as this struct; no body is an empty object. Raises HttpError: 400."""
    try:
        return msgspec.json.decode(body.strip() or b"{}", type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise HttpError(400, f"the body is no such request: {error}") from None
