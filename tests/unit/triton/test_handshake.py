"""Whether a process greets connections, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from adapter.triton.handshake import is_answered
from tests.fakes.triton import FakeTriton
from tests.real.ports import free_ports

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def server(serve: Serve) -> AsyncIterator[str]:
    """Its target."""
    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listener:
        yield f"127.0.0.1:{listener.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize("is_socket", [False, True], ids=["port", "unix"])
async def test_a_grpc_server_that_answers_no_call_greets(tmp_path: Path, is_socket: bool) -> None:
    """And at `localhost`, which may be several addresses."""
    async with FakeTriton(tmp_path, socket=tmp_path / "t.sock" if is_socket else None) as triton:
        triton.freeze()
        assert await is_answered(triton.target, 10)
        assert await is_answered(triton.target.replace("127.0.0.1", "localhost"), 10)


async def test_one_that_says_nothing_does_not_greet() -> None:
    """As a process that is stopped; the connection is not left open."""
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.read(100):
                pass
        except ConnectionError:
            pass
        writer.close()
        ended.set()

    async with server(serve) as target:
        assert not await is_answered(target, 0.2)
        async with asyncio.timeout(10):
            await ended.wait()


@pytest.mark.parametrize("words", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00\x00"])
async def test_one_that_is_no_grpc_server_does_not_greet(words: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(words)
        writer.close()

    async with server(serve) as target:
        assert not await is_answered(target, 10)


async def test_a_closed_port_and_a_socket_that_is_not_there_do_not_greet(tmp_path: Path) -> None:
    [port] = free_ports(1)
    assert not await is_answered(f"127.0.0.1:{port}", 10)
    assert not await is_answered(f"unix:{tmp_path}/none.sock", 10)
