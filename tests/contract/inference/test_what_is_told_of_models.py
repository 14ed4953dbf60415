"""What is told of models, beside what Triton's own HTTP port tells."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Mapping
from typing import Any

import grpc
import pytest

from adapter.inference import Failure, InferenceFailed
from adapter.triton.inference.client import TritonInference
from tests.contract.inference.conftest import MODELS
from tests.contract.inference.rig import wait
from tests.fakes.v2_server import V2Server
from tests.messages import Info
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


@pytest.mark.real_triton
async def test_metadata_and_what_decides_how_a_model_is_asked(inference: TritonInference, triton: Triton) -> None:
    info = await inference.model_info("trtllm")
    told = _of_http(triton, "/v2/models/trtllm")
    assert await inference.model_metadata("trtllm") == told
    assert [(e.name, e.datatype, list(e.shape)) for e in info.metadata.inputs] == [
        (e["name"], e["datatype"], e["shape"]) for e in told["inputs"]
    ]
    assert info.is_decoupled
    assert info.config.max_batch_size == 8
    assert info.metadata.inputs[0] == Info(name="text_input", datatype="BYTES", shape=(-1, 1))
    assert {entry.name: entry.optional for entry in info.config.input}["stream"]
    assert not {entry.name: entry.optional for entry in info.config.input}["text_input"]


@pytest.mark.real_triton
async def test_of_the_server(inference: TritonInference, triton: Triton) -> None:
    info = await inference.server_info()
    told = _of_http(triton, "/v2")
    assert (info.name, info.version, list(info.extensions)) == (told["name"], told["version"], told["extensions"])


@pytest.mark.real_triton
@pytest.mark.parametrize(("model", "version"), [("nobody", ""), ("waiter", "9")])
async def test_of_what_nobody_knows(inference: TritonInference, model: str, version: str) -> None:
    assert not await inference.is_model_ready(model, version)
    for ask in (inference.model_info, inference.model_config):
        with pytest.raises(InferenceFailed, match=f"^Request for unknown model: '{model}'") as failed:
            await ask(model, version)
        assert failed.value.failure is Failure.NOT_FOUND
    with pytest.raises(InferenceFailed, match=model) as failed:
        await inference.model_statistics(model, version)
    assert failed.value.failure is Failure.INVALID, "Triton says so, too"


async def test_no_failure_is_kept(server: V2Server, asked: TritonInference) -> None:
    server.failure = (grpc.StatusCode.NOT_FOUND, "Request for unknown model: 'm' is not found")
    with pytest.raises(InferenceFailed):
        await asked.model_info("m", placed="1")
    server.failure = None
    assert (await asked.model_info("m", placed="1")).metadata.name == "m"


def test_the_kinds_of_models_are_many() -> None:
    """So that the comparison of configs compares something."""
    configs: Mapping[str, bytes] = {name: files["config.pbtxt"] for name, files in MODELS.items()}
    assert all(any(word in text for text in configs.values()) for word in (b"dynamic_batching", b"sequence_batching", b"decoupled: true"))
