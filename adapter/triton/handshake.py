"""
Whether Triton's process runs at all, while the one thread that answers calls is busy with a listing.

gRPC's own threads greet a new connection; a process that is stopped accepts it (the kernel does) and says nothing.

Source: RFC 9113, section 3.4: the server's first frame on a connection is SETTINGS, whatever its calls wait for.
"""

from __future__ import annotations

import asyncio

FRAME_HEAD_BYTES = 9
SETTINGS = 4
"""Type of the frame, the fourth byte of its head."""
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, SETTINGS, 0, 0, 0, 0, 0])
"""A client's preface, with no settings."""

_UNIX = "unix:"


async def is_answered(target: str, seconds: float) -> bool:
    """
    Whether a gRPC server greets a connection of its own within the time. Never raises.

    Args:
        target: `host:port` or `unix:/path`.
        seconds: for name, connection and greeting together.
    """
    writer = None
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await _connected(target)
            writer.write(GREETING)
            head = await reader.readexactly(FRAME_HEAD_BYTES)
    except (OSError, EOFError):  # TimeoutError is one
        return False
    finally:
        if writer is not None:
            writer.transport.abort()
    return head[3] == SETTINGS


async def _connected(target: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if target.startswith(_UNIX):
        return await asyncio.open_unix_connection(target.removeprefix(_UNIX))
    host, _, port = target.rpartition(":")
    return await asyncio.open_connection(host.removeprefix("[").removesuffix("]"), int(port))
