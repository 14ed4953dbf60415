"""What decides how LMI answers: variables, and `option.*` in the `serving.properties` that comes with a model, over the fronts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.fronts.llm_rig import EVENTS, LINES, ask, env, lines, token, with_options
from tests.fronts.rig import Answer, FrontsPod, Http
from tests.real.llm_models import vllm
from tests.real.models import Files, affine, write

OPTIONED: Mapping[str, Callable[[], Files]] = {
    "tgi": lambda: with_options(vllm(), "engine=MPI\noption.model_id=org/name\noption.tgi_compat=true\n"),
    "no_tgi": lambda: with_options(vllm(), "option.tgi_compat: FALSE\noption.output_formatter=auto\noption.rolling_batch=auto\n"),
    "sse": lambda: with_options(vllm(), "# a comment\n option.output_formatter  = sse"),
    "jsonlines": lambda: with_options(vllm(), "option.output_formatter=jsonlines\r\n"),
    "streams": lambda: with_options(vllm(), "option.enable_streaming=true"),
    "dynamic": lambda: with_options(vllm(), "option.rolling_batch=disable"),
    "dynamic_sse": lambda: with_options(vllm(), "option.rolling_batch=disable\noption.output_formatter=sse"),
    "bad": lambda: with_options(vllm(), "option.output_formatter=xml"),
}
TWO = [{"token": {**token("a"), "log_prob": -0.1}}, {"token": token("a"), "generated_text": " a a"}]


@pytest.fixture(scope="module")
def models(language_models: FrontsPod) -> FrontsPod:
    language_models.keep(OPTIONED)
    return language_models


def two(http: Http, model: str, stream: bool | None = None, inputs: Any = "a", **parameters: Any) -> Answer:
    return ask(http, model, inputs, stream, max_new_tokens=2, **parameters)


def is_tgi(answer: Answer) -> bool:
    return bool(answer.json == [{"generated_text": " a a"}])


def test_tgi_for_one_model(models: FrontsPod) -> None:
    assert is_tgi(two(models.llm, "tgi"))
    assert [line["index"] for line in lines(two(models.llm, "tgi", True), EVENTS)] == [1, 2]
    bad = ask(models.llm, "tgi", "a", temperature=0)
    assert (bad.status, bad.json["error_type"]) == (422, "validation")
    assert two(models.llm, "vllm").json == {"generated_text": " a a"}


@pytest.mark.parametrize(("model", "content_type"), [("sse", EVENTS), ("jsonlines", LINES), ("streams", LINES)])
def test_a_stream_where_a_request_does_not_say(models: FrontsPod, model: str, content_type: str) -> None:
    for stream in (None, True):
        assert lines(two(models.llm, model, stream), content_type) == TWO
    assert two(models.llm, model, False).json == {"generated_text": " a a"}
    assert lines(two(models.llm, model, inputs=["a", "b"]), content_type) == [{"outputs": [" a", " b"]}] * 2


def test_the_dynamic_schema_for_every_request(models: FrontsPod) -> None:
    assert two(models.llm, "dynamic").json == [{"generated_text": " a a"}]
    assert two(models.llm, "dynamic", inputs=["a", "b"]).json == [{"generated_text": " a a"}, {"generated_text": " b b"}]
    assert lines(two(models.llm, "dynamic", True)) == [{"outputs": [" a"]}] * 2
    assert lines(two(models.llm, "dynamic_sse"), EVENTS) == [{"outputs": [" a"]}] * 2
    bad = models.llm("POST", "/predictions/dynamic", {})
    assert (bad.status, bad.json["message"]) == (424, "invoke handler failure")


def test_a_bad_option_is_named_and_fails_that_model_alone(models: FrontsPod) -> None:
    answer = two(models.llm, "bad")
    text = "serving.properties: option.output_formatter: 'xml' is none of auto, json, jsonlines, sse"
    assert (answer.status, answer.json) == (424, {"error": text, "code": 424})
    assert models.sagemaker("POST", "/models/bad/invoke", {"inputs": "a"}).json == answer.json


def test_another_file_counts_from_the_next_load_on(models: FrontsPod) -> None:
    assert models.load("changing", with_options(vllm(), "option.tgi_compat=true")).status == 200
    assert is_tgi(two(models.llm, "changing"))
    models.unload("changing")
    assert models.load("changing", with_options(vllm(), "option.rolling_batch=disable\noption.enable_streaming=true")).status == 200
    assert lines(two(models.llm, "changing")) == [{"outputs": [" a"]}] * 2
    models.unload("changing")
    (models.models / "changing" / "model" / "serving.properties").unlink()
    assert models.load("changing", vllm()).status == 200
    assert two(models.llm, "changing").json == {"generated_text": " a a"}
    models.unload("changing")


def test_tgi_for_all_by_a_variable(models: FrontsPod) -> None:
    """A model's own file beats it; the files are found again by the adapter that comes after."""
    with env(models, OPTION_TGI_COMPAT="true", OPTION_OUTPUT_FORMATTER="jsonlines"):
        assert is_tgi(two(models.llm, "vllm", False))
        assert [line["index"] for line in lines(two(models.llm, "vllm"), LINES)] == [1, 2]
        assert lines(models.llm("POST", "/generate_stream", {"inputs": "a"}), EVENTS)
        assert two(models.llm, "no_tgi").json == {"generated_text": " a a"}
    assert two(models.llm, "vllm").json == {"generated_text": " a a"}


