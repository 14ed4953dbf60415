"""LMI's schemas on the real Triton, with models that imitate the interfaces of vLLM and TensorRT-LLM."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.fronts.bed import Answer, Pod
from tests.real.llm_models import llm_api, mock_llm, trtllm, vllm
from tests.real.models import Files, affine, write
from tests.real.polls import until

JSON, LINES, SSE = "application/json", "application/jsonlines", "text/event-stream"
PROMPT = "one three five"
TEXT = " one three"
"""What two tokens of the answer are: the imitations repeat the prompt."""
TOKENS = [{"id": 103, "text": " one", "log_prob": -0.3}, {"id": 105, "text": " three", "log_prob": -0.5}]


def with_options(files: Files, options: str) -> Files:
    return {**files, "serving.properties": options.encode()}


MODELS: Mapping[str, Files] = {
    "vllm": vllm(),
    "trtllm": trtllm(),
    "trtllm-whole": trtllm(is_decoupled=False),
    "api": llm_api(),
    "fails": vllm(fail_at=1),
    "fails-at-once": vllm(fail_at=0),
    "tgi": with_options(vllm(), "# of DJL\nengine=Python\noption.tgi_compat = true\n"),
    "streams": with_options(vllm(), "option.enable_streaming=true\n"),
    "sse": with_options(vllm(), "option.output_formatter=sse\n"),
    "dynamic": with_options(vllm(), "option.rolling_batch=disable\n"),
    "strict": with_options(trtllm(), "option.details=strict\n"),
    "confused": with_options(vllm(), "option.tgi_compat=perhaps\n"),
    "affine": affine(2, 1),
    "mock": mock_llm(),
}


@pytest.fixture(scope="module")
def pod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    with Pod(tmp_path_factory.mktemp("pod"), {"LMI_MODEL": "vllm"}) as pod:
        for name, files in MODELS.items():
            answer = pod.load(name, files)
            assert answer.status == 200, answer.body
        yield pod


def ask(pod: Pod, model: str, inputs: Any = PROMPT, *, stream: bool | None = None, **parameters: Any) -> Answer:
    body: dict[str, Any] = {"inputs": inputs, "parameters": {"max_new_tokens": 2, **parameters}}
    return pod.llm("POST", f"/predictions/{model}", body if stream is None else {**body, "stream": stream})


def told(answer: Answer, kind: str = JSON) -> Any:
    assert (answer.status, answer.headers["content-type"]) == (200, kind), answer.body
    if kind == JSON:
        return answer.json
    parts = answer.body.splitlines() if kind == LINES else [part.removeprefix(b"data: ") for part in answer.body.split(b"\n\n")[:-1]]
    return [json.loads(part) for part in parts]


@pytest.mark.parametrize("model", ["vllm", "trtllm", "trtllm-whole", "api"])
def test_a_prompt_has_one_text(pod: Pod, model: str) -> None:
    assert told(ask(pod, model)) == {"generated_text": TEXT}
    assert told(ask(pod, model, return_full_text=True)) == {"generated_text": PROMPT + TEXT}


@pytest.mark.parametrize(
    ("model", "tokens", "count", "reason"),
    [
        ("vllm", TOKENS, 2, "length"),
        ("trtllm", [{**token, "id": None} for token in TOKENS], 2, "length"),
        ("trtllm-whole", None, 2, "length"),
        ("api", [{"id": None, "text": token["text"], "log_prob": None} for token in TOKENS], None, "length"),
    ],
)
def test_details_are_what_the_backend_tells(pod: Pod, model: str, tokens: Any, count: int | None, reason: str) -> None:
    answer = ask(pod, model, details=True)
    details = told(answer)["details"]
    assert (details["finish_reason"], details["generated_tokens"], details["inputs"]) == (reason, count, PROMPT)
    if tokens is not None:
        approximate = [{**token, "log_prob": token["log_prob"] and pytest.approx(token["log_prob"], abs=1e-6)} for token in tokens]
        assert details["tokens"] == approximate
    known = {"vllm": ("3", "2"), "trtllm": (None, "2"), "trtllm-whole": (None, "2"), "api": (None, None)}[model]
    assert (answer.headers.get("x-prompt-tokens"), answer.headers.get("x-generated-tokens")) == known


@pytest.mark.parametrize(
    ("stops", "limit", "model", "reason"),
    [
        (["five"], 9, "vllm", "stop_sequence"),
        (["five"], 9, "trtllm", None),
        ([], 2, "trtllm", "length"),
        (["five"], 9, "api", "stop_sequence"),
        (["never"], 2, "vllm", "length"),
    ],
)
def test_why_it_ended(pod: Pod, stops: list[str], limit: int, model: str, reason: str | None) -> None:
    details = told(ask(pod, model, PROMPT, max_new_tokens=limit, stop_sequences=stops, details=True))["details"]
    assert details["finish_reason"] == reason


@pytest.mark.parametrize("model", ["vllm", "trtllm", "api"])
def test_a_stream_has_a_line_for_each_token(pod: Pod, model: str) -> None:
    lines = told(ask(pod, model, stream=True, details=True), LINES)
    assert [line["token"]["text"] for line in lines if line["token"]["text"]] == [" one", " three"]
    assert ["generated_text" in line for line in lines] == [False] * (len(lines) - 1) + [True]
    assert (lines[-1]["generated_text"], lines[-1]["details"]["finish_reason"]) == (TEXT, "length")
    assert "details" not in told(ask(pod, model, stream=True), LINES)[-1]
    whole = told(ask(pod, model, details=True))["details"]
    assert {key: value for key, value in whole.items() if key != "tokens"} == lines[-1]["details"]


def test_lists_have_the_dynamic_schema(pod: Pod) -> None:
    prompts = ["a b", "c d", "e f"]
    for model in ("vllm", "trtllm-whole"):
        assert told(ask(pod, model, prompts)) == [{"generated_text": f" {prompt}"} for prompt in prompts]
    assert told(ask(pod, "dynamic", "a b")) == [{"generated_text": " a b"}]
    steps = told(ask(pod, "vllm", prompts, stream=True), LINES)
    assert all(len(step["outputs"]) == 3 for step in steps)
    assert ["".join(texts) for texts in zip(*(step["outputs"] for step in steps), strict=True)] == [" a b", " c d", " e f"]


def test_options_of_a_model_beat_the_settings(pod: Pod) -> None:
    assert told(ask(pod, "tgi")) == [{"generated_text": TEXT}]
    assert [line["token"]["text"] for line in told(ask(pod, "streams"), LINES)] == [" one", " three"]
    assert told(ask(pod, "streams", stream=False)) == {"generated_text": TEXT}
    assert [line["token"]["text"] for line in told(ask(pod, "sse"), SSE)] == [" one", " three"]
    refused = ask(pod, "strict", details=True)
    assert (refused.status, "details" in refused.json["error"]) == (424, True)
    assert told(ask(pod, "strict")) == {"generated_text": TEXT}
    assert ask(pod, "confused").json == {
        "error": "serving.properties: option.tgi_compat is 'perhaps'; it can be true, false",
        "code": 400,
    }


def test_options_of_a_bare_vllm_folder_count_and_a_reload_brings_new_ones(pod: Pod) -> None:
    """Files without a version are placed in version 1."""
    python = vllm()
    config = python["config.pbtxt"]
    for options, kind in ((b"option.tgi_compat=true", list), (b"", dict)):
        files = {"config.pbtxt": config, "1/model.py": python["1/model.py"], "1/serving.properties": options}
        assert pod.load("bare", files).status == 200
        assert isinstance(told(ask(pod, "bare")), kind)
        assert pod.unload("bare").status == 200


def test_which_model_is_asked(pod: Pod) -> None:
    body = {"inputs": PROMPT, "parameters": {"max_new_tokens": 2}}
    assert told(pod.llm("POST", "/invocations", body)) == {"generated_text": TEXT}
    assert told(pod.llm("POST", "/invocations", body, {"X-Amzn-SageMaker-Target-Model": "tgi"})) == [{"generated_text": TEXT}]
    assert pod.llm("POST", "/predictions/absent", body).json == {"error": "Model not found: absent", "code": 404}
    for model in ("affine", "mock"):
        refused = pod.llm("POST", f"/predictions/{model}", body)
        assert (refused.status, "no language model" in refused.json["error"]) == (424, True)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "no JSON"),
        ([], "JSON object"),
        ({}, "inputs"),
        ({"inputs": ""}, "inputs"),
        ({"inputs": 3}, "inputs"),
        ({"inputs": []}, "inputs"),
        ({"inputs": ["a", 3]}, "inputs"),
        ({"inputs": ["a"] * 65}, "64"),
        ({"inputs": "a", "parameters": []}, "parameters"),
        ({"inputs": "a", "stream": "yes"}, "stream"),
        ({"inputs": "a", "parameters": {"max_new_tokens": 0}}, "max_new_tokens"),
        ({"inputs": "a", "parameters": {"temperature": "hot"}}, "temperature"),
        ({"inputs": "a", "parameters": {"top_p": 7}}, "top_p"),
        ({"inputs": "a", "parameters": {"stop_sequences": [1]}}, "stop_sequences"),
        ({"inputs": "a", "parameters": {"details": 1}}, "details"),
        ({"inputs": "a", "parameters": {"num_beams": 3}}, "num_beams"),
        ({"inputs": "a", "parameters": {"seed": 2**64}}, "seed"),
    ],
)
def test_a_bad_payload_is_424_and_says_what_is_wrong(pod: Pod, body: Any, words: str) -> None:
    answer = pod.llm("POST", "/invocations", body)
    assert (answer.status, answer.headers["content-type"], answer.json["code"]) == (424, JSON, 424)
    assert words in answer.json["error"]


def test_a_generation_that_fails(pod: Pod) -> None:
    """Before its first token it has a status; later the last line tells it."""
    for model in ("fails-at-once", "fails"):
        answer = ask(pod, model)
        assert (answer.status, answer.json["generated_text"], answer.json["details"]["finish_reason"]) == (424, "", "error")
        assert "the imitation fails at token" in answer.json["error"]
    assert ask(pod, "fails-at-once", stream=True).status == 424
    first, last = told(ask(pod, "fails", stream=True), LINES)
    assert first["token"]["text"] == " one"
    assert (last["token"]["id"], last["details"]["finish_reason"]) == (-1, "error")
    assert "the imitation fails at token 1" in last["token"]["error_msg"]
    *_, broken = told(ask(pod, "fails", ["a b", "c d"], stream=True), LINES)
    assert (broken["code"], broken["message"]) == (424, "invoke handler failure")


def test_unknown_parameters_are_noted(pod: Pod) -> None:
    assert told(ask(pod, "vllm", no_such_parameter=1)) == {"generated_text": TEXT}
    line = json.loads(pod.adapter.log_text().splitlines()[-1])
    assert (line["ignored_parameters"], line["route"]) == (["no_such_parameter"], "/predictions/{name}")


@pytest.mark.parametrize("is_stream", [True, False])
def test_a_client_that_leaves_has_its_generation_cancelled(pod: Pod, is_stream: bool) -> None:
    name = f"slow-{is_stream}"
    assert pod.load(name, vllm(delay_seconds=0.05)).status == 200
    parameters = {"max_new_tokens": 2000, "details": True}
    body = json.dumps({"inputs": "a", "parameters": parameters, "stream": is_stream}).encode()
    with socket.create_connection(("127.0.0.1", pod.llm.port)) as connection:
        connection.sendall(b"POST /predictions/%s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (name.encode(), len(body), body))
        if is_stream:
            assert connection.recv(4096).startswith(b"HTTP/1.1 200")
        until(lambda: (pod.repository / name / "1" / "begun").exists() or None, "the generation")
    until(lambda: (pod.repository / name / "1" / "cancelled").exists() or None, "the cancel in the model")
    assert pod.unload(name).status == 200


def test_settings_are_for_models_without_options(tmp_path: Path) -> None:
    """And without LMI_MODEL the only model is asked, or none."""
    settings = {"OPTION_TGI_COMPAT": "true", "OPTION_ENABLE_STREAMING": "true", "LMI_DETAILS": "strict"}
    with Pod(tmp_path, settings) as pod:
        body = {"inputs": PROMPT, "parameters": {"max_new_tokens": 2}}
        answer = pod.llm("POST", "/invocations", body)
        assert (answer.status, "0 models are loaded" in answer.json["error"]) == (404, True)
        assert pod.load("only", with_options(vllm(), "option.tgi_compat=false\n")).status == 200
        assert [line["token"]["text"] for line in told(pod.llm("POST", "/invocations", body), LINES)] == [" one", " three"]
        assert pod.load("other", vllm()).status == 200
        assert told(ask(pod, "other", stream=False)) == [{"generated_text": TEXT}]
        assert pod.llm("POST", "/invocations", body).status == 404
        assert os.path.lexists(pod.repository / "only" / "serving.properties")


def test_a_model_that_others_have_loaded_is_asked_too(tmp_path: Path) -> None:
    with Pod(tmp_path, {"V2_REPOSITORY_API": "true", "LMI_MODEL": "theirs"}) as pod:
        body = {"inputs": PROMPT, "parameters": {"max_new_tokens": 2}}
        assert (pod.llm("GET", "/health").status, pod.llm("POST", "/invocations", body).status) == (503, 404)
        write(vllm(), pod.repository / "theirs")
        assert pod.v2("POST", "/v2/repository/models/theirs/load").status == 200
        assert (pod.llm("GET", "/health").status, told(pod.llm("POST", "/invocations", body))) == (200, {"generated_text": TEXT})
        assert pod.llm("GET", "/info").json["model_id"] == "theirs"
