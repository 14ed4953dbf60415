"""What a backend says of memory, and what a caller says twice: judged by whose words they are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fronts.rig import FrontsPod
from tests.real.llm_models import vllm
from tests.real.models import Files
from tests.real.polls import until

QUOTED = "CUDA out of memory"
OUT_OF_MEMORY = (
    "CUDA out of memory. Tried to allocate 2 GiB",
    "failed to allocate pinned system memory, falling back",
    "Failed to allocate memory for requested buffer of size 1048576",
    "CUDA_OUT_OF_MEMORY",
    "Cuda Runtime (out of memory)",
    "OOM when allocating tensor with shape[1024]",
    "CNMEM_STATUS_OUT_OF_MEMORY",
    "DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes",
    "fork: Cannot allocate memory",
    "Free memory on device (1.0/24.0 GiB) on startup is less than desired GPU memory utilization (0.9, 21.6 GiB)",
    "No available memory for the cache blocks",
)
"""Of ONNX Runtime, CUDA, TensorRT, TensorFlow, PyTorch, the operating system and vLLM."""
CONFIG = b"""backend: "python"
instance_group [ { kind: KIND_CPU count: 1 } ]
input [ { name: "text_input" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "text_output" data_type: TYPE_STRING dims: [ 1 ] } ]
"""
QUOTES = b"""import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse(error=pb_utils.TritonError(f"no answer to {self.prompt(each)}")) for each in requests]

    def prompt(self, request):
        return pb_utils.get_input_tensor_by_name(request, "text_input").as_numpy().ravel()[0].decode()
"""


def quotes() -> Files:
    """A model whose every error quotes the prompt."""
    return {"config.pbtxt": CONFIG, "1/model.py": QUOTES}


def fails_with(text: str) -> Files:
    """A model that does not load, with this text."""
    source = f"class TritonPythonModel:\n    def initialize(self, args):\n        raise RuntimeError({text!r})\n"
    return {"config.pbtxt": CONFIG, "1/model.py": source.encode()}


@pytest.fixture(scope="module")
def pod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrontsPod]:
    with FrontsPod(tmp_path_factory.mktemp("pod")) as pod:
        for name, files in {"quotes": quotes(), "chat": vllm()}.items():
            assert pod.load(name, files).status == 200
        yield pod


@pytest.mark.parametrize(("front", "path"), [("llm", "/predictions/quotes"), ("sagemaker", "/models/quotes/invoke")])
def test_a_prompt_that_a_backend_quotes_is_no_lack_of_memory(pod: FrontsPod, front: str, path: str) -> None:
    answer = getattr(pod, front)("POST", path, {"inputs": QUOTED}, {"Content-Type": "application/json"})

    assert QUOTED in answer.body.decode()
    assert answer.status != 507


@pytest.mark.parametrize("text", OUT_OF_MEMORY)
def test_a_load_that_a_backend_has_no_memory_for_is_507(pod: FrontsPod, text: str) -> None:
    assert pod.load("large", fails_with(text)).status == 507


def test_a_target_that_is_no_text_is_the_callers_mistake(pod: FrontsPod) -> None:
    body = b'{"inputs": "one two"}'
    head = (
        b"POST /invocations HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\nX-Amzn-SageMaker-Target-Model: \xff\r\n\r\n"
    )

    answer = pod.llm.raw(head % len(body) + body)

    assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 404 ")), answer[:300]


def test_stop_and_stop_sequences_both_count_or_are_refused(pod: FrontsPod) -> None:
    for names in (("stop", "stop_sequences"), ("stop_sequences", "stop")):
        parameters = {names[0]: ["two"], names[1]: ["four"], "max_new_tokens": 8}
        answer = pod.llm("POST", "/predictions/chat", {"inputs": "one two three four", "parameters": parameters})

        assert answer.status in (400, 422, 424) or "three" not in answer.json["generated_text"], names


def test_a_temperature_that_does_not_count_is_told(pod: FrontsPod) -> None:
    before = len(pod.adapter.log_text())
    parameters = {"do_sample": False, "temperature": 0.7, "max_new_tokens": 2}

    answer = pod.llm("POST", "/predictions/chat", {"inputs": "one two", "parameters": parameters})

    if answer.status == 200:
        until(lambda: "temperature" in pod.adapter.log_text()[before:], "the line of the request names it")
    else:
        assert answer.status in (400, 422, 424)
