"""LMI's schema on the real Triton, for each kind of backend: whole, as JSON lines, for lists of prompts, and where it fails."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter.fronts.llm.parameters import ALIASES, RULES
from tests.fronts.llm_rig import BACKENDS, ask, cancelled_in, left, lines, near, token
from tests.fronts.rig import FrontsPod, Http
from tests.real.models import sleeper
from tests.real.polls import until

PROMPT, FIVE = "a bb ccc", ["a", "bb", "ccc", "a", "bb"]
TEXT = " a bb ccc a bb"
NO_TOKEN = {"id": None, "text": "", "log_prob": None}
TOLD_NOTHING = {"finish_reason": None, "generated_tokens": None, "inputs": PROMPT}
ALL = {"finish_reason": "length", "generated_tokens": 5, "inputs": PROMPT}
REASON = {"finish_reason": "length", "generated_tokens": None, "inputs": PROMPT}
BATCHED = [{"id": None, "text": TEXT if number == 4 else "", "log_prob": -len(word) / 10} for number, word in enumerate(FIVE)]
DETAILS: dict[str, dict[str, Any]] = {
    "vllm": {**ALL, "tokens": [token(word) for word in FIVE]},
    "trtllm": {**ALL, "tokens": [token(word, ids=False) for word in FIVE]},
    "trtllm_whole": {**ALL, "tokens": BATCHED},
    "llm_api": {**REASON, "tokens": [token(word, ids=False, log_probs=False) for word in FIVE]},
    "llm_api_whole": {**REASON, "tokens": None},
    "plain": {**TOLD_NOTHING, "tokens": [token(word, ids=False, log_probs=False) for word in FIVE]},
    "plain_whole": {**TOLD_NOTHING, "tokens": None},
}
"""Of a whole answer: what a backend does not tell is null."""
BROKEN = {"finish_reason": "error", "generated_tokens": None, "inputs": None}


def few(parameters: dict[str, Any]) -> dict[str, Any]:
    """The same, with an end in sight."""
    tokens = parameters.get("max_new_tokens", 2)
    return {**parameters, "max_new_tokens": min(tokens, 5) if isinstance(tokens, int) else tokens}


@pytest.fixture(scope="session")
def http(language_models: FrontsPod) -> Http:
    return language_models.llm


@pytest.mark.parametrize("model", BACKENDS)
def test_a_whole_answer(http: Http, model: str) -> None:
    answer = ask(http, model, PROMPT, max_new_tokens=5)
    assert (answer.status, answer.json) == (200, {"generated_text": TEXT})
    assert answer.headers["content-type"] == "application/json"
    assert int(answer.headers["x-total-time"]) >= 0
    counts = [answer.headers.get(f"x-{kind}-tokens") for kind in ("prompt", "generated")]
    assert counts == (["3", "5"] if model == "vllm" else [None, None])


@pytest.mark.parametrize("model", BACKENDS)
def test_details_are_what_the_backend_tells_and_null_else(http: Http, model: str) -> None:
    answer = ask(http, model, PROMPT, max_new_tokens=5, details=True)
    assert answer.status == 200, answer.body
    assert near(answer.json) == {"generated_text": TEXT, "details": near(DETAILS[model])}


@pytest.mark.parametrize("has_details", [False, True])
@pytest.mark.parametrize("model", BACKENDS)
def test_a_line_a_token(http: Http, model: str, has_details: bool) -> None:
    """A backend that tells the end with its last token needs no line of its own for it; one that gives all at once has one line."""
    *tokens, last = lines(ask(http, model, PROMPT, stream=True, max_new_tokens=5, details=has_details))
    details = {"details": {name: DETAILS[model][name] for name in ALL}} if has_details else {}
    told = {"generated_text": TEXT, **details}
    match model:
        case "vllm" | "llm_api":
            is_told = model == "vllm"
            found = [{"token": token(word, is_told, is_told)} for word in FIVE]
            assert near([*tokens, last]) == near([*found[:-1], {**found[-1], **told}])
        case "trtllm" | "plain":
            found = [{"token": token(word, ids=False, log_probs=model == "trtllm")} for word in FIVE]
            assert near([*tokens, last]) == near([*found, {"token": NO_TOKEN, **told}])
        case "trtllm_whole":
            assert near([*tokens, last]) == near([*({"token": entry} for entry in BATCHED[:-1]), {"token": BATCHED[-1], **told}])
        case _:
            assert [*tokens, last] == [{"token": {**NO_TOKEN, "text": TEXT}, **told}]


@pytest.mark.parametrize("model", BACKENDS)
def test_the_prompt_comes_before_the_text_where_that_is_asked_for(http: Http, model: str) -> None:
    answer = ask(http, model, PROMPT, max_new_tokens=2, return_full_text=True)
    assert answer.json == {"generated_text": PROMPT + " a bb"}
    assert lines(ask(http, model, PROMPT, stream=True, max_new_tokens=2, return_full_text=True))[-1]["generated_text"] == PROMPT + " a bb"


def test_thirty_tokens_where_nobody_says_how_many(http: Http) -> None:
    assert ask(http, "vllm", "a").json == {"generated_text": " a" * 30}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("model", "prompt", "stops", "reason", "count"),
    [
        ("vllm", "a bb", ["bb"], "stop_sequence", 2),
        ("vllm", "a bb", ["x", "bb"], "stop_sequence", 2),
        ("vllm", "a </s>", None, "eos_token", 2),
        ("vllm", "a </s>", ["bb"], "eos_token", 2),
        ("llm_api", "a bb", ["bb"], "stop_sequence", None),
        ("llm_api", "a </s>", ["bb"], "eos_token", None),
        ("trtllm", "a bb", ["x", "bb"], None, 2),
    ],
)
def test_why_it_ended(
    http: Http, model: str, prompt: str, stops: list[str] | None, reason: str | None, count: int | None, stream: bool
) -> None:
    answer = ask(http, model, prompt, stream, details=True, stop_sequences=stops)
    value = lines(answer)[-1] if stream else answer.json
    assert value["generated_text"] == " a"
    assert [value["details"][name] for name in ("finish_reason", "generated_tokens")] == [reason, count]


@pytest.mark.parametrize("model", BACKENDS)
def test_a_list_of_prompts(http: Http, model: str) -> None:
    """Details are of no use there: its schema has none."""
    answer = ask(http, model, ["a", "b b", "c"], max_new_tokens=2, details=True)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json"), answer.body
    assert answer.json == [{"generated_text": text} for text in (" a a", " b b", " c c")]
    if model == "vllm":
        assert (answer.headers["x-prompt-tokens"], answer.headers["x-generated-tokens"]) == ("4", "6")


@pytest.mark.parametrize("model", ["vllm", "trtllm", "llm_api", "plain"])
def test_a_list_of_prompts_as_a_stream(http: Http, model: str) -> None:
    found = lines(ask(http, model, ["a", "b c"], stream=True, max_new_tokens=3))
    assert found == [{"outputs": [" a", " b"]}, {"outputs": [" a", " c"]}, {"outputs": [" a", " b"]}]


def test_a_stream_of_many_prompts_begins_eight_at_a_time(http: Http) -> None:
    found = lines(ask(http, "vllm", ["a"] * 9 + ["</s>"], True, max_new_tokens=1))
    assert found == [{"outputs": [" a"] * 8 + ["", ""]}, {"outputs": [""] * 8 + [" a", ""]}]


def test_a_prompt_that_has_ended_waits_for_the_others(http: Http) -> None:
    found = lines(ask(http, "vllm", ["a </s>", "b", "</s>"], stream=True, max_new_tokens=3))
    assert found == [{"outputs": [" a", " b", ""]}, {"outputs": ["", " b", ""]}, {"outputs": ["", " b", ""]}]


def test_a_stream_of_a_list_without_any_text_has_one_line(http: Http) -> None:
    assert lines(ask(http, "vllm", ["</s>", "</s>"], stream=True, max_new_tokens=3)) == [{"outputs": ["", ""]}]


def test_prompts_of_a_model_that_batches_go_together(language_models: FrontsPod) -> None:
    def stats() -> Any:
        return language_models.v2("GET", "/v2/models/trtllm_whole/stats").json["model_stats"][0]

    before = stats()
    answer = ask(language_models.llm, "trtllm_whole", [f"p{number}" for number in range(10)], max_new_tokens=1)
    assert answer.json == [{"generated_text": f" p{number}"} for number in range(10)]
    after = stats()
    assert [int(after[name]) - int(before[name]) for name in ("inference_count", "execution_count")] == [10, 2]


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"1", b'"a"', b"null", b"[" * 250_000, {}, {"inputs": None}, {"inputs": ""}, {"inputs": 1}, {"inputs": {}},
        {"inputs": "a", "parameters": []}, {"inputs": "a", "parameters": "x"}, {"inputs": "a", "stream": "yes"},
        {"inputs": "a", "stream": 1},
        b'{"inputs": "\\ud800"}',
    ],
)  # fmt: skip
def test_a_payload_that_is_no_request_is_424(http: Http, body: Any) -> None:
    answer = http("POST", "/predictions/vllm", body)
    assert (answer.status, answer.headers["content-type"]) == (424, "application/json")
    assert answer.json == {"error": answer.json["error"], "code": 424}
    assert answer.json["error"]


@pytest.mark.parametrize("inputs", [[], [""], ["a", 1], ["a", None], [["a"]], ["a"] * 65])
def test_a_list_that_is_no_list_of_prompts_is_424(http: Http, inputs: Any) -> None:
    answer = ask(http, "vllm", inputs)
    assert (answer.status, answer.json) == (424, {"code": 424, "message": "invoke handler failure", "error": answer.json["error"]})
    assert answer.json["error"].startswith("inputs ")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("model", "name", "value"),
    [
        ("vllm", "temperature", -1),
        ("vllm", "max_new_tokens", 0),
        ("vllm", "stop_sequences", [""]),
        ("vllm", "details", 1),
        ("vllm", "seed", 2**63),
        ("vllm", "n", 65),
        ("vllm", "num_beams", 2),
        ("trtllm", "best_of", 2),
        ("vllm", "decoder_input_details", True),
        ("trtllm", "min_p", 0.5),
        ("trtllm", "top_n_tokens", 3),
        ("llm_api", "repetition_penalty", 2),
        ("llm_api", "stop_sequences", ["a", "b"]),
        ("plain", "n", 2),
        ("plain", "seed", 2**63),
    ],
)
def test_a_bad_parameter_is_named(http: Http, model: str, name: str, value: Any, stream: bool) -> None:
    """One that makes no sense, or that the model's backend does not have."""
    answer = ask(http, model, "a", stream, do_sample=True, **{name: value})
    assert (answer.status, answer.headers["content-type"]) == (424, "application/json")
    assert answer.json.pop("error").startswith(f"parameters.{name}: ")
    assert {**answer.json, "error": ""} == {"generated_text": "", "details": {**BROKEN, "tokens": None}, "code": 424, "error": ""}


