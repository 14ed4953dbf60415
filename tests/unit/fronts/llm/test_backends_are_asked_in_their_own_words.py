"""What each kind of backend is given for what a caller wishes, and which kind a model is."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.fronts.failures import HttpError
from adapter.fronts.llm.backends import profile_of
from adapter.fronts.llm.parameters import RULES, BadParameter
from adapter.inference import ModelInfo, parameters_of
from tests.real.llm_models import LLM_API_INPUTS, TRTLLM_INPUTS, VLLM_INPUTS
from tests.unit.fronts.llm.rigs import LLM_API, PLAIN, PLAIN_INPUTS, TRTLLM, VLLM, an_info, values, wishes

QUIET: dict[str, bool] = {}
ALL = {"is_stream": True, "has_details": True}
KINDS = {"vllm": VLLM, "tensorrt_llm": TRTLLM, "tensorrt_llm_api": LLM_API, "text": PLAIN}
SAMPLED = {"do_sample": True, "temperature": 0.5, "top_k": 5, "top_p": 0.25, "seed": 7, "presence_penalty": 1, "frequency_penalty": -1}


def inputs(info: ModelInfo, told: dict[str, Any] = QUIET, prompts: tuple[str, ...] = ("é",), **parameters: Any) -> dict[str, Any]:
    return values(profile_of(info).request(info, prompts, replace(wishes(**parameters), **told)))


def sampling(**parameters: Any) -> Any:
    return json.loads(inputs(VLLM, **parameters)["sampling_parameters"][0])


@pytest.mark.parametrize(("name", "info"), KINDS.items())
def test_a_model_is_known_by_its_inputs(name: str, info: ModelInfo) -> None:
    assert profile_of(info).name == name


@pytest.mark.parametrize("left_out", ["text_input", "text_output"])
def test_what_has_no_text_is_no_language_model(left_out: str) -> None:
    info = an_info(
        [("text_input" if left_out != "text_input" else "PROMPT", "TYPE_STRING", "1", False)], [("text_output", "TYPE_STRING", "1", False)]
    )
    if left_out == "text_output":
        info = an_info(PLAIN_INPUTS, [("TEXT", "TYPE_STRING", "1", False)])
    with pytest.raises(HttpError, match="'m' is no language model: it has no text_input and text_output"):
        profile_of(info)


def test_levels_of_token_details() -> None:
    assert {name: profile_of(info).level(info) for name, info in KINDS.items()} == {
        "vllm": "ids",
        "tensorrt_llm": "log_probs",
        "tensorrt_llm_api": "text",
        "text": "text",
    }
    old = an_info([entry for entry in VLLM_INPUTS if entry[0] != "return_logprobs"])
    assert profile_of(old).level(old) == "text"


def test_vllm() -> None:
    flags = {"stream": [0], "exclude_input_in_output": [1], "return_finish_reason": [1], "return_logprobs": [0]}
    counts = {"return_num_input_tokens": [1], "return_num_output_tokens": [1]}
    text = json.dumps({"max_tokens": 30, "temperature": 0})
    assert inputs(VLLM) == {"text_input": ["é"], "sampling_parameters": [text], **flags, **counts}
    asked = inputs(VLLM, ALL, max_new_tokens=3)
    assert [asked[name] for name in ("stream", "return_finish_reason", "return_logprobs")] == [[1]] * 3
    assert json.loads(asked["sampling_parameters"][0]) == {"max_tokens": 3, "temperature": 0, "logprobs": 0}
    assert sampling(**SAMPLED, stop_sequences=["a"], ignore_eos_token=True, adapter_id="l", truncate=9, min_length=2) == {
        "max_tokens": 30, "temperature": 0.5, "top_k": 5, "top_p": 0.25, "seed": 7, "presence_penalty": 1, "frequency_penalty": -1,
        "stop": ["a"], "ignore_eos": True, "lora_name": "l", "truncate_prompt_tokens": 9, "min_tokens": 2,
    }  # fmt: skip


def test_an_older_vllm_is_asked_for_what_it_has() -> None:
    old = an_info([entry for entry in VLLM_INPUTS if entry[0] in ("text_input", "stream", "sampling_parameters")])
    assert set(inputs(old, ALL)) == {"text_input", "stream", "sampling_parameters"}
    assert profile_of(old).repeats_prompt(old)
    assert not profile_of(VLLM).repeats_prompt(VLLM)


def test_the_ensemble_of_tensorrt_llm() -> None:
    flags = {"stream": [0], "exclude_input_in_output": [1], "return_log_probs": [0]}
    assert inputs(TRTLLM) == {"text_input": ["é"], "max_tokens": [30], "top_k": [1], **flags}
    assert inputs(TRTLLM, do_sample=True) == {"text_input": ["é"], "max_tokens": [30], "top_k": [5], "top_p": [0.85], **flags}
    tgi = profile_of(TRTLLM).request(TRTLLM, ["a"], wishes(True, do_sample=True))
    assert (values(tgi)["top_k"], values(tgi)["top_p"]) == ([0], [1.0])
    asked = inputs(TRTLLM, ALL, **SAMPLED, repetition_penalty=1.5, stop_sequences=["a", "b"], bad_sequences=["c"])
    assert asked == {
        "text_input": ["é"], "max_tokens": [30], "stop_words": ["a", "b"], "bad_words": ["c"], "temperature": [0.5], "top_k": [5],
        "top_p": [0.25], "repetition_penalty": [1.5], "presence_penalty": [1], "frequency_penalty": [-1], "seed": [7],
        "return_log_probs": [1], "exclude_input_in_output": [1], "stream": [1],
    }  # fmt: skip


def test_a_batch_has_a_row_for_each_prompt() -> None:
    request = profile_of(TRTLLM).request(TRTLLM, ["a", "b"], wishes(stop_sequences=["x", "y", "z"]))
    found = {tensor.name: list(tensor.shape) for tensor in request.inputs}
    assert (found["text_input"], found["max_tokens"], found["stop_words"], found["stream"]) == ([2, 1], [2, 1], [2, 3], [2, 1])
    assert values(request)["stop_words"] == ["x", "y", "z"] * 2


def test_other_versions_of_tensorrt_llm_have_other_names() -> None:
    names = {"seed": "random_seed"}
    old = an_info([(names.get(name, name), *rest) for name, *rest in TRTLLM_INPUTS], batch=4)  # type: ignore[misc]
    asked = inputs(old, do_sample=True, seed=5)
    assert (asked["random_seed"], "seed" in asked) == ([5], False)


def test_the_llm_api_of_tensorrt_llm() -> None:
    flags = {"streaming": [0], "sampling_param_exclude_input_from_output": [1], "return_finish_reason": [1], "return_stop_reason": [1]}
    assert inputs(LLM_API) == {"text_input": ["é"], "sampling_param_max_tokens": [30], "sampling_param_top_k": [1], **flags}
    asked = inputs(LLM_API, ALL, do_sample=True, temperature=0.5, top_k=5, top_p=0.25, seed=7, stop_sequences=["a"])
    assert {name.removeprefix("sampling_param_"): found for name, found in asked.items()} == {
        "text_input": ["é"], "max_tokens": [30], "stop": ["a"], "temperature": [0.5], "top_k": [5], "top_p": [0.25], "seed": [7],
        "exclude_input_from_output": [1], "streaming": [1], "return_finish_reason": [1], "return_stop_reason": [1],
    }  # fmt: skip


def test_any_other_model_has_inputs_of_that_name_or_parameters_of_the_request() -> None:
    request = profile_of(PLAIN).request(PLAIN, ["a"], wishes(**SAMPLED, stop_sequences=["x"], watermark=True))
    assert values(request) == {"text_input": ["a"]}
    assert parameters_of(request) == {
        "max_new_tokens": 30, "temperature": 0.5, "top_k": 5, "top_p": 0.25, "seed": 7, "presence_penalty": 1, "frequency_penalty": -1,
        "stop_sequences": '["x"]', "watermark": True,
    }  # fmt: skip
    rich = an_info([*PLAIN_INPUTS, ("temperature", "TYPE_FP32", "1", True), ("stream", "TYPE_BOOL", "1", True)])
    request = profile_of(rich).request(rich, ["a"], replace(wishes(do_sample=True, temperature=0.5), **ALL))
    assert (values(request), parameters_of(request)) == ({"text_input": ["a"], "temperature": [0.5], "stream": [1]}, {"max_new_tokens": 30})


LACKING = [
    ("vllm", {"n": 2}, "n"),
    *((kind, {"num_beams": 2}, "num_beams") for kind in ("vllm", "tensorrt_llm", "tensorrt_llm_api")),
    ("vllm", {"do_sample": True, "typical_p": 0.5}, "typical_p"),
    ("tensorrt_llm", {"ignore_eos_token": True}, "ignore_eos_token"),
    ("tensorrt_llm", {"grammar": {}}, "grammar"),
    ("tensorrt_llm_api", {"min_length": 2}, "min_length"),
    ("tensorrt_llm_api", {"stop_sequences": ["a", "b"]}, "stop_sequences"),
    ("text", {"n": 2}, "n"),
    ("text", {"best_of": 2}, "best_of"),
    ("text", {"num_beams": 2}, "num_beams"),
    ("text", {"decoder_input_details": True}, "decoder_input_details"),
    ("text", {"prompt_logprobs": 1}, "prompt_logprobs"),
    ("text", {"top_n_tokens": 1}, "top_n_tokens"),
    ("text", {"logprobs": 2}, "logprobs"),
    ("text", {"grammar": {"type": "json"}}, "grammar"),
]


@pytest.mark.parametrize(("kind", "parameters", "name"), LACKING)
def test_what_a_backend_does_not_have_is_named(kind: str, parameters: dict[str, Any], name: str) -> None:
    with pytest.raises(BadParameter, match=rf"^parameters\.{name}: "):
        inputs(KINDS[kind], **parameters)


def test_what_asks_for_nothing_is_refused_nowhere() -> None:
    nothing = {
        "n": 1, "best_of": 1, "num_beams": 1, "decoder_input_details": False, "prompt_logprobs": None, "top_n_tokens": 0, "logprobs": 0,
        "grammar": None,
    }  # fmt: skip
    for info in KINDS.values():
        assert inputs(info, **nothing) == inputs(info)
    assert inputs(PLAIN, prompt_logprobs=0) == inputs(PLAIN)


def test_any_other_model_may_have_inputs_for_what_no_parameter_of_a_request_promises() -> None:
    names = ("best_of", "num_beams", "seed", "n")
    kinds = [*PLAIN_INPUTS, *((name, "TYPE_UINT64", "1", True) for name in names), ("grammar", "TYPE_STRING", "1", True)]
    rich = an_info(kinds)
    asked = inputs(rich, best_of=2, num_beams=3, seed=7, do_sample=True, grammar="g")
    assert asked == {"text_input": ["é"], "best_of": [2], "num_beams": [3], "seed": [7], "grammar": ["g"]}
    with pytest.raises(BadParameter, match=r"^parameters\.n: "):
        inputs(rich, n=2)


def test_a_type_that_cannot_have_the_value() -> None:
    small = an_info([(name, "TYPE_INT8" if name == "sampling_param_max_tokens" else kind, *rest) for name, kind, *rest in LLM_API_INPUTS])  # type: ignore[misc]
    with pytest.raises(BadParameter, match=r"^parameters\.max_new_tokens: the model takes INT8, which cannot be this value"):
        inputs(small, max_new_tokens=128)
    odd = an_info([("text_input", "TYPE_FP32", "1", False)])
    with pytest.raises(HttpError):
        inputs(odd)


GIVEN = {
    **dict.fromkeys(RULES, st.integers(0, 5) | st.floats(0, 1) | st.booleans() | st.lists(st.text("ab", min_size=1), max_size=3)),
    "max_new_tokens": st.integers(1, 2**31 - 1),
    "seed": st.integers(0, 2**63 - 1),
    "temperature": st.floats(0, 3e38),
    "stop_sequences": st.lists(st.text(min_size=1), max_size=3),
}
TYPES = st.sampled_from(["TYPE_STRING", "TYPE_INT8", "TYPE_UINT64", "TYPE_FP16", "TYPE_BF16", "TYPE_BOOL", "TYPE_FP32"])


@given(st.sampled_from([*KINDS]), st.fixed_dictionaries({}, optional=GIVEN), st.booleans(), st.data())
def test_any_wish_is_a_request_or_words(kind: str, parameters: dict[str, Any], is_tgi: bool, data: st.DataObject) -> None:
    """Also of a model whose inputs have other types than those of the backend that it looks like."""
    table = {"vllm": VLLM_INPUTS, "tensorrt_llm": TRTLLM_INPUTS, "tensorrt_llm_api": LLM_API_INPUTS, "text": PLAIN_INPUTS}[kind]
    changed = data.draw(st.dictionaries(st.sampled_from([entry[0] for entry in table]), TYPES, max_size=3))
    batch = data.draw(st.sampled_from([0, 4]))
    info = an_info([(name, changed.get(name, own), *rest) for name, own, *rest in table], batch=batch)  # type: ignore[misc]
    profile = profile_of(info)
    assert profile.name == kind
    try:
        request = profile.request(info, ["a", "b"] if batch else ["a"], replace(wishes(is_tgi, **parameters), **ALL))
    except HttpError as refused:
        assert refused.status == 400
    else:
        assert "text_input" in values(request)
