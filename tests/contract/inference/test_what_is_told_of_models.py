"""What is told of models, beside what Triton's own HTTP port tells."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from typing import Any

import grpc
import pytest

from adapter.inference import InferenceFailed
from adapter.triton.inference.client import TritonInference
from tests.contract.inference.conftest import MODELS
from tests.contract.inference.rig import wait
from tests.fakes.v2_server import V2Server
from tests.real.triton import Triton


def _of_http(triton: Triton, path: str) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{triton.http_port}{path}", timeout=30) as answer:
        return json.load(answer)


@pytest.mark.real_triton
@pytest.mark.parametrize("model", MODELS)
async def test_the_config_is_tritons(inference: TritonInference, triton: Triton, model: str) -> None:
    assert json.loads(json.dumps(await inference.model_config(model))) == _of_http(triton, f"/v2/models/{model}/config")


@pytest.mark.real_triton
async def test_the_statistics_are_tritons(inference: TritonInference, triton: Triton) -> None:
    await inference.infer(wait(0))
    async with asyncio.timeout(30):  # Triton counts an inference a moment after its answer
        while await inference.model_statistics("waiter") != _of_http(triton, "/v2/models/waiter/stats"):
            await asyncio.sleep(0.05)
        while (every := await inference.model_statistics()) != _of_http(triton, "/v2/models/stats"):
            await asyncio.sleep(0.05)
    assert len(every["model_stats"]) >= len(MODELS)


async def test_an_earlier_answer_is_taken_by_whoever_allows_it(server: V2Server, asked: TritonInference) -> None:
    async def size(age_seconds: float) -> int:
        return (await asked.model_info("m", max_age_seconds=age_seconds)).config.max_batch_size

    assert await size(60) == 0
    server.max_batch_size = 8
    assert await size(60) == 0
    assert await size(0) == 8
    assert await size(60) == 8
    assert (await asked.model_info("m", "1", max_age_seconds=60)).config.max_batch_size == 8, "each version is a question of its own"
    assert len(server.requests) == 3


async def test_no_failure_is_kept(server: V2Server, asked: TritonInference) -> None:
    server.failure = (grpc.StatusCode.NOT_FOUND, "Request for unknown model: 'm' is not found")
    with pytest.raises(InferenceFailed):
        await asked.model_info("m", max_age_seconds=60)
    server.failure = None
    assert (await asked.model_info("m", max_age_seconds=60)).metadata.name == "m"
