"""
The header `Expect`: its client waits with the body until it is told to send it.

aiohttp would tell it so before the request is admitted, and answers what it does not know in a text of its own.
"""

from __future__ import annotations

from contextlib import suppress

from aiohttp import HttpVersion11, hdrs, web

from adapter.fronts.answers import HttpError

UNKNOWN = "no other Expect than 100-continue can be met"


async def postponed(_request: web.Request) -> None:
    """Stands in the place of aiohttp's own: `met` is for admitted requests."""


async def met(request: web.Request) -> None:
    """
    Have a client that waits send its body.

    Raises:
        HttpError: 417: it expects something else.
    """
    expected = request.headers.get(hdrs.EXPECT, "").strip().lower()
    if not expected or request.version < HttpVersion11:
        return
    if expected != "100-continue":
        raise HttpError(417, UNKNOWN)
    with suppress(ConnectionError):  # a client that has left is noticed when its body is read
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    request.writer.output_size = 0  # of the answer alone
