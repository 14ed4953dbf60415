"""
Bodies of requests: read within a bound, decompressed, parsed. A body that lies is the caller's mistake.

aiohttp would decompress while it reads, and count nothing; so both is done here, as the bytes come.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import aiohttp
import orjson
from aiohttp import web

from adapter.fronts.answers import HttpError
from adapter.fronts.budget import FREE_BYTES, is_counted, take_for_parsing, take_for_reading
from adapter.fronts.unpacking import Unpacking
from adapter.workers import retrieve

ENCODINGS = ("gzip", "deflate", "identity")
MOST_LEVELS = 100
"""As Triton. Source: Triton server `http_server.cc`, nesting of JSON."""
Result = TypeVar("Result")
LARGE_BYTES = FREE_BYTES
"""A larger body is parsed in a thread: the event loop has other requests."""
_MARKS = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[\]{}]', re.DOTALL)
"""A text as a whole, or a bracket outside of one."""
READ_SECONDS = 60.0
"""Longest time for a client to send its body: until then it has one of HTTP_MAX_REQUESTS."""
_DIGITS_OF_64_BITS = 20
MAX_BODY = web.AppKey("max_body_bytes", int)


async def body_of(request: web.Request) -> bytes:
    """
    The whole body, decompressed.

    Raises:
        HttpError: 413: longer than the bound; 415: another encoding than gzip and deflate; 400: it is not what its encoding says; 408;
            413, 503: as `Budget.take`.
    """
    encoding = request.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in ENCODINGS:
        raise HttpError(415, f"Content-Encoding {encoding!r} is not supported", {"Accept-Encoding": "gzip, deflate"})
    limit, size, parts = request.app[MAX_BODY], 0, []
    if (request.content_length or 0) > limit and encoding == "identity":
        raise _too_large(limit)
    counted = 0
    if encoding == "identity" and request.content_length is not None and is_counted(request.content_length):
        counted = request.content_length
        take_for_reading(request, counted)
    unpacking = None if encoding == "identity" else Unpacking(encoding)
    try:
        async with asyncio.timeout(READ_SECONDS):
            async for chunk in request.content.iter_chunked(64 * 1024):
                part = chunk if unpacking is None else unpacking.unpacked(chunk, limit + 1 - size)
                size += len(part)
                if size > limit:
                    raise _too_large(limit)
                if size > counted and is_counted(size):
                    take_for_reading(request, size - counted)
                    counted = size
                parts.append(part)
    except TimeoutError:
        raise HttpError(408, f"the body has not come within {READ_SECONDS:g} s", {"Connection": "close"}) from None
    except zlib.error as error:
        raise HttpError(400, f"the body is no {encoding}: {error}") from error
    except (aiohttp.ClientError, aiohttp.http_exceptions.HttpProcessingError, ValueError) as error:
        raise HttpError(400, f"the body cannot be read: {' '.join(str(error).split())[:200]}") from error
    if unpacking is not None and not unpacking.is_whole and parts:
        raise HttpError(400, f"the body is no {encoding}: it ends early")
    return b"".join(parts)


async def json_of(request: web.Request) -> Any:
    """
    The body as JSON; NaN and Infinity are numbers.

    Raises:
        HttpError: as `body_of` and `take_for_parsing`, or 400: no JSON, or nested deeper than 100 levels.
    """
    text = await body_of(request)
    take_for_parsing(request, text)
    return await off_loop_if_large(len(text), partial(parsed, text))


async def off_loop_if_large(size_bytes: int, work: Callable[[], Result]) -> Result:
    """
    What is to be done with so many bytes: in a thread, where the event loop's other requests would notice.

    A cancel goes on when the thread has ended: until then it has the memory that was taken for it.
    """
    if size_bytes <= LARGE_BYTES:
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


def parsed(text: bytes, objects: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """
    A JSON text; `objects` makes its objects from their pairs, where one is to know of keys that it has twice.

    Raises:
        HttpError: 400: no JSON, or nested deeper than 100 levels.
    """
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if (b"NaN" not in text and b"Infinity" not in text) or not _is_flat(text):
            raise HttpError(400, f"the body is no JSON: {error}") from None
        value = _read_slowly(text)
    if not _is_flat(text):
        raise HttpError(400, f"the body is nested deeper than {MOST_LEVELS} levels")
    if objects is None:
        return value
    del value  # two of a large body would take twice its memory
    return _read_slowly(text, objects)


def _read_slowly(text: bytes, objects: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """NaN and infinities are numbers; all else is as orjson has it: no half of a pair in a text, no number beyond a double."""
    try:
        value = json.loads(text, parse_int=_whole, parse_float=_finite, object_pairs_hook=objects)
        orjson.dumps(value)
    except (ValueError, TypeError, RecursionError) as error:
        raise HttpError(400, f"the body is no JSON: {error}") from None
    return value


def _whole(digits: str) -> int | float:
    if len(digits) <= _DIGITS_OF_64_BITS and -(2**63) <= (number := int(digits)) < 2**64:
        return number
    return _finite(digits)


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError("number is infinity when parsed as double")
    return number


def _is_flat(text: bytes) -> bool:
    """Whether no more than 100 brackets can be open at once, as text: a parsed value would be walked through."""
    if text.count(b"[") + text.count(b"{") <= MOST_LEVELS:
        return True
    level = 0
    for found in _MARKS.finditer(text):
        mark = found[0][0]
        if mark in b"[{":
            level += 1
            if level > MOST_LEVELS:
                return False
        elif mark in b"]}":
            level -= 1
    return True


def _too_large(limit: int) -> HttpError:
    return HttpError(413, f"the body is longer than HTTP_MAX_BODY_BYTES ({limit} bytes)", {"Connection": "close"})
