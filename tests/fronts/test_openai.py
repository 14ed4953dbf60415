"""OpenAI's API on the real Triton: completions, chats, streams, errors, and clients of other projects, each in a venv of its own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.fronts import llm_rig
from tests.fronts.install import python
from tests.fronts.llm_rig import EVENTS, cancelled_in, left
from tests.fronts.rig import Answer, FrontsPod, Http
from tests.real.llm_models import vllm
from tests.real.models import Files
from tests.real.parts import or_skip

CLIENT_SECONDS = 100
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
ENDLESS = b"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
HUNGRY = b"{% set x = namespace(y='a') %}{% for a in range(60) %}{% set x.y = x.y ~ x.y %}{% endfor %}"
TOKENIZER = {"bos_token": {"content": "<s>"}, "eos_token": "</s>", "chat_template": TEMPLATE}
CHATS: Mapping[str, Callable[[], Files]] = {
    "chats": lambda: {**vllm(), "chat_template.jinja": TEMPLATE.encode()},
    "tokenizer": lambda: {**vllm(), "1/tokenizer_config.json": json.dumps(TOKENIZER).encode()},
    "named": lambda: {
        **vllm(),
        "tokenizer_config.json": json.dumps({"chat_template": [{"name": "default", "template": TEMPLATE}]}).encode(),
    },
    "refusing": lambda: {**vllm(), "chat_template.jinja": b"{{ raise_exception('roles must alternate') }}"},
    "endless": lambda: {**vllm(), "chat_template.jinja": ENDLESS},
    "hungry": lambda: {
        **vllm(),
        "chat_template.jinja": HUNGRY,
    },
    "curious": lambda: {**vllm(), "chat_template.jinja": b"{{ messages.__class__.__mro__ }}{{ cycler.__init__.__globals__.os.environ }}"},
}
HI = [{"role": "user", "content": "a bb"}]
BODY: Mapping[str, Any] = {"model": "vllm", "prompt": "a bb", "max_tokens": 3}


@pytest.fixture(scope="module")
def http(language_models: FrontsPod) -> Http:
    language_models.keep(CHATS)
    return language_models.llm


def events(answer: Answer) -> list[Any]:
    """The values of a stream, which ends with `[DONE]`."""
    assert (answer.status, answer.headers["content-type"]) == (200, EVENTS), answer.body
    *found, done, rest = answer.body.split(b"\n\n")
    assert (done, rest) == (b"data: [DONE]", b"")
    return [json.loads(line.removeprefix(b"data: ")) for line in found]


def error(answer: Answer) -> tuple[int, str, str | None]:
    """Status, text and field."""
    assert answer.json.keys() == {"error"}
    assert answer.json["error"].keys() == {"message", "type", "param", "code"}
    return answer.status, answer.json["error"]["message"], answer.json["error"]["param"]


def test_a_completion(http: Http) -> None:
    answer = http("POST", "/v1/completions", BODY)

    assert answer.status == 200, answer.body
    value = answer.json
    assert value.pop("id").startswith("cmpl-")
    assert value.pop("created") > 1_700_000_000
    assert value == {
        "object": "text_completion",
        "model": "vllm",
        "choices": [{"index": 0, "text": " a bb a", "logprobs": None, "finish_reason": "length"}],
        "usage": {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5},
    }


def test_a_choice_for_each_prompt_and_each_n(http: Http) -> None:
    answer = http("POST", "/v1/completions", {**BODY, "prompt": ["a", "bb"], "n": 2, "max_tokens": 1, "echo": True})

    assert [choice["text"] for choice in answer.json["choices"]] == ["a a", "a a", "bb bb", "bb bb"]
    assert [choice["index"] for choice in answer.json["choices"]] == [0, 1, 2, 3]
    assert answer.json["usage"] == {"prompt_tokens": 2, "completion_tokens": 4, "total_tokens": 6}


def test_stops_limits_and_log_probabilities(http: Http) -> None:
    answer = http("POST", "/v1/completions", {**BODY, "max_tokens": 9, "stop": "bb", "logprobs": 0}).json["choices"][0]
    sixteen = http("POST", "/v1/completions", {"model": "vllm", "prompt": "a"}).json["choices"][0]

    assert (answer["text"], answer["finish_reason"]) == (" a", "stop")
    assert answer["logprobs"]["tokens"][0] == " a"
    assert answer["logprobs"]["token_logprobs"][0] == pytest.approx(-0.1)
    assert sixteen["text"] == " a" * 16


@pytest.mark.parametrize("model", ["chats", "tokenizer", "named"])
def test_a_chat(http: Http, model: str) -> None:
    """The beginning-of-sequence token is the tokenizer's: it is not in the prompt."""
    body = {"model": model, "messages": [{"role": "system", "content": "x"}, *HI], "max_completion_tokens": 7, "logprobs": True}
    value = http("POST", "/v1/chat/completions", body).json

    assert value["object"] == "chat.completion"
    choice = value["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": " system: x user: a bb assistant: system:", "refusal": None}
    assert choice["finish_reason"] == "length"
    assert choice["logprobs"]["content"][0] == {
        "token": " system:", "logprob": pytest.approx(-0.7), "bytes": list(b" system:"), "top_logprobs": []
    }  # fmt: skip
    assert value["usage"]["completion_tokens"] == 7


