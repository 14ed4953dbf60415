"""
Memory that the bodies of requests may take at once, over all fronts: a pod has a limit, and a body of JSON grows when it is parsed.

A request takes its bytes before they are read and before they are parsed, and gives all of them back when it has ended. Small bodies are
not counted: HTTP_MAX_REQUESTS bounds them, and they go on while large ones wait.
"""

from __future__ import annotations

import ctypes

from aiohttp import web

from adapter.fronts import metrics
from adapter.fronts.answers import UNAVAILABLE, HttpError

FREE_BYTES = 256 * 1024
"""A body up to this length is not counted."""
_READ = 2
"""Copies of a body at once: its chunks, and their join."""
_PASSED_ON = 3
"""Copies of binary data beside the body: the tensor, the message, and its bytes on their way to Triton."""
_ELEMENT, _ARRAY, _OBJECT, _PAIR, _QUOTE = 56, 104, 120, 120, 24
"""
Bytes of memory in Python for each; an element also has its place in the tensor, and a text has two quotes. Measured on CPython 3.11 with
orjson and numpy.
"""
_NARROW, _WIDE = 3, 6
"""
Bytes of memory for each byte of text, beside the body: what is parsed, the tensor, and the message on its way to Triton. Python has four
bytes for each letter of a text that has one from beyond Latin-1.
"""
_TAKEN = web.RequestKey("bytes_taken", int)
_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""Gives the system what glibc keeps of freed memory: beside the next bodies it would count against the pod's limit. Others have none."""


class Budget:
    """How much is taken now. Used in the event loop alone."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken = 0

    def take(self, request: web.Request, size: int) -> None:
        """
        Count bytes for a request, beside those that it has taken.

        Raises:
            HttpError: 413: it needs more than there is for all; 503 with `Retry-After`: others have it now.
        """
        mine = request.get(_TAKEN, 0) + size
        if mine > self._most:
            text = f"the body takes {mine} bytes of memory, and HTTP_BODIES_BYTES is {self._most}; binary data takes less than JSON"
            raise HttpError(413, text, {"Connection": "close"})
        if self._taken + size > self._most:
            metrics.REFUSED.labels(request.app[FRONT], "memory").inc()
            text = f"bodies of other requests take the memory that HTTP_BODIES_BYTES ({self._most}) gives; try again"
            raise HttpError(UNAVAILABLE, text, {"Retry-After": "1", "Connection": "close"})
        self._taken += size
        request[_TAKEN] = mine

    def give_back(self, request: web.Request) -> None:
        """All that a request has taken."""
        if taken := request.get(_TAKEN, 0):
            self._taken -= taken
            request[_TAKEN] = 0
            if _TRIM is not None:
                _TRIM(0)


BUDGET = web.AppKey("budget", Budget)
FRONT = web.AppKey("front", str)


def is_counted(size: int | None) -> bool:
    """Whether a body of this length is counted; None: its length is not known yet."""
    return size is None or size > FREE_BYTES


def take_for_reading(request: web.Request, size: int) -> None:
    """Raises HttpError 413, 503: as `Budget.take`."""
    request.app[BUDGET].take(request, _READ * size)


def take_for_parsing(request: web.Request, body: bytes, end: int | None = None) -> None:
    """
    Take what parsing makes of the JSON in a body, and what passing on makes of the binary data behind it.

    Args:
        request: whose body it is.
        body: all of it.
        end: bytes of JSON before the binary data; None: all of the body is JSON.

    Raises:
        HttpError: 413, 503: as `Budget.take`.
    """
    if is_counted(len(body)):
        end = len(body) if end is None else end
        request.app[BUDGET].take(request, _parsed_bytes(body, end) + _PASSED_ON * (len(body) - end))


def _parsed_bytes(body: bytes, end: int) -> int:
    is_narrow = body.isascii() and b"\\u" not in body
    texts = end * (_NARROW if is_narrow else _WIDE)
    signs = {b",": _ELEMENT, b"[": _ARRAY, b"{": _OBJECT, b":": _PAIR, b'"': _QUOTE}
    return texts + sum(each * body.count(sign, 0, end) for sign, each in signs.items())
