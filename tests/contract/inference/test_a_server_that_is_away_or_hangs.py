"""No wait without an end: a server that is away refuses at once, one that hangs is not well, one that ends fails its calls."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from adapter.inference import Failure, InferenceFailed, is_final
from adapter.serving import KnownModel
from adapter.triton.inference.client import TritonInference
from tests.contract.inference.rig import all_of, prompt, wait
from tests.fakes.v2_server import V2Server
from tests.real import install, llm_models, models, parts
from tests.real.ports import free_ports
from tests.real.triton import Triton

FAR_BELOW_ITS_TIMEOUTS = 8
"""Seconds. gRPC's own attempts to connect take 20; a connection that hangs has no end at all."""


@pytest.fixture
def triton(tmp_path: Path) -> Iterator[Triton]:
    """A test's own, with `waiter` and `vllm_slow`."""
    parts.or_skip(install.install)
    models.write(llm_models.waiter(), tmp_path / "models" / "waiter")
    models.write(llm_models.vllm(delay_seconds=0.05), tmp_path / "models" / "vllm_slow")
    with Triton(tmp_path / "models", explicit=False) as running:
        yield running


@pytest.fixture
async def nowhere() -> AsyncIterator[TritonInference]:
    client = TritonInference(f"127.0.0.1:{free_ports(1)[0]}")
    yield client
    await client.close()


async def _is_refused(inference: TritonInference) -> list[str]:
    """Texts of all ways to ask."""
    texts = []
    for asking in (
        inference.infer(wait(0)),
        all_of(inference, wait(0)),
        inference.model_info(KnownModel("waiter", "waiter")),
        inference.is_model_ready("waiter"),
        inference.server_info(),
    ):
        with pytest.raises(InferenceFailed) as failed:
            await asking
        assert failed.value.failure is Failure.UNAVAILABLE
        texts.append(failed.value.text)
    assert not await inference.is_live()
    assert not await inference.is_ready()
    return texts


async def test_no_process_listens(nowhere: TritonInference) -> None:
    async with asyncio.timeout(FAR_BELOW_ITS_TIMEOUTS):
        texts = await _is_refused(nowhere)
    assert texts[0] == "the inference server is away: Connection refused"
    assert "grpc" not in " ".join(texts).lower()


async def test_a_server_that_accepts_and_never_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = TritonInference(f"127.0.0.1:{silent.getsockname()[1]}")
        async with asyncio.timeout(FAR_BELOW_ITS_TIMEOUTS * 2):
            await _is_refused(client)
        await client.close()


@pytest.mark.real_triton
async def test_calls_end_with_triton_and_work_with_the_next(triton: Triton) -> None:
    client = TritonInference(triton.grpc_target)
    asking = [
        asyncio.create_task(client.infer(wait(60))),
        asyncio.create_task(all_of(client, prompt("vllm_slow", sampling='{"max_tokens": 999}'))),
    ]
    for model in ("waiter", "vllm_slow"):
        async with asyncio.timeout(60):
            while not (triton.repository / model / "1" / "begun").exists():
                await asyncio.sleep(0.01)
    triton.kill()
    async with asyncio.timeout(FAR_BELOW_ITS_TIMEOUTS):
        for failed in await asyncio.gather(*asking, return_exceptions=True):
            assert isinstance(failed, InferenceFailed)
            assert failed.failure is Failure.UNAVAILABLE
            assert failed.text.startswith("the connection to the inference server broke")
    triton.start()
    async with asyncio.timeout(FAR_BELOW_ITS_TIMEOUTS):
        while not await client.is_live():
            await asyncio.sleep(0.01)
    assert is_final(await client.infer(wait(0)))
    await client.close()


async def test_a_closed_client_ends_its_calls_in_words() -> None:
    async with V2Server() as server:
        server.is_held = True
        client = TritonInference(server.target)
        asking = [asyncio.create_task(client.infer(wait(0))), asyncio.create_task(all_of(client, wait(0)))]
        async with asyncio.timeout(FAR_BELOW_ITS_TIMEOUTS):
            while len(server.requests) < 2:
                await asyncio.sleep(0.01)
            await client.close()
            for failed in await asyncio.gather(*asking, return_exceptions=True):
                assert isinstance(failed, InferenceFailed), "a caller that waits was not cancelled"
                assert failed.failure is Failure.UNAVAILABLE