def test_streams_and_lists_for_all_by_variables(models: FrontsPod) -> None:
    with env(models, OPTION_ENABLE_STREAMING="true", OPTION_ROLLING_BATCH="disable", LMI_MODEL="trtllm"):
        assert lines(two(models.llm, "vllm")) == [{"outputs": [" a"]}] * 2
        assert lines(two(models.llm, "no_tgi")) == TWO
        assert lines(two(models.llm, "sse"), EVENTS) == [{"outputs": [" a"]}] * 2
        info = models.llm("GET", "/info")
        assert (info.status, info.json["model_id"], info.json["backend"]) == (200, "trtllm", "tensorrt_llm")


def test_events_for_all_by_a_variable_and_a_model_that_is_absent(models: FrontsPod) -> None:
    with env(models, OPTION_OUTPUT_FORMATTER="sse", LMI_MODEL="absent"):
        assert lines(two(models.llm, "vllm"), EVENTS) == TWO
        health = models.llm("GET", "/health")
        assert (health.status, health.json) == (503, {"error": "the model 'absent' does not serve", "error_type": "healthcheck"})
        for path in ("/invocations", "/generate", "/"):
            answer = models.llm("POST", path, {"inputs": "a"})
            assert (answer.status, answer.json["error"]) == (404, "Model not found: absent"), path


def test_paths_that_name_no_model_are_for_lmi_model_or_for_the_target(models: FrontsPod) -> None:
    body = {"inputs": "a", "parameters": {"max_new_tokens": 2}}
    assert models.llm("GET", "/health").status == models.llm("GET", "/ping").status == 200
    assert models.llm("POST", "/invocations", body).json == {"generated_text": " a a"}
    assert models.llm("GET", "/info").json["model_id"] == "vllm"
    assert is_tgi(models.llm("POST", "/invocations", body, {"X-Amzn-SageMaker-Target-Model": "tgi"}))
    absent = models.llm("POST", "/invocations", body, {"X-Amzn-SageMaker-Target-Model": "absent"})
    assert (absent.status, absent.json["error"]) == (404, "Model not found: absent")


def test_paths_that_name_no_model_are_for_the_only_one(pod: FrontsPod) -> None:
    assert pod.llm("GET", "/health").status == 200
    none = pod.llm("POST", "/invocations", {"inputs": "a"})
    assert (none.status, none.json) == (
        404,
        {"error": "the path names no model, LMI_MODEL is not set, and 0 models are loaded", "code": 404},
    )
    assert pod.load("only one", vllm()).status == 200
    assert pod.llm("POST", "/invocations", {"inputs": "a", "parameters": {"max_new_tokens": 1}}).json == {"generated_text": " a"}
    assert pod.llm("POST", "/predictions/only%20one", {"inputs": "a", "parameters": {"max_new_tokens": 1}}).json == {"generated_text": " a"}
    assert pod.llm("GET", "/info").json["model_id"] == "only one"
    assert pod.load("other", affine(2, 1)).status == 200
    two_of_them = pod.llm("POST", "/generate", {"inputs": "a"})
    assert (two_of_them.status, "2 models are loaded" in two_of_them.json["error"]) == (404, True)


def test_a_model_that_others_have_loaded_is_asked_too(tmp_path: Path) -> None:
    with FrontsPod(tmp_path, {"V2_REPOSITORY_API": "true", "LMI_MODEL": "theirs"}) as pod:
        body = {"inputs": "a", "parameters": {"max_new_tokens": 2}}
        assert (pod.llm("GET", "/health").status, pod.llm("POST", "/invocations", body).status) == (503, 404)
        write(vllm(), pod.repository / "theirs")
        assert pod.v2("POST", "/v2/repository/models/theirs/load").status == 200
        assert (pod.llm("GET", "/health").status, pod.llm("GET", "/info").json["model_id"]) == (200, "theirs")
        assert pod.llm("POST", "/invocations", body).json == {"generated_text": " a a"}
