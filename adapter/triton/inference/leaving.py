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
from time import monotonic
from typing import Any

import grpc.aio

from adapter.triton.inference.messages import is_last
from adapter.workers import retrieve

FIRST_SECONDS = 0.02
"""Of a call's life, in which it is not cancelled: Triton is still taking it."""
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


class Leaving:
    """The calls of one channel whose callers have gone. Each keeps one answer at most, for `LONGEST_SECONDS`."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    async def settled(self) -> None:
        """Returns when all are left."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Leave one: `cancel`, `cancel_stream` or `end_stream`."""
        task = asyncio.create_task(work, name="leave a call")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def cancel(call: Any, pending: asyncio.Future[Any], since: float) -> None:
    """
    Cancel a unary call soon.

    Args:
        call: of grpc.aio.
        pending: its answer.
        since: when it began, by `monotonic`.
    """
    try:
        await _is_quiet(pending, since + FIRST_SECONDS)
    finally:
        call.cancel()


async def cancel_stream(call: Any, pending: asyncio.Future[Any]) -> None:
    """The same for a stream; `pending` is its next message."""
    now = monotonic()
    earliest, end = now + STREAM_SECONDS, now + LONGEST_SECONDS
    try:
        while monotonic() < end and not await _is_quiet(pending, earliest):
            if call.done():
                return
            if pending.exception() is None and is_last(pending.result()):
                await end_stream(call)
                return
            pending = begun(call.read())
    finally:
        call.cancel()


async def _is_quiet(pending: asyncio.Future[Any], earliest: float) -> bool:
    """Whether nothing came for a while, and until `earliest`, by `monotonic`. False: it is there."""
    done, _ = await asyncio.wait({pending}, timeout=max(QUIET_SECONDS, earliest - monotonic()))
    return not done


async def end_stream(call: Any) -> None:
    """End a stream whose last answer is there: Triton ends it when it hears that there will be no further request."""
    ending = begun(_ended(call))
    try:
        await asyncio.wait({ending}, timeout=LONGEST_SECONDS)
    finally:
        call.cancel()


async def _ended(call: Any) -> None:
    await call.done_writing()
    while await call.read() is not grpc.aio.EOF:
        pass