def test_several_sequences_of_one_prompt(http: Http) -> None:
    """The imitation samples nothing, so all of them are equal."""
    for asked in ({"n": 3}, {"best_of": 3}, {"n": 2, "best_of": 3}):
        answer = ask(http, "vllm", "a", do_sample=True, max_new_tokens=2, **asked).json
        assert (answer["generated_text"], answer["details"]["generated_tokens"]) == (" a a", 2)
        others = answer["details"]["best_of_sequences"]
        assert [(other["generated_text"], other["finish_reason"], len(other["tokens"])) for other in others] == [(" a a", "length", 2)] * 2


@pytest.mark.parametrize("parameters", [{"n": 2}, {"n": 2, "do_sample": True, "seed": 7}, {"best_of": 2, "do_sample": False}])
def test_sequences_that_would_be_equal_are_refused(http: Http, parameters: dict[str, Any]) -> None:
    answer = ask(http, "vllm", "a", **parameters)
    assert (answer.status, "would be equal" in answer.json["error"]) == (424, True)


def test_log_probabilities_of_others_are_asked_of_vllm(http: Http) -> None:
    answer = ask(http, "vllm", "a", details=True, logprobs=5, max_new_tokens=1).json
    assert answer["details"]["tokens"] == [token("a")]


def test_a_bad_parameter_of_a_list(http: Http) -> None:
    answer = ask(http, "vllm", ["a"], top_p=2)
    assert (answer.status, answer.json["message"]) == (424, "invoke handler failure")
    assert answer.json["error"].startswith("parameters.top_p: ")


