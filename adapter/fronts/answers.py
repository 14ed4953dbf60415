"""
Answers of HTTP: exact content types, JSON bytes, streams.

Clients compare content types as text, so JSON has no charset. Source: tests of DJL Serving (`response_checker`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import orjson
from aiohttp import web

from adapter.telemetry.logs import note

JSON, BINARY = "application/json", "application/octet-stream"
COMPRESSED_FROM_BYTES = 1024
WRITE_SECONDS = 60.0
"""Longest wait for a client to take a piece of a stream: until then it has one of HTTP_MAX_REQUESTS, and its generation runs."""


def json_answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """A JSON body, with exactly `application/json`."""
    return bytes_answer(orjson.dumps(value), JSON, status, headers)


def bytes_answer(body: bytes, content_type: str, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """A body with exactly this content type."""
    return web.Response(body=body, status=status, headers={**(headers or {}), "Content-Type": content_type})


def compressed(answer: web.Response) -> web.Response:
    """The answer, deflate or gzip if its client takes that and it is long enough to gain."""
    if isinstance(answer.body, bytes) and len(answer.body) >= COMPRESSED_FROM_BYTES:
        answer.enable_compression()
    return answer


def event(value: Any) -> bytes:
    """One server-sent event."""
    return b"data: " + orjson.dumps(value) + b"\n\n"


class Stream:
    """
    An answer that is written piece by piece, each as soon as it is there. Its status is 200 from the first piece on.

    A client that reads nothing is waited for as long as one that sends nothing; then its connection ends. No proxy keeps such an answer,
    or waits for its end.
    """

    def __init__(self, request: web.BaseRequest, content_type: str) -> None:
        self._request = request
        headers = {"Content-Type": content_type, "Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        self.response = web.StreamResponse(headers=headers)

    async def write(self, piece: bytes) -> None:
        """
        Send a piece; the first one sends status and headers, too.

        Raises:
            CancelledError: the client has gone, or takes nothing: as aiohttp says it to a handler that writes nothing.
        """
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                if not self.response.prepared:
                    await self.response.prepare(self._request)
                await self.response.write(piece)
        except (ConnectionError, TimeoutError) as gone:
            note(error=str(gone) or f"the client has taken nothing for {WRITE_SECONDS:g} s")
            if self._request.transport is not None:
                self._request.transport.abort()
            raise asyncio.CancelledError from gone
