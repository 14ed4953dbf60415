"""
How a call is left: Triton is to stop its work where the caller has gone, and to live on.

Triton's gRPC front has races between a cancel and whatever else it does for the same call; a lost one ends Triton, with every model.
Measured on 2.51: streams that are cancelled amid answers that come one after another kill it within some hundred calls; of thousands
that were cancelled while the model was busy with its next answer none did. Upstream has mended several of these races since (server
pull requests 7840, 8078, 8220, of 24.12 to 25.06). So a call is cancelled in a quiet moment, neither at its beginning nor beside an
answer; and a stream that has had its last answer is ended without a cancel. Of a request that it refused, Triton keeps a reference to
the model if the stream is cancelled, and the model's unload never ends: such a stream is ended the same way. The same happens, in one
of some tries on a busy machine, if the stream is cancelled while the model ends its answers: so a stream has time to end by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import grpc.aio

from adapter.triton.inference.messages import is_last
from adapter.workers import retrieve

FIRST_SECONDS = 0.02
"""After a call was left, in which it is not cancelled: Triton may still be taking it."""
STREAM_SECONDS = 0.5
"""After a stream was left, in which it is not cancelled: its request may be refused yet, or its last answer may be on its way."""
QUIET_SECONDS = 0.005
"""So long there was no answer, and none is on its way, as far as can be seen."""
LONGEST_SECONDS = 2.0
"""A stream that is never quiet, or never ends, is cancelled at last."""


def begun(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """A task of it; asyncio logs no exception of it that was not retrieved."""
    task = asyncio.create_task(work)
    task.add_done_callback(retrieve)
    return task


async def leave(call: Any, pending: asyncio.Future[Any]) -> None:
    """Cancel a unary call of grpc.aio soon; `pending` is its answer."""
    try:
        await asyncio.wait({pending}, timeout=FIRST_SECONDS)
    finally:
        call.cancel()


async def leave_stream(call: Any, pending: asyncio.Future[Any]) -> None:
    """
    Cancel a stream soon, or end it, where its last answer is there: Triton ends it when it hears that there will be no further request.

    Args:
        call: of grpc.aio.
        pending: its next message, or the last one that came.
    """
    clock = asyncio.get_running_loop().time
    earliest = clock() + STREAM_SECONDS
    try:
        async with asyncio.timeout(LONGEST_SECONDS) as bound:
            while True:
                done, _ = await asyncio.wait({pending}, timeout=max(QUIET_SECONDS, earliest - clock()))
                if not done or call.done():
                    return
                if pending.exception() is None and is_last(pending.result()):
                    break
                pending = begun(call.read())
            bound.reschedule(clock() + LONGEST_SECONDS)
            await call.done_writing()
            while await call.read() is not grpc.aio.EOF:
                pass
    finally:
        call.cancel()
