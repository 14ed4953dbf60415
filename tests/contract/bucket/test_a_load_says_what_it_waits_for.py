"""What a load waits for before there is an answer: a connection, a TLS handshake; and trouble in safe words."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import time

import pytest

from adapter.waits import Waits
from tests.builders import a_spec
from tests.contract.bucket.model_rigs import make_store

SOON_SECONDS = 20
"""Several connect timeouts: making a client is slow on a busy machine."""


@contextlib.contextmanager
def silent_server(*, accepts):
    """A TCP server that says nothing; or one whose queue is full, so that connections are not even made."""
    with contextlib.ExitStack() as sockets:
        server = sockets.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0 if not accepts else 10))
        for _ in range(0 if accepts else 3):
            filler = sockets.enter_context(socket.socket())
            filler.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                filler.connect(server.getsockname())
        yield server
        if accepts:
            server.accept()[0].close()  # hangs up politely


async def words_of(waits, wanted):
    """What is waited for, once it is told."""
    until = time.monotonic() + SOON_SECONDS
    while wanted not in (waits.words() or ""):
        assert time.monotonic() < until, waits.words()
        await asyncio.sleep(0.005)
    return waits.words()


@contextlib.asynccontextmanager
async def loading(store):
    """What a load waits for that is cancelled at the end."""
    waits = Waits(time.monotonic)
    load = asyncio.create_task(store.open(a_spec("m/file", storage_key="k"), waits))
    try:
        yield waits
    finally:
        load.cancel()
        await asyncio.gather(load, return_exceptions=True)
        store.close()


CASES = [("s3", "https", True), ("s3", "http", False), ("gcs", "https", True), ("azure", "https", True), ("http", "https", True),
         ("http", "http", False)]  # fmt: skip


@pytest.mark.parametrize(("kind", "scheme", "accepts"), CASES)
async def test_who_does_not_answer_is_named(tmp_path, volume, kind, scheme, accepts):
    """Host and port, and at which step, when it was given up for the first time."""
    with contextlib.ExitStack() as server_life:
        port = server_life.enter_context(silent_server(accepts=accepts)).getsockname()[1]
        place = f"{scheme}://127.0.0.1:{port}/a"
        config = {"type": kind, "bucket": "b", "endpoint_url": place, "url": place, "anonymous": "true"}
        what = "its TLS handshake did not end within 3 s" if accepts else "no connection within 3 s"
        async with loading(make_store(tmp_path, volume, config)) as waits:
            assert re.search(rf"^waiting for .*127.0.0.1:{port}.* \(last trouble: .*: {what}\)$", await words_of(waits, what))


async def test_the_last_trouble_is_told_without_secrets(tmp_path, volume):
    """The query of a URL may be a signature."""
    config = {"type": "http", "url": "http://127.0.0.1:1/base?sig=the-secret", "headers.Authorization": "Bearer the-secret"}
    async with loading(make_store(tmp_path, volume, config)) as waits:
        words = await words_of(waits, "last trouble")
    assert "(last trouble: http://127.0.0.1:1/base cannot be reached: the connection was refused)" in words
    assert "the-secret" not in words
