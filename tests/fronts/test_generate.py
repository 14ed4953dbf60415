"""generate and generate_stream on the real Triton, beside its own front, with models that imitate the interfaces of language models."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from tests.fronts.rig import FrontsPod, Http
from tests.real.llm_models import mock_llm, repeat, trtllm, vllm, waiter
from tests.real.models import Files

EVENTS = "text/event-stream; charset=utf-8"
MODELS = {"mock": mock_llm, "whole": lambda: mock_llm(is_decoupled=False), "vllm": vllm, "trtllm": trtllm, "repeat": repeat}


@pytest.fixture
def llm(shared_pod: FrontsPod) -> FrontsPod:
    """Its models stay loaded until a test wants an empty pod."""
    shared_pod.keep(MODELS)
    return shared_pod


def events(body: bytes) -> list[Any]:
    *found, rest = body.split(b"\n\n")
    assert rest == b""
    assert all(event.startswith(b"data: ") and b"\n" not in event for event in found)
    return [json.loads(event.removeprefix(b"data: ")) for event in found]


ALIKE: list[tuple[str, str, Any]] = [
    ("generate", "mock", {"PROMPT": "hello world", "STREAM": False}),
    ("generate", "mock", {"PROMPT": ["hello"], "STREAM": True, "id": "7"}),
    ("generate", "whole", {"PROMPT": 'é " \\ \u2028', "STREAM": False}),
    ("generate", "vllm", {"text_input": "a b", "parameters": {"stream": False, "exclude_input_in_output": True}}),
    ("generate", "trtllm", {"text_input": "a b", "max_tokens": 3, "stop_words": "b"}),
    ("generate", "trtllm", {"text_input": ["a b", "c d"], "max_tokens": [3, 3]}),
    ("generate_stream", "mock", {"PROMPT": ["hello"], "STREAM": True, "REPETITION": 3}),
    ("generate_stream", "mock", {"PROMPT": ["hello"], "STREAM": True, "parameters": {"REPETITION": 2}}),
    ("generate_stream", "mock", {"PROMPT": "hello", "STREAM": True, "REPETITION": 0}),
    ("generate_stream", "mock", {"PROMPT": "hello", "STREAM": True, "REPETITION": 2, "FAIL_LAST": True}),
    ("generate_stream", "whole", {"PROMPT": "hello"}),
    ("generate_stream", "vllm", {"text_input": "a b c", "stream": True, "sampling_parameters": '{"max_tokens": 3}'}),
    ("generate_stream", "repeat", {"IN": [1, 2, 3], "DELAY": [0, 0, 0]}),
]


@pytest.mark.parametrize(("call", "model", "body"), ALIKE)
def test_answers_are_as_tritons_own(llm: FrontsPod, call: str, model: str, body: Any) -> None:
    path = f"/v2/models/{model}/{call}"
    ours, theirs = llm.v2("POST", path, body), Http(llm.triton.http_port)("POST", path, body)
    assert (ours.status, ours.headers["content-type"]) == (theirs.status, theirs.headers["content-type"]), (ours.body, theirs.body)
    if call == "generate":
        assert ours.json == theirs.json
    else:
        assert events(ours.body) == events(theirs.body)


REFUSED: list[tuple[str, Any, int, str]] = [
    ("mock", {}, 400, "missing required input(s) ['PROMPT']"),
    ("mock", {"abc": 123}, 400, "missing required input(s) ['PROMPT']"),
    ("mock", {"PROMPT": 123}, 400, "attempt to access JSON non-string as string"),
    ("mock", {"PROMPT": "a", "STREAM": "false"}, 400, "attempt to access JSON non-boolean as boolean"),
    ("mock", {"PROMPT": {"USER": "a"}}, 400, "attempt to access JSON non-string as string"),
    ("mock", {"PROMPT": "a", "PARAMS": {"P": 0}}, 400, "parameter 'PARAMS' has invalid type"),
    ("mock", {"PROMPT": "a", "parameters": {"PROMPT": "b"}}, 400, "input 'PROMPT' already exists in request"),
    ("mock", {"PROMPT": ["a", "b"]}, 400, "PROMPT"),
    ("mock", b"[" * 250_000, 400, "no JSON"),
    ("absent", {"PROMPT": "a"}, 404, "absent"),
    ("mock/versions/9", {"PROMPT": "a"}, 404, "9"),
    ("mock/versions/x", {"PROMPT": "a"}, 400, "number"),
]


@pytest.mark.parametrize("call", ["generate", "generate_stream"])
@pytest.mark.parametrize(("model", "body", "status", "words"), REFUSED)
def test_what_fails_before_the_model_is_asked_is_json(llm: FrontsPod, call: str, model: str, body: Any, status: int, words: str) -> None:
    answer = llm.v2("POST", f"/v2/models/{model}/{call}", body)
    assert (answer.status, answer.headers["content-type"]) == (status, "application/json"), answer.body
    assert list(answer.json) == ["error"]
    assert words in answer.json["error"]


@pytest.mark.parametrize("count", [0, 2])
def test_generate_needs_exactly_one_answer(llm: FrontsPod, count: int) -> None:
    answer = llm.v2("POST", "/v2/models/mock/generate", {"PROMPT": "a", "STREAM": True, "REPETITION": count})
    assert (answer.status, answer.headers["content-type"]) == (400, "application/json")
    assert "generate expects model to produce exactly 1 response" in answer.json["error"]


def test_a_first_answer_that_is_an_error_sets_the_status(llm: FrontsPod) -> None:
    """FAIL_LAST fails the only answer. Triton 2.51 has 400 here, later ones have 500 as its other errors of that kind."""
    answer = llm.v2("POST", "/v2/models/mock/generate_stream", {"PROMPT": "a", "STREAM": True, "REPETITION": 1, "FAIL_LAST": True})
    assert (answer.status, answer.headers["content-type"]) == (500, EVENTS)
    assert events(answer.body) == [{"error": "An Error Occurred"}]


def test_events_come_as_soon_as_they_are_there(llm: FrontsPod) -> None:
    times, seen = [], b""
    with llm.v2.begun("/v2/models/repeat/generate_stream", {"IN": [1, 2, 3], "DELAY": [0, 1500, 1500]}) as connection:
        while seen.count(b"data: ") < 3:
            before = seen.count(b"data: ")
            seen += connection.recv(65536)
            times += [time.monotonic()] * (seen.count(b"data: ") - before)
    assert [later - earlier > 0.75 for earlier, later in pairwise(times)] == [True, True]


SAMPLED = {"text_input": "a", "stream": True, "sampling_parameters": '{"max_tokens": 2000}'}
LONG: list[tuple[str, Callable[[], Files], Any]] = [
    (
        "generate_stream",
        partial(vllm, delay_seconds=0.05),
        {"text_input": "a", "stream": True, "sampling_parameters": '{"max_tokens": 2000}'},
    ),
    ("generate", waiter, {"SECONDS": 60}),
    ("infer", waiter, {"inputs": [{"name": "SECONDS", "shape": [1], "datatype": "FP32", "data": [60.0]}]}),
]


@pytest.mark.parametrize(("call", "files", "body"), LONG)
def test_a_client_that_leaves_has_it_cancelled_in_the_model(pod: FrontsPod, call: str, files: Callable[[], Files], body: Any) -> None:
    """Triton's own front lets such a request run on, unless it streams."""
    assert pod.load("slow", files()).status == 200
    with pod.v2.begun(f"/v2/models/slow/{call}", body) as connection:
        if call == "generate_stream":
            assert connection.recv(4096).startswith(b"HTTP/1.1 200")
        else:
            pod.until_has("slow")
    pod.until_has("slow", "cancelled")
