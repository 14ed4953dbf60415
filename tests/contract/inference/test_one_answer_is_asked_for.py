"""One answer, of whatever kind the model is; and what a model says of itself is kept while it is placed."""

from __future__ import annotations

import pytest

from adapter.inference import Failure, InferenceFailed
from adapter.serving import KnownModel
from adapter.triton.inference.client import TritonInference
from tests.contract.inference.rig import numbers, of, texts
from tests.fakes.v2_server import V2Server

M = KnownModel("m", "m")


@pytest.mark.real_triton
async def test_a_decoupled_one_that_fails(inference: TritonInference) -> None:
    with pytest.raises(InferenceFailed, match="the imitation fails at token 2") as failed:
        await inference.one(
            of("vllm_failing", texts("text_input", "a bc"), numbers("stream", "BOOL", False), texts("sampling_parameters", "{}"))
        )
    assert failed.value.failure is Failure.INTERNAL


async def test_what_is_known_of_a_placed_model_is_used_as_long_as_it_is_placed(server: V2Server, asked: TritonInference) -> None:
    first, second = KnownModel("m", "m", placed="1"), KnownModel("m", "m", placed="2")
    for model, asked_so_far in ((first, 1), (first, 1), (second, 2), (second, 2), (M, 3), (M, 4)):
        await asked.model_info(model)
        assert len(server.requests) == asked_so_far
