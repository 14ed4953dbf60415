"""
An answer that is written piece by piece, each as soon as it is there.

A client that reads nothing is waited for as long as one that sends nothing; then its connection ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from aiohttp import web

from adapter.telemetry.logs import note

WRITE_SECONDS = 60.0
"""Longest wait for a client to take a piece: until then it has one of HTTP_MAX_REQUESTS, and its generation runs."""


def stream_headers(content_type: str) -> Mapping[str, str]:
    """No proxy keeps such an answer, or waits for its end."""
    return {"Content-Type": content_type, "Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


class Stream:
    """The answer to one request. Its status is 200 from the first piece on."""

    def __init__(self, request: web.Request, content_type: str) -> None:
        self._request = request
        self.response = web.StreamResponse(headers=stream_headers(content_type))

    @property
    def has_begun(self) -> bool:
        """Whether anything is out."""
        return self.response.prepared

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
        except ConnectionError as gone:
            raise asyncio.CancelledError from gone
        except TimeoutError as slow:
            note(error=f"the client has taken nothing for {WRITE_SECONDS:g} s")
            if self._request.transport is not None:
                self._request.transport.abort()
            raise asyncio.CancelledError from slow
