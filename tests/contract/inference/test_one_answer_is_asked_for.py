"""One answer, of whatever kind the model is; and what a model says of itself is kept while it is placed."""

from __future__ import annotations

import asyncio

import pytest

from adapter.fronts.answers import HttpError
from adapter.fronts.asking import Place, info_of, one
from adapter.inference import Failure, InferenceFailed
from adapter.triton.inference.client import TritonInference
from tests.contract.inference.rig import numbers, of, prompt, texts, wait, words
from tests.fakes.v2_server import V2Server
from tests.messages import tensors_of
from tests.real.triton import Triton

M = Place("m", "m")


@pytest.mark.real_triton
async def test_of_an_ordinary_model(inference: TritonInference) -> None:
    assert tensors_of(await one(inference, wait(0))) == [numbers("WAITED", "FP32", 0)]


@pytest.mark.real_triton
async def test_of_a_decoupled_one_that_gives_one(inference: TritonInference) -> None:
    answer = await one(inference, of("vllm", texts("text_input", "a"), texts("sampling_parameters", '{"max_tokens": 2}'), id="mine"))
    assert words(answer) == ["a a a"]
    assert (answer.model_name, answer.id) == ("vllm", "mine")


@pytest.mark.real_triton
async def test_of_a_decoupled_one_that_gives_none(inference: TritonInference) -> None:
    with pytest.raises(HttpError, match="the model gave no answer") as refused:
        await one(inference, of("repeat", numbers("IN", "INT32"), numbers("DELAY", "UINT32")))
    assert refused.value.status == 400


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


@pytest.mark.real_triton
async def test_a_decoupled_one_that_fails(inference: TritonInference) -> None:
    with pytest.raises(InferenceFailed, match="the imitation fails at token 2") as failed:
        await one(
            inference, of("vllm_failing", texts("text_input", "a bc"), numbers("stream", "BOOL", False), texts("sampling_parameters", "{}"))
        )
    assert failed.value.failure is Failure.INTERNAL


async def test_what_is_known_of_a_placed_model_is_used_as_long_as_it_is_placed(server: V2Server, asked: TritonInference) -> None:
    first, second = Place("m", "m", placed="1"), Place("m", "m", placed="2")
    for place, asked_so_far in ((first, 1), (first, 1), (second, 2), (second, 2), (M, 3), (M, 4)):
        await info_of(asked, place)
        assert len(server.requests) == asked_so_far
