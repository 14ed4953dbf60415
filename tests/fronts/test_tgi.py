"""TGI's schema on the real Triton, and two clients of other projects, each as a process of its own venv."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fronts.install import python
from tests.fronts.llm_rig import EVENTS, cancelled_in, env, left, lines
from tests.fronts.rig import FrontsPod, Http
from tests.real.parts import or_skip

CLIENT_SECONDS = 100
WHOLE = ("/", "/generate")


def tgi_token(word: str, *, is_known: bool = True) -> dict[str, Any]:
    """As the imitation of vLLM makes it."""
    return {
        "id": 100 + len(word) if is_known else -1,
        "text": f" {word}",
        "logprob": -len(word) / 10 if is_known else None,
        "log_prob": -len(word) / 10 if is_known else None,
        "special": False,
    }


def body(inputs: Any = "a bb", stream: bool | None = None, **parameters: Any) -> dict[str, Any]:
    return {"inputs": inputs, "parameters": parameters} | ({} if stream is None else {"stream": stream})


@pytest.fixture
def http(language_models: FrontsPod) -> Http:
    return language_models.llm


def test_a_list_of_one_or_an_object(http: Http) -> None:
    """Twenty tokens where nobody says how many."""
    value = {"generated_text": " a" * 20}
    for path, wanted in (("/", [value]), ("/generate", value)):
        answer = http("POST", path, {"inputs": "a"})
        assert (answer.status, answer.headers["content-type"], answer.json) == (200, "application/json", wanted)
        assert (answer.headers["x-prompt-tokens"], answer.headers["x-generated-tokens"]) == ("1", "20")
        assert int(answer.headers["x-total-time"]) >= 0


@pytest.mark.parametrize("path", WHOLE)
def test_details(http: Http, path: str) -> None:
    answer = http("POST", path, body(max_new_tokens=3, details=True, temperature=0.5, seed=7))
    value = answer.json[0] if path == "/" else answer.json
    assert value == {
        "generated_text": " a bb a",
        "details": {
            "finish_reason": "length",
            "generated_tokens": 3,
            "seed": 7,
            "inputs": "a bb",
            "prefill": [],
            "tokens": [tgi_token(word) for word in ("a", "bb", "a")],
        },
    }


@pytest.mark.parametrize("has_details", [False, True])
@pytest.mark.parametrize(("path", "stream"), [("/", True), ("/generate_stream", None), ("/generate_stream", False)])
def test_a_stream(http: Http, path: str, stream: bool | None, has_details: bool) -> None:
    first, last = lines(http("POST", path, body(stream=stream, max_new_tokens=2, details=has_details)), EVENTS)
    details = {"finish_reason": "length", "generated_tokens": 2, "seed": None, "inputs": "a bb", "input_length": 2} if has_details else None
    assert first == {"index": 1, "token": tgi_token("a"), "generated_text": None, "details": None}
    assert last == {"index": 2, "token": tgi_token("bb"), "generated_text": " a bb", "details": details}


def test_generate_streams_nothing(http: Http) -> None:
    assert http("POST", "/generate", body(stream=True, max_new_tokens=1)).json == {"generated_text": " a"}


@pytest.mark.parametrize(("prompt", "stops", "reason"), [("a bb", ["bb"], "stop_sequence"), ("a </s>", ["bb"], "eos_token")])
def test_why_it_ended(http: Http, prompt: str, stops: list[str], reason: str) -> None:
    answer = http("POST", "/generate", body(prompt, stop=stops, details=True))
    assert (answer.json["generated_text"], answer.json["details"]["finish_reason"]) == (" a", reason)


def test_what_no_backend_tells_has_the_types_that_clients_need(language_models: FrontsPod) -> None:
    with env(language_models, LMI_MODEL="llm_api"):
        whole = language_models.llm("POST", "/generate", body(max_new_tokens=2, details=True)).json
        tokens = [tgi_token(word, is_known=False) for word in ("a", "bb")]
        details = {"finish_reason": "length", "generated_tokens": -1, "seed": None, "inputs": "a bb", "prefill": [], "tokens": tokens}
        assert whole == {"generated_text": " a bb", "details": details}
        last = lines(language_models.llm("POST", "/generate_stream", body(max_new_tokens=2, details=True)), EVENTS)[-1]
        assert last["token"] == tokens[-1]
        assert last["details"] == {"finish_reason": "length", "generated_tokens": -1, "seed": None, "inputs": "a bb", "input_length": None}


@pytest.mark.parametrize("path", ["/", "/generate", "/generate_stream"])
@pytest.mark.parametrize(
    "value",
    [
        b"{", b"[]", b"null", {}, {"inputs": ""}, {"inputs": ["a"]}, {"inputs": "a", "parameters": 1}, {"inputs": "a", "stream": 1},
        body(temperature=0), body(top_p=0), body(top_k=0), body(max_new_tokens=0), body(best_of=2), body(decoder_input_details=True),
        body(grammar={"type": "regex", "value": "a"}),
    ],
)  # fmt: skip
def test_what_cannot_be_is_a_validation_error(http: Http, path: str, value: Any) -> None:
    answer = http("POST", path, value)
    assert (answer.status, answer.headers["content-type"]) == (422, "application/json")
    assert answer.json == {"error": answer.json["error"], "error_type": "validation"}
    if isinstance(value, dict) and isinstance(value.get("parameters"), dict):
        assert answer.json["error"].startswith(f"parameters.{next(iter(value['parameters']))}: ")


def test_failures_of_the_model_are_generation_errors(language_models: FrontsPod) -> None:
    with env(language_models, LMI_MODEL="fails_at_once"):
        for path in ("/", "/generate", "/generate_stream"):
            failed = language_models.llm("POST", path, body())
            assert (failed.status, failed.headers["content-type"]) == (424, "application/json"), path
            assert failed.json == {"error": "the imitation fails at token 0", "error_type": "generation"}
    with env(language_models, LMI_MODEL="fails_later"):
        first, second, last = lines(language_models.llm("POST", "/generate_stream", body(max_new_tokens=5)), EVENTS)
        assert (first["index"], second["index"]) == (1, 2)
        assert last == {"error": "the imitation fails at token 2", "error_type": "generation"}


def test_errors_that_have_no_model_yet(http: Http) -> None:
    lost = http("POST", "/generate/lost", {})
    assert (lost.status, list(lost.json)) == (404, ["error", "code"])
    wrong = http("GET", "/generate")
    assert (wrong.status, wrong.json) == (405, {"error": "method not allowed here"})
    packed = http("POST", "/generate", b"x", {"Content-Encoding": "br"})
    assert (packed.status, packed.json["error_type"]) == (415, "validation")


def test_info_and_health(http: Http) -> None:
    info = http("GET", "/info").json
    assert {name: info[name] for name in ("model_id", "model_pipeline_tag", "max_best_of", "backend", "token_details")} == {
        "model_id": "vllm",
        "model_pipeline_tag": "text-generation",
        "max_best_of": 1,
        "backend": "vllm",
        "token_details": "ids",
    }
    health = http("GET", "/health")
    assert (health.status, health.body) == (200, b"")


def test_a_client_that_leaves_has_it_cancelled(language_models: FrontsPod) -> None:
    with env(language_models, LMI_MODEL="slow"), cancelled_in(language_models, "slow"):
        had = left(language_models, "/generate_stream", "slow", body("a", max_new_tokens=2000))
        assert b"data: " in had or b"text/event-stream" in had


TEXT_GENERATION = """
import asyncio, json, sys