LEAVES = st.none() | st.booleans() | st.integers(-2, 3) | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5)
ANYTHING = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3))
PARAMETERS = st.dictionaries(st.sampled_from([*RULES, *ALIASES]), LEAVES | ANYTHING, max_size=4)
BODIES = st.fixed_dictionaries(
    {"inputs": st.just("a b") | st.text(max_size=5) | st.lists(st.text(max_size=3), max_size=3) | ANYTHING},
    optional={"parameters": PARAMETERS.map(few) | ANYTHING, "stream": st.booleans() | ANYTHING},
)


@settings(max_examples=150, deadline=None)
@given(model=st.sampled_from([*BACKENDS]), path=st.sampled_from(["", "/", "/generate", "/generate_stream"]), value=BODIES | ANYTHING)
def test_anything_is_answered_or_the_callers_mistake(http: Http, model: str, path: str, value: Any) -> None:
    answer = http("POST", path or f"/predictions/{model}", value)
    assert answer.status in (200, 422, 424), answer.body


def test_an_unknown_parameter_is_ignored_and_noted(language_models: FrontsPod) -> None:
    assert ask(language_models.llm, "vllm", "a", max_new_tokens=1, frobnicate=1).json == {"generated_text": " a"}
    until(lambda: '"ignored_parameters":["frobnicate"]' in language_models.adapter.log_text(), "the line of the request")