def test_a_chat_of_text_parts(http: Http) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "bb"}]
    value = http("POST", "/v1/chat/completions", {"model": "chats", "messages": [{"role": "user", "content": parts}], "max_tokens": 3}).json

    assert value["choices"][0]["message"]["content"] == " user: a bb"


def test_a_stream_of_a_chat(http: Http) -> None:
    body = {"model": "chats", "messages": HI, "max_tokens": 2, "stream": True, "stream_options": {"include_usage": True}, "n": 2}
    *pieces, last = events(http("POST", "/v1/chat/completions", body))

    assert {piece["object"] for piece in pieces} == {"chat.completion.chunk"}
    assert len({piece["id"] for piece in pieces}) == 1
    for index in (0, 1):
        own = [piece["choices"][0] for piece in pieces if piece["choices"][0]["index"] == index]
        assert [choice["delta"] for choice in own] == [{"role": "assistant", "content": ""}, {"content": " user:"}, {"content": " a"}, {}]
        assert [choice["finish_reason"] for choice in own] == [None, None, None, "length"]
    assert all(piece["usage"] is None for piece in pieces)
    assert (last["choices"], last["usage"]) == ([], {"prompt_tokens": 4, "completion_tokens": 4, "total_tokens": 8})


def test_a_stream_has_the_text_of_the_whole(http: Http) -> None:
    for model in llm_rig.BACKENDS:
        body = {**BODY, "model": model, "max_tokens": 5, "temperature": 0, "echo": True}
        whole = http("POST", "/v1/completions", body).json["choices"][0]
        pieces = [piece["choices"][0] for piece in events(http("POST", "/v1/completions", {**body, "stream": True}))]
        lmi = llm_rig.ask(http, model, "a bb", max_new_tokens=5, return_full_text=True).json["generated_text"]

        assert "".join(piece["text"] for piece in pieces) == whole["text"] == lmi == "a bb a bb a bb a"
        assert pieces[-1]["finish_reason"] in (whole["finish_reason"], "length")
        assert whole["finish_reason"] == ("length" if model in ("vllm", "llm_api", "llm_api_whole") else "stop")  # it is not told


