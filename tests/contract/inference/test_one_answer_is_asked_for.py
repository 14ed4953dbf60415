"""One answer, of whatever kind the model is; and what was known of a model may be old."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from adapter.fronts import asking
from adapter.fronts.answers import HttpError
from adapter.fronts.asking import Place, informed, known_info, one
from adapter.inference import InferenceFailed, ModelInfo
from adapter.triton.inference.client import TritonInference
from tests.contract.inference.rig import prompt, wait
from tests.fakes.v2_server import V2Server
from tests.real.triton import Triton

M = Place("m", "m")


@pytest.mark.real_triton
async def test_of_a_decoupled_one_that_gives_more(inference: TritonInference, triton: Triton) -> None:
    """The rest of the answers is not waited for."""
    mark = triton.repository / "vllm_slow" / "1" / "cancelled"
    mark.unlink(missing_ok=True)
    with pytest.raises(HttpError, match="the model gave more than one answer") as refused:
        await one(inference, prompt("vllm_slow", sampling='{"max_tokens": 2000}'))
    assert refused.value.status == 400
    async with asyncio.timeout(10):
        while not mark.exists():
            await asyncio.sleep(0.01)


class _Asking:
    """Asks with the batch size that it was told of, which the server must agree with."""

    def __init__(self, server: V2Server, client: TritonInference, failure: grpc.StatusCode = grpc.StatusCode.INVALID_ARGUMENT) -> None:
        self._server, self._client, self._failure = server, client, failure
        self.sizes: list[int] = []

    async def __call__(self, info: ModelInfo) -> Any:
        self.sizes.append(info.config.max_batch_size)
        is_right = info.config.max_batch_size == self._server.max_batch_size
        self._server.failure = None if is_right else (self._failure, "it has changed")
        try:
            return await self._client.infer(wait(0))
        finally:
            self._server.failure = None


async def test_what_is_known_is_used_again(server: V2Server, asked: TritonInference) -> None:
    ask = _Asking(server, asked)
    for _ in range(3):
        await informed(asked, M, ask)
    assert len(server.requests) == 3 + 1


async def test_what_is_known_of_a_placed_model_is_used_as_long_as_it_is_placed(
    server: V2Server, asked: TritonInference, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "KNOWN_SECONDS", 1e-9)
    first, second = Place("m", "m", placed="1"), Place("m", "m", placed="2")
    for place, asked_so_far in ((first, 1), (first, 1), (second, 2), (second, 2), (M, 3), (M, 4), (first, 5)):
        await known_info(asked, place)
        assert len(server.requests) == asked_so_far


@pytest.mark.parametrize("code", [grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNIMPLEMENTED])
async def test_a_model_that_has_changed_is_asked_again(server: V2Server, asked: TritonInference, code: grpc.StatusCode) -> None:
    ask = _Asking(server, asked, code)
    await informed(asked, M, ask)
    server.max_batch_size = 8
    await informed(asked, M, ask)
    assert ask.sizes == [0, 0, 8]


async def test_a_model_that_is_the_same_is_asked_once(server: V2Server, asked: TritonInference) -> None:
    calls = []

    async def ask(info: ModelInfo) -> None:
        calls.append(info)
        raise HttpError(400, "no such input")

    with pytest.raises(HttpError, match="no such input"):
        await informed(asked, M, ask)
    assert len(calls) == 1


async def test_a_model_that_fails_is_asked_once(server: V2Server, asked: TritonInference) -> None:
    """It may have done something."""
    ask = _Asking(server, asked, grpc.StatusCode.INTERNAL)
    await informed(asked, M, ask)
    server.max_batch_size = 8
    with pytest.raises(InferenceFailed, match="it has changed"):
        await informed(asked, M, ask)
    assert ask.sizes == [0, 0]
