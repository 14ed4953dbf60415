"""TGI's paths on the real Triton, for Hugging Face's clients, each a process in a venv of its own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fronts.bed import Answer, Pod
from tests.fronts.install import python
from tests.real.llm_models import llm_api, trtllm, vllm
from tests.real.parts import or_skip

CLIENT_SECONDS = 100
PROMPT, TEXT = "one three five", " one three"
MODELS = {"vllm": vllm(), "trtllm": trtllm(), "api": llm_api(), "fails": vllm(fail_at=1)}
STRICT_CLIENT = """
import json, sys
from text_generation import Client
from text_generation.errors import GenerationError, ValidationError

client = Client(sys.argv[1], timeout=60)
whole = client.generate("one three five", max_new_tokens=2)
stopped = client.generate("one three five", max_new_tokens=9, stop_sequences=["five"])
stream = list(client.generate_stream("one three five", max_new_tokens=2))
found = {
    "whole": [whole.generated_text, whole.details.finish_reason, whole.details.generated_tokens, [t.text for t in whole.details.tokens]],
    "stopped": [stopped.generated_text, stopped.details.finish_reason],
    "stream": [[r.token.id, r.token.text, r.token.logprob, r.token.special] for r in stream],
    "end": [stream[-1].generated_text, stream[-1].details.finish_reason],
}
print(json.dumps(found))
"""
FAILING_CLIENT = """
import json, sys
from text_generation import Client
from text_generation.errors import GenerationError, ValidationError

client, found = Client(sys.argv[1], timeout=60), []
for name, call in (
    ("whole", lambda: client.generate("one three", max_new_tokens=2)),
    ("stream", lambda: list(client.generate_stream("one three", max_new_tokens=2))),
    ("bad", lambda: client.generate("", max_new_tokens=2)),
):
    try:
        call()
    except Exception as error:
        found.append([name, type(error).__name__, str(error)])
print(json.dumps(found))
"""
HUB_CLIENT = """
import json, sys
from huggingface_hub import InferenceClient

found = {}
for name, url in (("tgi", sys.argv[1]), ("invocations", sys.argv[1] + "/invocations")):
    client = InferenceClient(url, timeout=60)
    whole = client.text_generation("one three five", max_new_tokens=2, details=True)
    stream = list(client.text_generation("one three five", max_new_tokens=2, details=True, stream=True))
    found[name] = {
        "plain": client.text_generation("one three five", max_new_tokens=2),
        "whole": [whole.generated_text, whole.details.finish_reason, whole.details.generated_tokens, len(whole.details.tokens)],
        "stream": [[part.token.id, part.token.text, part.token.logprob] for part in stream],
        "end": [stream[-1].generated_text, stream[-1].details.finish_reason, stream[-1].details.generated_tokens],
    }
try:
    InferenceClient(sys.argv[1], timeout=60).text_generation("a", max_new_tokens=2, top_p=7)
