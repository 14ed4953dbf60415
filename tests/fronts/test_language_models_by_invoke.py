"""Invocations of SageMaker's contract reach language models: LMI's schemas, and Triton's generate extension, by the form of the body."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from adapter.fronts.sagemaker import model_id_of
from tests.fronts.rig import Answer, FrontsPod
from tests.real.llm_models import mock_llm, vllm
from tests.real.models import affine
from tests.real.polls import until

NAME = "an opaque name"


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrontsPod]:
    with FrontsPod(tmp_path_factory.mktemp("pod")) as pod:
        assert pod.load(NAME, vllm()).status == 200
        yield pod


def invoke(pod: FrontsPod, body: Any, name: str = NAME) -> Answer:
    headers = {"Content-Type": "application/json", "X-Amzn-SageMaker-Target-Model": name, "X-Amzn-SageMaker-Custom-Attributes": "c=1"}
    answer = pod.sagemaker("POST", "/invocations", body, headers)
    assert answer.headers["x-amzn-sagemaker-custom-attributes"] == "c=1"
    return answer


def test_a_text_is_lmis_rolling_schema(loaded: FrontsPod) -> None:
    answer = invoke(loaded, {"inputs": "one two three", "parameters": {"max_new_tokens": 2, "details": True}})
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json["details"]["generated_tokens"] == len(answer.json["details"]["tokens"]) == 2
    assert "".join(token["text"] for token in answer.json["details"]["tokens"]) == answer.json["generated_text"]


def test_the_line_of_an_invoke_names_the_model(loaded: FrontsPod) -> None:
    before = len(loaded.adapter.log_text())
    assert invoke(loaded, {"inputs": "one"}).status == 200
    said = until(lambda: [line for line in loaded.adapter.log_text()[before:].splitlines() if '"route"' in line], "its line")
    line = json.loads(said[0])
    assert (line["model"], line["model_id"]) == (NAME, model_id_of(NAME))
    assert line["target"], "as the platform has sent it"


def test_the_same_name_counts_over_v2(loaded: FrontsPod) -> None:
    body = {"text_input": "one two", "exclude_input_in_output": True, "sampling_parameters": '{"max_tokens": 2}'}
    answer = loaded.v2("POST", f"/v2/models/{quote(NAME)}/generate", body)
    assert (answer.status, answer.json["model_name"]) == (200, NAME)
    assert loaded.v2("GET", f"/v2/models/{quote(NAME)}/ready").status == 200


def test_a_stream_of_lmi(loaded: FrontsPod) -> None:
    answer = invoke(loaded, {"inputs": "one two three", "parameters": {"max_new_tokens": 2}, "stream": True})
    assert (answer.status, answer.headers["content-type"]) == (200, "application/jsonlines")
    lines = [json.loads(line) for line in answer.body.splitlines()]
    assert lines[-1]["generated_text"] == "".join(line["token"]["text"] for line in lines)


def test_a_list_of_texts_is_lmis_dynamic_schema(loaded: FrontsPod) -> None:
    answer = invoke(loaded, {"inputs": ["one", "two"], "parameters": {"max_new_tokens": 1}})
    assert (answer.status, [list(entry) for entry in answer.json]) == (200, [["generated_text"]] * 2)


def test_a_prompt_of_its_own_is_generates(loaded: FrontsPod) -> None:
    body = {"text_input": "one two", "stream": False, "exclude_input_in_output": True, "sampling_parameters": '{"max_tokens": 2}'}
    answer = invoke(loaded, body)
    assert (answer.status, answer.headers["content-type"], answer.json["model_name"]) == (200, "application/json", NAME)
    stream = invoke(loaded, {**body, "stream": True})
    assert (stream.status, stream.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    events = [json.loads(event.removeprefix(b"data: ")) for event in stream.body.split(b"\n\n") if event]
    assert {event["model_name"] for event in events} == {NAME}
    assert "".join(event["text_output"] for event in events) == answer.json["text_output"]


@pytest.mark.parametrize("body", [{"inputs": []}, {"inputs": [1]}, {"inputs": 3}, {"x": 1}, [], "a"])
def test_what_is_none_of_them_is_told_as_v2(loaded: FrontsPod, body: Any) -> None:
    answer = invoke(loaded, body)
    assert (answer.status, set(answer.json)) == (400, {"error", "code", "type", "message"})


def test_bad_parameters_have_lmis_status(loaded: FrontsPod) -> None:
    answer = invoke(loaded, {"inputs": "a", "parameters": {"max_new_tokens": "many"}})
    assert (answer.status, answer.json["code"], "max_new_tokens" in answer.json["error"]) == (424, 424, True)


def test_the_platforms_variable_decides_for_all_json(tmp_path: Path) -> None:
    with FrontsPod(tmp_path, {"SAGEMAKER_TRITON_INFERENCE_TYPE": "generate_stream"}) as pod:
        assert pod.load("mock", mock_llm()).status == 200
        answer = invoke(pod, {"PROMPT": "a b", "STREAM": True, "REPETITION": 2}, "mock")
        assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
        assert answer.body.count(b"data: ") == 2
        assert pod.load("plain", affine(2, 1)).status == 200
        assert invoke(pod, {"X": 3}, "plain").status == 200
