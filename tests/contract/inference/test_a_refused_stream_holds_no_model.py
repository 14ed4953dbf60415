"""Triton 2.51 never frees a model of which a refused request's stream was cancelled; so such a stream is closed."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress

import grpc.aio
import pytest

from adapter.inference import InferenceFailed
from adapter.stubs import service_pb2, service_pb2_grpc
from adapter.triton.inference.client import TritonInference
from tests.messages import Tensor, request_of
from tests.real.llm_models import mock_llm
from tests.real.models import write
from tests.real.triton import Triton

pytestmark = pytest.mark.real_triton
FREE_SECONDS = 20
WRONG = Tensor("PROMPT", "INT32", [1], bytes(4))


async def _ask(inference: TritonInference, name: str) -> None:
    async with aclosing(inference.stream(request_of(name, WRONG))) as answers:
        async for _ in answers:
            pass


@pytest.mark.parametrize("leaves_after_seconds", [None, 0.0, 0.001, 0.003])
async def test_its_unload_ends(inference: TritonInference, triton: Triton, leaves_after_seconds: float | None) -> None:

    name = f"refused-{leaves_after_seconds}"
    write(mock_llm(), triton.repository / name)
    async with grpc.aio.insecure_channel(triton.grpc_target) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        await stub.RepositoryModelLoad(service_pb2.RepositoryModelLoadRequest(model_name=name))
        for _ in range(5):
            if leaves_after_seconds is None:
                with pytest.raises(InferenceFailed, match="data-type"):
                    await _ask(inference, name)
            else:
                asking = asyncio.create_task(_ask(inference, name))
                await asyncio.sleep(leaves_after_seconds)
                asking.cancel()
                with suppress(asyncio.CancelledError, InferenceFailed):
                    await asking
        await stub.RepositoryModelUnload(service_pb2.RepositoryModelUnloadRequest(model_name=name))
        async with asyncio.timeout(FREE_SECONDS):
            while True:
                index = await stub.RepositoryIndex(service_pb2.RepositoryIndexRequest())
                if [row.state for row in index.models if row.name == name] == ["UNAVAILABLE"]:
                    break
                await asyncio.sleep(0.2)