except Exception as error:
    found["refused"] = [type(error).__name__, str(error)]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def pods(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    with Pod(tmp_path_factory.mktemp("pod"), {"OPTION_TGI_COMPAT": "true"}) as pod:
        yield pod


def only(pod: Pod, name: str) -> Pod:
    """A path that names no model is for the only one."""
    for other in pod.listed():
        if other != name:
            assert pod.unload(other).status == 200
    if not pod.listed():
        assert pod.load(name, MODELS[name]).status == 200
    return pod


def run(client: str, code: str, pod: Pod) -> Any:
    interpreter = or_skip(lambda: python(client))
    command = [interpreter, "-c", code, f"http://127.0.0.1:{pod.llm.port}"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=CLIENT_SECONDS, check=False)
    assert found.returncode == 0, found.stderr[-2000:]
    return json.loads(found.stdout)


def ask(pod: Pod, path: str, *, stream: bool | None = None, **parameters: Any) -> Answer:
    body: dict[str, Any] = {"inputs": PROMPT, "parameters": {"max_new_tokens": 2, **parameters}}
    return pod.llm("POST", path, body if stream is None else {**body, "stream": stream})


@pytest.mark.parametrize(("name", "details"), [("vllm", [[103, -0.3], [105, -0.5]]), ("trtllm", [[-1, -0.3], [-1, -0.5]]), ("api", None)])
def test_the_strict_client(pods: Pod, name: str, details: list[list[float]] | None) -> None:
    """It takes no answer that misses a field, or has a null where TGI never has one."""
    found = run("text-generation", STRICT_CLIENT, only(pods, name))
    tokens = {"vllm": 2, "trtllm": 2, "api": -1}[name]
    assert found["whole"] == [TEXT, "length", tokens, [" one", " three"]]
    assert found["stopped"] == [TEXT, {"vllm": "stop_sequence", "trtllm": "eos_token", "api": "stop_sequence"}[name]]
    assert [[part[1], part[3]] for part in found["stream"] if part[1]] == [[" one", False], [" three", False]]
    if details is not None:
        assert [[part[0], round(part[2], 5)] for part in found["stream"] if part[1]] == details
    assert found["end"] == [TEXT, "length"]


def test_the_strict_client_has_typed_errors(pods: Pod) -> None:
    whole, stream, bad = run("text-generation", FAILING_CLIENT, only(pods, "fails"))
    assert whole[:2] == ["whole", "GenerationError"]
    assert stream[:2] == ["stream", "GenerationError"]
    assert "the imitation fails at token 1" in whole[2]
    assert "the imitation fails at token 1" in stream[2]
    assert (bad[:2], "inputs" in bad[2]) == (["bad", "ValidationError"], True)


def test_the_hubs_client(pods: Pod) -> None:
    """Also at /invocations, where a model's options make it TGI's: as DJL Serving's own acceptance test asks."""
    found = run("huggingface-hub", HUB_CLIENT, only(pods, "vllm"))
    for name in ("tgi", "invocations"):
        assert found[name]["plain"] == TEXT
        assert found[name]["whole"] == [TEXT, "length", 2, 2]
        assert [type(value) for part in found[name]["stream"] for value in part] == [int, str, float] * 2
        assert found[name]["end"] == [TEXT, "length", 2]
    kind, text = found["refused"]
    assert (kind, "top_p" in text) == ("ValidationError", True)


@pytest.mark.parametrize(
    ("path", "stream", "kind", "shape"),
    [
        ("/", None, "application/json", list),
        ("/", True, "text/event-stream", None),
        ("/generate", True, "application/json", dict),
        ("/generate_stream", False, "text/event-stream", None),
        ("/invocations", None, "application/json", list),
    ],
)
def test_each_path_has_its_form(pods: Pod, path: str, stream: bool | None, kind: str, shape: type | None) -> None:
    answer = ask(only(pods, "vllm"), path, stream=stream)
    assert (answer.status, answer.headers["content-type"]) == (200, kind), answer.body
    if shape is not None:
        assert isinstance(answer.json, shape)
        assert (answer.headers["x-prompt-tokens"], answer.headers["x-generated-tokens"]) == ("3", "2")
        assert int(answer.headers["x-total-time"]) >= 0
        return
    events = [json.loads(part.removeprefix(b"data: ")) for part in answer.body.split(b"\n\n")[:-1]]
    assert [event["index"] for event in events] == list(range(1, len(events) + 1))
    assert [event["generated_text"] for event in events] == [None] * (len(events) - 1) + [TEXT]
    assert (answer.headers["cache-control"], answer.headers["x-accel-buffering"]) == ("no-cache", "no")


def test_errors_have_tgis_types(pods: Pod) -> None:
    pod = only(pods, "fails")
    refused = ask(pod, "/generate", temperature=0)
    assert (refused.status, refused.json["error_type"], "temperature" in refused.json["error"]) == (422, "validation", True)
    failed = ask(pod, "/generate")
    assert (failed.status, failed.json["error_type"]) == (424, "generation")
    stream = ask(pod, "/generate_stream").body.split(b"\n\n")
    assert json.loads(stream[-2].removeprefix(b"data: "))["error_type"] == "generation"
    assert pod.llm("POST", "/generate", b"{").json["error_type"] == "validation"


def test_info_and_health(pods: Pod) -> None:
    pod = only(pods, "vllm")
    info = pod.llm("GET", "/info").json
    assert (info["model_id"], info["backend"], info["token_details"], info["model_sha"]) == ("vllm", "vllm", "ids", None)
    assert (pod.llm("GET", "/health").status, pod.llm("GET", "/ping").status) == (200, 200)
    assert pod.llm("GET", "/generate").status == 405
    assert pod.unload("vllm").status == 200
    assert pod.llm("GET", "/info").status == 404
    assert pod.llm("GET", "/health").status == 200
