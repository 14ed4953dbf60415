"""One answer and streams, from the real Triton's models: all tensors, in order, each when it is there."""

from __future__ import annotations

import time
from contextlib import aclosing

import pytest

from adapter.inference import Failure, InferenceFailed, is_final, parameters_of
from adapter.triton.inference.client import TritonInference
from tests.contract.inference.rig import all_of, numbers, of, prompt, texts, wait, words
from tests.messages import tensors_of

pytestmark = pytest.mark.real_triton


async def test_an_ordinary_model_gives_one_answer(inference: TritonInference) -> None:
    answer = await inference.infer(wait(0, id="mine"))
    assert (answer.model_name, answer.model_version, answer.id, is_final(answer)) == ("waiter", "1", "mine", True)
    assert tensors_of(answer) == [numbers("WAITED", "FP32", 0)]


async def test_an_output_may_be_named(inference: TritonInference) -> None:
    answer = await inference.infer(wait(0, outputs={"WAITED": {"classification": 1}}))
    assert words(answer, "WAITED") == ["0.000000:0"]
    with pytest.raises(InferenceFailed, match=r"^unexpected inference output 'no' for model 'waiter'$"):
        await inference.infer(wait(0, outputs={"no": {}}))


async def test_a_stream_has_an_answer_for_each_token_and_an_end(inference: TritonInference) -> None:
    *answers, last = await all_of(inference, prompt("vllm", sampling='{"max_tokens": 3}', id="mine"))
    assert [words(answer) for answer in answers] == [[" a"], [" bc"], [" a"]]
    assert [is_final(answer) for answer in answers] == [False] * 3
    assert {(answer.model_name, answer.model_version, answer.id) for answer in answers} == {("vllm", "1", "mine")}
    assert is_final(last)
    assert (last.model_name, last.id) == ("vllm", "mine")
    assert tensors_of(last) == []
    assert not any("triton" in name for answer in [*answers, last] for name in parameters_of(answer)), "what Triton tells us is ours"


async def test_a_stream_may_have_no_answer(inference: TritonInference) -> None:
    answers = await all_of(inference, of("repeat", numbers("IN", "INT32"), numbers("DELAY", "UINT32")))
    assert [(is_final(answer), tensors_of(answer)) for answer in answers] == [(True, [])]


async def test_an_ordinary_model_can_be_asked_by_a_stream(inference: TritonInference) -> None:
    (answer,) = await all_of(inference, wait(0))
    assert is_final(answer)
    assert tensors_of(answer) == [numbers("WAITED", "FP32", 0)]


async def test_each_answer_comes_when_it_is_there(inference: TritonInference) -> None:
    """Tokens are 50 ms apart: the first is there long before the last."""
    begun = time.monotonic()
    async with aclosing(inference.stream(prompt("vllm_slow", sampling='{"max_tokens": 20}'))) as answers:
        times = [time.monotonic() - begun async for _ in answers]
    assert len(times) == 21
    assert times[0] < times[-1] / 2


async def test_parameters_of_every_kind_arrive(inference: TritonInference) -> None:
    given = {"REPETITION": 2, "DELAY": 0.25, "FAIL_LAST": False, "word": "w"}
    begun = time.monotonic()
    answers = await all_of(inference, of("mock_llm", texts("PROMPT", "hello"), parameters=given))
    assert [words(answer, "TEXT") for answer in answers[:-1]] == [["hello"]] * 2
    assert time.monotonic() - begun >= 2 * 0.25, "a fraction stays one"


async def test_a_decoupled_model_says_that_it_needs_a_stream(inference: TritonInference) -> None:
    with pytest.raises(InferenceFailed, match="decoupled") as failed:
        await inference.infer(prompt("vllm"))
    assert failed.value.failure is Failure.UNSUPPORTED


async def test_a_long_tensor_goes_there_and_back(inference: TritonInference) -> None:
    """Above gRPC's own limit of 4 MiB, which Triton does not have."""
    text = "x" * 6_000_000
    (answer,) = (await all_of(inference, of("mock_llm", texts("PROMPT", text))))[:-1]
    assert words(answer, "TEXT") == [text]
