"""Server-sent events at the socket: what sets the status, what comes as an event, and that nothing is left behind."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import aiohttp
import pytest

from adapter.fronts import streams
from adapter.fronts.v2 import generate
from adapter.inference import Failure, InferenceFailed, InferRequest, InferResponse, ModelInfo, Tensor, TensorInfo
from tests.unit.fronts.beds import Served, served

INFO = ModelInfo(
    name="m",
    versions=["1"],
    platform="",
    inputs=[TensorInfo(name="X", datatype="INT8", shape=[-1])],
    outputs=[],
    is_decoupled=True,
)
FINAL = InferResponse(model="m", version="1", id="", parameters={}, outputs=())


def an_answer(text: bytes) -> InferResponse:
    tensor = Tensor(name="T", datatype="BYTES", shape=[1], data=struct.pack("<I", len(text)) + text)
    return InferResponse(model="m", version="1", id="", parameters={}, outputs=[tensor], is_final=False)


class Speaking:
    """As `Inference`, as far as the two calls ask: a model that says what a test wants it to."""

    def __init__(self, *said: InferResponse | InferenceFailed, times: int = 1) -> None:
        self._said: Sequence[InferResponse | InferenceFailed] = said
        self._times = times
        self.ended = asyncio.Event()

    async def model_info(self, _model: str, _version: str = "", *, max_age_seconds: float = 0) -> ModelInfo:
        return INFO

    async def stream(self, _request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        try:
            for _ in range(self._times):
                for each in self._said:
                    if isinstance(each, InferenceFailed):
                        raise each
                    yield each
        finally:
            self.ended.set()


def speaking(model: Any) -> AbstractAsyncContextManager[Served]:
    return served(*generate.routes(model, "literal"))


async def ask(model: Any, path: str = "generate_stream", body: bytes = b'{"X": 1}') -> tuple[int, str, bytes]:
    async with speaking(model) as front, aiohttp.ClientSession() as client:
        headers = {"X-Request-Id": "mine"}
        async with client.post(f"http://127.0.0.1:{front.port}/v2/models/m/{path}", data=body, headers=headers) as answer:
            assert (answer.headers["X-Request-Id"], answer.headers["Server"]) == ("mine", "adapter")
            return answer.status, answer.headers["Content-Type"], await answer.read()


EVENT = b'data: {"T":"a","model_name":"m","model_version":"1"}\n\n'
BAD = InferenceFailed(Failure.INTERNAL, "it broke")


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ((an_answer(b"a"), FINAL), (200, generate.EVENTS, EVENT)),
        ((an_answer(b"a"), an_answer(b"a"), FINAL), (200, generate.EVENTS, EVENT * 2)),
        ((FINAL,), (200, generate.EVENTS, b"")),
        ((BAD,), (500, generate.EVENTS, b'data: {"error":"it broke"}\n\n')),
        ((an_answer(b"a"), BAD), (200, generate.EVENTS, EVENT + b'data: {"error":"it broke"}\n\n')),
        ((InferenceFailed(Failure.NOT_FOUND, "no such"),), (404, "application/json", b'{"error":"no such"}')),
        ((InferenceFailed(Failure.INVALID, "wrong"),), (400, "application/json", b'{"error":"wrong"}')),
    ],
)
async def test_the_first_answer_sets_the_status(said: tuple[Any, ...], expected: tuple[int, str, bytes]) -> None:
    model = Speaking(*said)
    assert await ask(model) == expected
    assert model.ended.is_set()


async def test_an_answer_that_cannot_be_written_is_an_error_of_its_place() -> None:
    status, kind, body = await ask(Speaking(an_answer(b"\xff")))
    assert (status, kind) == (400, "application/json")
    status, kind, body = await ask(Speaking(an_answer(b"a"), an_answer(b"\xff")))
    assert (status, kind) == (200, generate.EVENTS)
    assert body.startswith(EVENT + b'data: {"error":"')


async def test_a_request_that_is_wrong_asks_no_model() -> None:
    model = Speaking(FINAL)
    status, kind, _ = await ask(model, body=b'{"X": "no"}')
    assert (status, kind, model.ended.is_set()) == (400, "application/json", False)


@pytest.mark.parametrize("said", [(FINAL,), (an_answer(b"a"), an_answer(b"b"), FINAL)])
async def test_generate_needs_one_answer(said: tuple[InferResponse, ...]) -> None:
    model = Speaking(*said)
    status, kind, body = await ask(model, "generate")
    assert (status, kind) == (400, "application/json")
    assert b"generate expects model to produce exactly 1 response" in body
    assert model.ended.is_set()


async def test_a_client_that_leaves_ends_the_models_work() -> None:
    model = Speaking(an_answer(b"a" * 1000), times=10**9)
    async with speaking(model) as front:
        _, writer = await asyncio.open_connection("127.0.0.1", front.port)
        writer.write(b'POST /v2/models/m/generate_stream HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n\r\n{"X": 1}')
        await asyncio.sleep(0.1)
        writer.close()
        await asyncio.wait_for(model.ended.wait(), 20)


async def test_a_client_that_does_not_read_ends_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "WRITE_SECONDS", 0.3)
    model = Speaking(an_answer(b"a" * 1000), times=10**9)
    async with speaking(model) as front:
        _, writer = await asyncio.open_connection("127.0.0.1", front.port, limit=1024)
        writer.write(b'POST /v2/models/m/generate_stream HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n\r\n{"X": 1}')
        await asyncio.wait_for(model.ended.wait(), 30)
        writer.close()