@pytest.mark.parametrize(("model", "stream"), [("fails_at_once", False), ("fails_at_once", True), ("fails_later", False)])
def test_a_failure_before_the_answer_is_a_status(http: Http, model: str, stream: bool) -> None:
    answer = ask(http, model, "a", stream, max_new_tokens=5)
    assert (answer.status, answer.headers["content-type"]) == (424, "application/json"), answer.body
    assert "the imitation fails at token" in answer.json["error"]
    assert (answer.json["generated_text"], answer.json["details"]) == ("", {**BROKEN, "tokens": None})


def test_a_failure_in_a_stream_is_its_last_line(http: Http) -> None:
    first, second, last = lines(ask(http, "fails_later", "a", stream=True, max_new_tokens=5))
    assert near([first, second]) == near([{"token": token("a")}] * 2)
    assert last["token"].pop("error_msg") == "the imitation fails at token 2"
    assert last == {"token": {"id": -1, "text": "", "log_prob": -1, "special_token": True}, "generated_text": "", "details": BROKEN}


def test_a_failure_in_a_stream_of_a_list(http: Http) -> None:
    first, second, last = lines(ask(http, "fails_later", ["a", "b"], stream=True, max_new_tokens=5))
    assert [first, second] == [{"outputs": [" a", " b"]}] * 2
    assert last == {"code": 424, "message": "invoke handler failure", "error": "the imitation fails at token 2"}


def test_one_failure_fails_a_list(http: Http) -> None:
    answer = ask(http, "fails_later", ["a </s>", "b"], max_new_tokens=5)
    assert (answer.status, answer.json["error"]) == (424, "the imitation fails at token 2")


def test_a_model_that_is_absent_or_no_language_model(http: Http) -> None:
    absent = ask(http, "absent", "a")
    assert (absent.status, absent.json) == (404, {"error": "Model not found: absent", "code": 404})
    other = ask(http, "no_text", "a")
    assert (other.status, other.json) == (
        424,
        {"error": "the model 'no_text' is no language model: it has no text_input and text_output", "code": 424},
    )


def test_a_model_that_is_being_loaded_is_503(language_models: FrontsPod) -> None:
    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(language_models.load, "coming", sleeper(3))
        answer = until(
            lambda: (found := ask(language_models.llm, "coming", "a")).status != 404 and found,
            "the load",
        )
        assert (answer.status, answer.json) == (503, {"error": "the model 'coming' is being loaded", "code": 503})
        assert loading.result().status == 200
    language_models.unload("coming")


def test_a_client_that_leaves_a_stream_has_it_cancelled_and_has_had_its_first_lines(language_models: FrontsPod) -> None:
    body = {"inputs": "a", "stream": True, "parameters": {"max_new_tokens": 2000}}
    with cancelled_in(language_models, "slow"):
        had = left(language_models, "/predictions/slow", "slow", body)
    assert had.startswith(b"HTTP/1.1 200")
    assert b"generated_text" not in had


@pytest.mark.parametrize("inputs", ["a", ["a", "b"]])
@pytest.mark.parametrize("has_details", [False, True])
def test_a_client_that_leaves_a_whole_answer_has_it_cancelled(language_models: FrontsPod, inputs: Any, has_details: bool) -> None:
    with cancelled_in(language_models, "slow"):
        body = {"inputs": inputs, "parameters": {"max_new_tokens": 40, "details": has_details}}
        assert left(language_models, "/predictions/slow", "slow", body) == b""
