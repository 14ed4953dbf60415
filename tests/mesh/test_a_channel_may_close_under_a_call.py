"""A ModelMesh that dies closes its channels, whatever is under way on them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.mesh.runtime import CallError, GrpcRuntime


@asynccontextmanager
async def asked() -> AsyncIterator[tuple[GrpcRuntime, asyncio.Task[dict[str, str]]]]:
    """A call to a server that has accepted its connection, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        target = f"127.0.0.1:{silent.getsockname()[1]}"
        async with GrpcRuntime(target, target) as runtime:
            call = asyncio.create_task(runtime.index())
            with (await asyncio.to_thread(silent.accept))[0]:
                yield runtime, call


async def test_a_call_whose_channel_is_closed_has_failed() -> None:
    """It was not cancelled by whoever waits for it, and so does not end that one."""
    async with asked() as (runtime, call):
        await runtime.reconnect()
        with pytest.raises(CallError, match="the channel was closed under the call"):
            await call


async def test_who_waits_may_be_cancelled() -> None:
    async with asked() as (_, call):
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
