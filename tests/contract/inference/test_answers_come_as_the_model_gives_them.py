"""One answer and streams, from the real Triton's models: all tensors, in order, each when it is there."""

from __future__ import annotations

import json
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


@pytest.mark.parametrize("model", ["trtllm", "trtllm_plain"])
async def test_the_imitated_ensemble(inference: TritonInference, model: str) -> None:
    request = of(
        model,
        texts("text_input", "a bc", shape=(1, 1)),
        numbers("max_tokens", "INT32", 3, shape=(1, 1)),
        texts("stop_words", "x", shape=(1, 1)),
        numbers("return_log_probs", "BOOL", True, shape=(1, 1)),
    )
    answer = (await all_of(inference, request))[0]
    assert words(answer) == ["a bc a bc a"]
    assert [tensor.shape for tensor in tensors_of(answer)] == [(1, 1), (1, 1), (1, 1, 3)]
    if model == "trtllm":
        streamed = await all_of(inference, of(model, *tensors_of(request), numbers("stream", "BOOL", True, shape=(1, 1))))
        assert [words(answer) for answer in streamed[:-1]] == [[" a"], [" bc"], [" a"]]


async def test_the_imitated_llm_api_repeats_the_text(inference: TritonInference) -> None:
    request = of(
        "llm_api",
        texts("text_input", "a bc"),
        numbers("streaming", "BOOL", True),
        numbers("sampling_param_exclude_input_from_output", "BOOL", True),
        texts("sampling_param_stop", "bc"),
        numbers("return_finish_reason", "BOOL", True),
        numbers("return_stop_reason", "BOOL", True),
    )
    *answers, _ = await all_of(inference, request)
    assert [(words(a), words(a, "finish_reason"), words(a, "stop_reason")) for a in answers] == [
        ([" a"], ["None"], ["None"]),
        ([" a"], ["stop"], ["bc"]),
    ]


async def test_the_imitated_vllm_tells_of_its_tokens(inference: TritonInference) -> None:
    wanted = [numbers(name, "BOOL", True) for name in ("return_logprobs", "return_finish_reason", "return_num_output_tokens")]
    request = prompt("vllm", "a bc d", '{"max_tokens": 9, "stop": ["d"]}')
    *answers, _ = await all_of(inference, of("vllm", *tensors_of(request), *wanted))
    assert [(words(answer), words(answer, "finish_reason")) for answer in answers] == [
        ([" a"], ["None"]),
        ([" bc"], ["None"]),
        ([""], ["stop"]),
    ]
    (text,) = words(answers[1], "logprobs")
    assert json.loads(text) == [{"102": {"logprob": -0.2, "rank": 1, "decoded_token": " bc"}}]