from text_generation import AsyncClient, Client

BASE = sys.argv[1]


def refused(call):
    try:
        list(call()) if call else None
    except Exception as error:
        return [type(error).__name__, str(error)]


def told(details):
    return [details.finish_reason.value, details.generated_tokens, details.seed]


def token(found):
    return [found.id, found.text, round(found.logprob, 5), found.special]


async def later():
    client = AsyncClient(BASE)
    whole = await client.generate("a bb", max_new_tokens=2)
    return [whole.generated_text, [token(found.token) async for found in client.generate_stream("a bb", max_new_tokens=2)]]


client = Client(BASE)
whole = client.generate("a bb", max_new_tokens=3, temperature=0.5, do_sample=True, seed=7, stop_sequences=["x"])
stream = list(client.generate_stream("a bb", max_new_tokens=3, return_full_text=True))
found = {
    "whole": [whole.generated_text, told(whole.details), [token(entry) for entry in whole.details.tokens]],
    "stream": [token(entry.token) for entry in stream],
    "end": [stream[-1].generated_text, told(stream[-1].details), [entry.generated_text for entry in stream[:-1]]],
    "async": asyncio.run(later()),
    "validation": refused(lambda: Client(BASE).generate("a", best_of=2, do_sample=True)),
    "at once": refused(lambda: Client(BASE + "/predictions/fails_at_once").generate("a")),
    "at once in a stream": refused(lambda: Client(BASE + "/predictions/fails_at_once").generate_stream("a")),
    "later": refused(lambda: Client(BASE + "/predictions/fails_later").generate_stream("a")),
    "absent": refused(lambda: Client(BASE + "/predictions/absent").generate("a")),
    "unknown": told(Client(BASE + "/predictions/plain").generate("a", max_new_tokens=2).details),
    "unknown stream": [entry.token.id for entry in Client(BASE + "/predictions/plain").generate_stream("a", max_new_tokens=2)],
}
print(json.dumps(found))
"""
HUGGINGFACE_HUB = """
import asyncio, json, sys