@pytest.mark.parametrize(
    ("path", "change", "field", "words"),
    [
        ("completions", {"model": None}, "model", "must be the name of a model"),
        ("completions", {"model": "vllm\0x"}, "model", "must be the name of a model"),
        ("completions", {"prompt": [1, 2]}, "prompt", "Expected `str`, got `int` - at `$[0]`"),
        ("completions", {"prompt": ["a"] * 64, "n": 2}, "prompt", "64 prompts with 2 choices each; 64 choices are the most"),
        ("completions", {"n": 0}, "n", "Expected `int` >= 1"),
        ("completions", {"n": 2, "seed": 1}, "n", "with a seed all choices would be equal"),
        ("completions", {"n": 9, "stream": True}, "n", "a stream has at most 8 choices"),
        ("completions", {"max_tokens": 0}, "max_tokens", "Expected `int` >= 1"),
        ("completions", {"temperature": "hot"}, "temperature", "Expected `float`, got `str`"),
        ("completions", {"stop": [""]}, "stop", "Expected `str` of length >= 1 - at `$[0]`"),
        ("completions", {"logprobs": 5}, "logprobs", "must be 0: of the tokens that were chosen"),
        ("completions", {"suffix": "x"}, "suffix", "this server cannot do that"),
        ("completions", {"stream": 1}, "stream", "Expected `bool`, got `int`"),
        ("completions", {"stream_options": 1}, "stream_options", "Expected `object`, got `int`"),
        ("completions", {"model": "trtllm", "min_p": 0.5}, "min_p", "this model cannot do that; its backend is TensorRT-LLM"),
        ("chat/completions", {"messages": []}, "messages", "Expected `array` of length >= 1"),
        ("chat/completions", {"messages": [{"content": "a"}]}, "messages", "Object missing required field `role` - at `$[0]`"),
        ("chat/completions", {"tools": [{}]}, "tools", "this server cannot do that"),
        ("chat/completions", {"response_format": {"type": "json_object"}}, "response_format", "this server cannot do that"),
        ("chat/completions", {"top_logprobs": 2}, "top_logprobs", "this server cannot do that"),
        (
            "chat/completions",
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            "messages",
            "Invalid value 'image_url' - at `$[0].content[0].type`",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_had_is_named(http: Http, path: str, change: dict[str, Any], field: str, words: str) -> None:
    base = dict(BODY) if path == "completions" else {"model": "chats", "messages": HI}

    assert error(http("POST", f"/v1/{path}", {**base, **change})) == (400, f"{field}: {words}", field)


def test_models_and_those_that_are_not_there(http: Http) -> None:
    listed = http("GET", "/v1/models").json
    one = http("GET", "/v1/models/vllm").json
    missing = http("POST", "/v1/completions", {**BODY, "model": "none"})

    assert listed["object"] == "list"
    assert {"vllm", "chats"} <= {entry["id"] for entry in listed["data"]}
    assert one == {"id": "vllm", "object": "model", "created": 0, "owned_by": "modelmesh-triton-adapter"}
    assert error(missing) == (404, "Model not found: none", "model")
    assert missing.json["error"]["code"] == "model_not_found"
    assert error(http("GET", "/v1/models/none"))[0] == 404
    assert error(http("GET", "/v1/nothing"))[0] == 404
    assert error(http("POST", "/v1/completions", b"{"))[0] == 400


def test_a_model_without_a_template_answers_completions_only(http: Http) -> None:
    status, text, field = error(http("POST", "/v1/chat/completions", {"model": "vllm", "messages": HI}))

    assert (status, field) == (400, "messages")
    assert text.endswith("it answers /v1/completions only")


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("refusing", "the model's chat template refuses these messages: TemplateError: roles must alternate"),
        ("endless", "the model's chat template has made no prompt within 2 s"),
        ("hungry", "the model's chat template refuses these messages: MemoryError: "),
        ("curious", "the model's chat template refuses these messages: SecurityError: access to attribute '__class__'"),
    ],
)
def test_a_template_delays_no_other_request(http: Http, model: str, words: str) -> None:
    for _ in range(2):
        answer = http("POST", "/v1/chat/completions", {"model": model, "messages": HI})
        assert answer.status == 400
        assert error(answer)[1].startswith(words)
    assert http("POST", "/v1/chat/completions", {"model": "chats", "messages": HI, "max_tokens": 1}).status == 200


def test_failures_before_and_in_a_stream(http: Http) -> None:
    at_once = http("POST", "/v1/completions", {**BODY, "model": "fails_at_once", "stream": True})
    *pieces, last = events(http("POST", "/v1/completions", {**BODY, "model": "fails_later", "stream": True}))

    assert error(at_once)[0] == 500
    assert "the imitation fails at token 0" in error(at_once)[1]
    assert [piece["choices"][0]["text"] for piece in pieces] == [" a", " bb"]
    assert last["error"]["type"] == "server_error"
    assert "the imitation fails at token 2" in last["error"]["message"]


def test_a_client_that_leaves_ends_the_generation(language_models: FrontsPod, http: Http) -> None:
    with cancelled_in(language_models, "slow"):
        body = {"model": "slow", "prompt": "a " * 500, "max_tokens": 500, "stream": True}
        assert left(language_models, "/v1/completions", "slow", body).startswith(b"HTTP/1.1 200")


def test_the_form_of_the_body_decides_where_the_path_is_of_others(language_models: FrontsPod, http: Http) -> None:
    by_path = http("POST", "/invocations", {"prompt": "a bb", "max_tokens": 1})
    by_name = language_models.sagemaker("POST", "/models/chats/invoke", {"messages": HI, "max_tokens": 1})

    assert by_path.json["choices"][0]["text"] == " a"
    assert by_path.json["model"] == "vllm"
    assert by_name.json["choices"][0]["message"]["content"] == " user:"


LONG = "a " * 200_000
"""Such a body is parsed in a process of its own."""


@pytest.mark.parametrize(
    ("front", "path", "body", "text"),
    [
        ("llm", "/v1/completions", {"model": "vllm", "prompt": LONG, "max_tokens": 2}, " a a"),
        ("llm", "/v1/chat/completions", {"model": "chats", "messages": [{"role": "user", "content": LONG}], "max_tokens": 2}, " user: a"),
        ("llm", "/predictions/vllm", {"inputs": LONG, "parameters": {"max_new_tokens": 2}}, " a a"),
        ("llm", "/predictions/vllm", {"inputs": [LONG, "b"], "parameters": {"max_new_tokens": 2}}, " b b"),
        ("llm", "/generate", {"inputs": LONG, "parameters": {"max_new_tokens": 2}}, " a a"),
        ("llm", "/predictions/vllm", {"inputs": LONG, "parameters": {"top_p": 2}}, "parameters.top_p: "),
        ("llm", "/v1/completions", {"model": "vllm", "prompt": LONG, "top_p": 2}, '"param":"top_p"'),
        ("sagemaker", "/models/vllm/invoke", {"inputs": LONG, "parameters": {"max_new_tokens": 2}}, " a a"),
        ("sagemaker", "/models/vllm/invoke", {"text_input": LONG, "sampling_parameters": '{"max_tokens": 2}'}, "a a a"),
        ("v2", "/v2/models/vllm/generate", {"text_input": LONG, "exclude_input_in_output": True, "x": "y"}, '"text_output":" a a a'),
    ],
)
def test_a_long_prompt_is_answered_as_a_short_one(
    language_models: FrontsPod, http: Http, front: str, path: str, body: dict[str, Any], text: str
) -> None:
    answer = getattr(language_models, front)("POST", path, body, {"Content-Type": "application/json"})
    assert text in answer.body.decode(), answer.body[:300]
    assert ("param" in text) == (answer.status in (400, 424))


def test_a_body_that_no_language_model_reads_is_413(http: Http) -> None:
    answer = http("POST", "/v1/completions", {"model": "vllm", "prompt": "a" * 2**22})
    assert (answer.status, "4194304 bytes" in answer.json["error"]["message"]) == (413, True)


CLIENT = """
import sys
from openai import OpenAI, BadRequestError, NotFoundError
client = OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0)
assert "chats" in [model.id for model in client.models.list()]
text = client.completions.create(model="vllm", prompt="a bb", max_tokens=3)
print(text.choices[0].text, text.usage.total_tokens)
messages = [{"role": "user", "content": "a bb"}]
chat = client.chat.completions.create(model="chats", messages=messages, max_tokens=3)
print(chat.choices[0].message.content, chat.choices[0].finish_reason)
stream = client.chat.completions.create(model="chats", messages=messages, max_tokens=3, stream=True, stream_options={"include_usage": True})
pieces = list(stream)
print("".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices), pieces[-1].usage.total_tokens)
for model, kind in (("none", NotFoundError), ("vllm", BadRequestError)):
    try:
        client.chat.completions.create(model=model, messages=messages)
    except kind as error:
        print(type(error).__name__, error.param)
"""
LANGCHAIN = """
import sys
from langchain_openai import ChatOpenAI
model = ChatOpenAI(model="chats", base_url=sys.argv[1], api_key="none", max_tokens=3, max_retries=0)
print(model.invoke("a bb").content)
print("".join(piece.content for piece in model.stream("a bb")))
"""


@pytest.mark.parametrize(
    ("client", "program", "said"),
    [
        ("openai", CLIENT, " a bb a 5\n user: a bb length\n user: a bb 7\nNotFoundError model\nBadRequestError messages\n"),
        ("langchain", LANGCHAIN, " user: a bb\n user: a bb\n"),
    ],
)
def test_clients_of_other_projects(http: Http, client: str, program: str, said: str) -> None:
    interpreter = or_skip(lambda: python(client))
    command = [str(interpreter), "-c", program, f"http://127.0.0.1:{http.port}/v1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=CLIENT_SECONDS)

    assert (done.returncode, done.stdout) == (0, said), done.stderr
