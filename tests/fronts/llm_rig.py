"""Language models in a pod of their own: imitated backends on the real Triton, each with options of its own where it has any."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tests.fronts.rig import Answer, FrontsPod, Http
from tests.real.llm_models import llm_api, mock_llm, plain, trtllm, vllm
from tests.real.models import Files

LINES, EVENTS = "application/jsonlines", "text/event-stream"
BACKENDS: Mapping[str, Callable[[], Files]] = {
    "vllm": vllm,
    "trtllm": trtllm,
    "trtllm_whole": lambda: trtllm(is_decoupled=False),
    "llm_api": llm_api,
    "llm_api_whole": lambda: llm_api(is_decoupled=False),
    "plain": plain,
    "plain_whole": lambda: plain(is_decoupled=False),
}
MODELS: Mapping[str, Callable[[], Files]] = {
    **BACKENDS,
    "fails_at_once": lambda: vllm(fail_at=0),
    "fails_later": lambda: vllm(fail_at=2),
    "slow": lambda: vllm(delay_seconds=0.05),
    "no_text": mock_llm,
}


def with_options(files: Files, text: str) -> Files:
    """The same model with a `serving.properties`."""
    return {**files, "serving.properties": text.encode()}


def ask(http: Http, model: str, inputs: Any, stream: bool | None = None, **parameters: Any) -> Answer:
    """LMI's request to one model."""
    body = {"inputs": inputs, "parameters": parameters} | ({} if stream is None else {"stream": stream})
    return http("POST", f"/predictions/{model}", body)


def lines(answer: Answer, content_type: str = LINES) -> list[Any]:
    """The values of a stream, each in its exact frame."""
    assert (answer.status, answer.headers["content-type"]) == (200, content_type), answer.body
    begin, end = (b"data: ", b"\n\n") if content_type == EVENTS else (b"", b"\n")
    *found, rest = answer.body.split(end)
    assert rest == b""
    assert all(line.startswith(begin) and b"\n" not in line for line in found)
    return [json.loads(line.removeprefix(begin)) for line in found]


def token(word: str, ids: bool = True, log_probs: bool = True) -> dict[str, Any]:
    """As the imitations make it, in LMI's words."""
    return {"id": 100 + len(word) if ids else None, "text": f" {word}", "log_prob": -len(word) / 10 if log_probs else None}


def near(value: Any) -> Any:
    """The same, floats as FP32 has them."""
    if isinstance(value, float):
        return round(value, 5)
    if isinstance(value, Mapping):
        return {name: near(entry) for name, entry in value.items()}
    return [near(entry) for entry in value] if isinstance(value, Sequence) and not isinstance(value, str) else value


@contextmanager
def env(pod: FrontsPod, **changes: str) -> Iterator[None]:
    """The adapter with other variables, over the same Triton and its models; then as before."""
    before = dict(pod.env)
    try:
        pod.env.update(changes)
        pod.adapter.kill()
        pod.start_adapter()
        yield
    finally:
        pod.env.clear()
        pod.env.update(before)
        pod.adapter.kill()
        pod.start_adapter()


@contextmanager
def cancelled_in(pod: FrontsPod, model: str) -> Iterator[None]:
    """A request that begins inside is cancelled in the model after it."""
    folder = pod.repository / model / "1"
    for name in ("begun", "cancelled"):
        (folder / name).unlink(missing_ok=True)
    yield
    pod.until_has(model, "cancelled")


def left(pod: FrontsPod, path: str, model: str, body: Any) -> bytes:
    """Send a request to a slow model, leave when the model has it, or has begun to answer; what has come until then."""
    with pod.llm.begun(path, body) as connection:
        if body.get("stream") or path.endswith("_stream"):
            return connection.recv(4096)
        pod.until_has(model, "begun")
    return b""