from huggingface_hub import AsyncInferenceClient, InferenceClient

BASE = sys.argv[1]


def refused(path, **options):
    client = InferenceClient(model=BASE + path)
    try:
        answer = client.text_generation("a", **options)
        list(answer) if options.get("stream") else None
    except Exception as error:
        return [type(error).__name__, str(error)]


def token(found):
    assert type(found.id) is int and type(found.logprob) is float
    return [found.id, found.text, round(found.logprob, 5), found.special]


def told(details):
    return [details.finish_reason, details.generated_tokens]


async def later():
    client = AsyncInferenceClient(model=BASE + "/invocations")
    return [text async for text in await client.text_generation("a bb", max_new_tokens=2, stream=True)]


client = InferenceClient(model=BASE + "/invocations")
whole = client.text_generation("a bb", max_new_tokens=3, details=True)
stream = list(client.text_generation("a bb", max_new_tokens=3, details=True, stream=True))
assert all(entry.details is None for entry in stream[:-1])
assert type(stream[-1].details).__name__ == "TextGenerationStreamOutputStreamDetails"
found = {
    "whole": [whole.generated_text, told(whole.details), [token(entry) for entry in whole.details.tokens]],
    "stream": [token(entry.token) for entry in stream],
    "end": [stream[-1].generated_text, told(stream[-1].details), stream[-1].details.input_length],
    "text": client.text_generation("a bb", max_new_tokens=3),
    "texts": list(client.text_generation("a bb", max_new_tokens=3, stream=True)),
    "at the root": InferenceClient(model=BASE).text_generation("a bb", max_new_tokens=3),
    "sampled": client.text_generation("a", max_new_tokens=1, do_sample=True, temperature=0.5, top_k=5, top_p=0.9, seed=1, stop=["x"]),
    "async": asyncio.run(later()),
    "validation": refused("/invocations", temperature=0.0),
    "at once": refused("/predictions/fails_at_once"),
    "at once in a stream": refused("/predictions/fails_at_once", stream=True),
    "later": refused("/predictions/fails_later", stream=True, details=True),
}
print(json.dumps(found))
"""


def found_by(client: str, script: str, http: Http) -> dict[str, Any]:
    """What a client has found, in a process of its own."""
    interpreter = or_skip(lambda: python(client))
    command = [interpreter, "-W", "ignore", "-c", script, f"http://127.0.0.1:{http.port}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=CLIENT_SECONDS, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def compatible(language_models: FrontsPod) -> Iterator[Http]:
    with env(language_models, OPTION_TGI_COMPAT="true"):
        yield language_models.llm


TOKENS = [[101, " a", -0.1, False], [102, " bb", -0.2, False], [101, " a", -0.1, False]]


def test_text_generation(compatible: Http) -> None:
    assert found_by("text-generation", TEXT_GENERATION, compatible) == {
        "whole": [" a bb a", ["length", 3, 7], TOKENS],
        "stream": TOKENS,
        "end": ["a bb a bb a", ["length", 3, None], [None, None]],
        "async": [" a bb", TOKENS[:2]],
        "validation": ["ValidationError", "parameters.best_of: this model cannot do that; its backend is vLLM"],
        "at once": ["GenerationError", "the imitation fails at token 0"],
        "at once in a stream": ["GenerationError", "the imitation fails at token 0"],
        "later": ["GenerationError", "the imitation fails at token 2"],
        "absent": ["NotFoundError", "Model not found: absent"],
        "unknown": ["eos_token", -1, None],
        "unknown stream": [-1, -1, -1],
    }


def test_huggingface_hub(compatible: Http) -> None:
    found = found_by("huggingface-hub", HUGGINGFACE_HUB, compatible)
    kind, text = found.pop("validation")
    assert (kind, "parameters.temperature: Expected `float` > 0.0" in text) == ("ValidationError", True)
    assert found == {
        "whole": [" a bb a", ["length", 3], TOKENS],
        "stream": TOKENS,
        "end": [" a bb a", ["length", 3], 2],
        "text": " a bb a",
        "texts": [" a", " bb", " a"],
        "at the root": " a bb a",
        "sampled": " a",
        "async": [" a", " bb"],
        "at once": ["GenerationError", "the imitation fails at token 0"],
        "at once in a stream": ["GenerationError", "the imitation fails at token 0"],
        "later": ["GenerationError", "the imitation fails at token 2"],
    }
