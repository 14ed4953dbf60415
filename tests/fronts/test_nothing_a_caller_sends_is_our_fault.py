"""
Bodies that no client would write: each front answers below 500, and its models serve on.

Schemathesis makes requests of each front's own description; mutations of good bodies go deeper. Triton's own fronts die of some.
"""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.fronts.install import python
from tests.fronts.rig import FrontsPod, Http, infer_body
from tests.real.children import bare_environment
from tests.real.llm_models import vllm
from tests.real.models import affine
from tests.real.parts import or_skip

EXAMPLES, MUTATIONS, SECONDS = 25, 100, 120
CHECKS = "not_a_server_error,response_schema_conformance,content_type_conformance,unsupported_method,allow_header_conformance"
MODELS = {"plain": affine(2, 1), "chat": vllm()}
PROMPT = {"inputs": "one two", "parameters": {"max_new_tokens": 2, "details": True, "stop": ["x"], "temperature": 0.5}, "stream": False}
BINARY_HEAD = json.dumps(
    {"inputs": [{"name": "X", "shape": [2], "datatype": "FP32", "parameters": {"binary_data_size": 8}}], "outputs": [{"name": "Y"}]}
).encode()


@pytest.fixture(scope="module")
def pod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrontsPod]:
    settings = {"V2_REPOSITORY_API": "true", "SAGEMAKER_LOCAL_ENDPOINTS": "true", "LMI_MODEL": "chat"}
    with FrontsPod(tmp_path_factory.mktemp("pod"), settings) as pod:
        for name, files in MODELS.items():
            assert pod.load(name, files).status == 200
        yield pod


def assert_all_is_well(pod: FrontsPod, triton: int) -> None:
    assert (pod.listed(), pod.triton.pid) == (sorted(MODELS), triton)
    assert pod.invoke("plain", 4.0).json["outputs"][0]["data"] == [9]
    assert pod.llm("POST", "/invocations", PROMPT).status == 200
    assert "Traceback" not in pod.adapter.log_text()


@pytest.mark.long
@pytest.mark.parametrize(("front", "name"), [("sagemaker", "absent"), ("v2", "plain"), ("llm", "chat")])
def test_requests_made_of_its_description(pod: FrontsPod, tmp_path: Path, front: str, name: str) -> None:
    """Names of models that must stay loaded are not given to what unloads them."""
    triton = pod.triton.pid
    config = tmp_path / "schemathesis.toml"
    config.write_text(f'[parameters]\nname = "{name}"\nversion = 1\n')
    command = [
        or_skip(lambda: python("schemathesis")).with_name("schemathesis"),
        *("--config-file", config, "run", f"http://127.0.0.1:{getattr(pod, front).port}/openapi.json"),
        *("--checks", CHECKS, "--max-examples", str(EXAMPLES), "--seed", "13", "--request-timeout", "20", "--warnings", "off"),
        *("--exclude-path-regex", "^/v2/repository/models/", "--suppress-health-check", "all"),
    ]
    found = subprocess.run(command, cwd=tmp_path, env=bare_environment(), capture_output=True, text=True, timeout=SECONDS, check=False)
    assert found.returncode == 0, found.stdout[-4000:] + found.stderr[-1000:]
    assert_all_is_well(pod, triton)


def mutated(body: bytes, chance: random.Random) -> bytes:
    text = bytearray(body)
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(text) + 1)
        match chance.randrange(5):
            case 0:
                text[place : place + chance.randint(1, 8)] = b""
            case 1:
                text[place:place] = bytes(chance.choices(b'{}[]",:\\0123456789eE-+.NaIftn\x00\xff\xc3', k=chance.randint(1, 4)))
            case 2:
                text[place : place + 1] = chance.randbytes(1)
            case 3:
                start = chance.randrange(len(text) + 1)
                text[place:place] = text[start : start + chance.randint(1, 40)]
            case _:
                number = chance.choice([b"-1", b"1e999", b"18446744073709551616", b"null", b"[]", b"{}", b'""', b"1.5", b"true", b"NaN"])
                text[place : place + chance.randint(1, 4)] = number
    return bytes(text)


@pytest.mark.parametrize(
    ("front", "path", "body", "headers"),
    [
        ("v2", "/v2/models/plain/infer", json.dumps(infer_body(1.5)).encode(), {}),
        ("v2", "/v2/models/plain/infer", BINARY_HEAD + bytes(8), {"Inference-Header-Content-Length": str(len(BINARY_HEAD))}),
        ("v2", "/v2/models/plain/generate", b'{"id": "a", "X": [1.5, 2], "parameters": {"a": 1, "b": "c"}}', {}),
        ("v2", "/v2/models/chat/generate_stream", b'{"text_input": "one two", "stream": true}', {}),
        ("v2", "/v2/repository/index", b'{"ready": true}', {}),
        ("v2", "/v2/repository/models/absent/load", b'{"parameters": {"config": "{\\"max_batch_size\\": 1}", "file:1/a": "AAAA"}}', {}),
        ("v2", "/v2/repository/models/absent/unload", b'{"parameters": {"unload_dependents": true}}', {}),
        ("sagemaker", "/models", b'{"model_name": "n", "url": "/opt/ml/models/n/model"}', {}),
        ("sagemaker", "/models/plain/invoke", json.dumps(infer_body(1.5)).encode(), {"Content-Type": "application/json"}),
        ("sagemaker", "/models/chat/invoke", json.dumps(PROMPT).encode(), {"Content-Type": "application/json"}),
        ("llm", "/invocations", json.dumps(PROMPT).encode(), {}),
        ("llm", "/generate_stream", json.dumps(PROMPT).encode(), {}),
    ],
)
def test_mutations_of_good_bodies(pod: FrontsPod, front: str, path: str, body: bytes, headers: Mapping[str, str]) -> None:
    triton, http, chance = pod.triton.pid, getattr(pod, front), random.Random(13)
    assert isinstance(http, Http)
    bad: list[Any] = []
    with http.kept() as ask:
        for _ in range(MUTATIONS if "repository" not in path else MUTATIONS // 10):
            sent = mutated(body, chance)
            answer = ask("POST", path, sent, headers)
            if answer.status >= 500:
                bad.append((answer.status, answer.body[:200], sent))
    assert bad == []
    assert_all_is_well(pod, triton)


@pytest.mark.parametrize(
    "text",
    [
        b"NONSENSE\r\n\r\n",
        b"GET /v2 HTTP/1.1\r\nHost: x\r\nBad\x00Header: secret\r\n\r\n",
        b"GET /" + b"secret" * 2000 + b" HTTP/1.1\r\n\r\n",
        b"GET /v2 HTTP/1.1\r\nHost: x\r\nContent-Length: -3\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03secret\r\n\r\n",
        b"POST /v2/models/plain/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
)
def test_what_is_no_http_is_told_in_json_and_in_one_line(pod: FrontsPod, text: bytes) -> None:
    before = len(pod.adapter.log_text())
    head, _, body = pod.v2.raw(text).partition(b"\r\n\r\n")
    assert (b" 400 " in head, b"Server: adapter" in head, b"X-Request-Id" in head) == (True, True, True)
    assert (b"Content-Type: application/json" in head, list(json.loads(body))) == (True, ["error"])
    assert "secret" not in pod.adapter.log_text()[before:] + str(body)
    assert_all_is_well(pod, pod.triton.pid)
