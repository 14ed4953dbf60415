"""Large bodies at once: the adapter's memory stays below the limit that the chart gives it, and small requests go on."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.fronts.rig import Answer, FrontsPod, Http, infer_body
from tests.real.models import affine
from tests.real.polls import until

MIB = 2**20
CALLERS = 4
LIMIT_MIB = 512
"""Of the adapter's container. Source: `adapter.resources` in the chart's values."""
BUDGET = {"HTTP_BODIES_BYTES": "128Mi"}
"""Its default under that limit."""
HTTP_ERRORS_OF_NONE_NOW = {413, 503}

SUM_CONFIG = b"""backend: "python"
instance_group [ { kind: KIND_CPU count: 1 } ]
input [ { name: "X" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] } ]
"""
SUM = b"""import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.array([self.sum(each)], np.float32))]) for each in requests]

    def sum(self, request):
        return pb_utils.get_input_tensor_by_name(request, "X").as_numpy().sum()
"""


@pytest.fixture(scope="module")
def pod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrontsPod]:
    with FrontsPod(tmp_path_factory.mktemp("pod"), {"HTTP_MAX_REQUESTS": "16", **BUDGET}) as pod:
        assert pod.load("m", affine(2, 1)).status == 200
        yield pod


def floats(mib: int) -> bytes:
    """A V2 request as JSON of this length, with as many elements as that can hold."""
    count = mib * MIB // 2
    return b'{"inputs":[{"name":"X","datatype":"FP32","shape":[%d],"data":[%s]}]}' % (count, b"1," * (count - 1) + b"1")


def texts(mib: int) -> bytes:
    """The same with texts of two letters."""
    count = mib * MIB // 5
    return b'{"inputs":[{"name":"X","datatype":"BYTES","shape":[%d],"data":[%s]}]}' % (count, b'"ab",' * (count - 1) + b'"ab"')


def prompt(mib: int) -> bytes:
    """One text."""
    return b'{"inputs":[{"name":"X","datatype":"BYTES","shape":[1],"data":["%s"]}]}' % (b"x" * (mib * MIB))


def nested(element: bytes, mib: int) -> bytes:
    """An object of the generate extension: one key, with as many of these elements as that can hold."""
    return b'{"X":[%s]}' % b",".join([element] * (mib * MIB // (len(element) + 1)))


def binary(mib: int) -> tuple[bytes, dict[str, str]]:
    """The same as binary data, and its headers."""
    entry = {"name": "X", "datatype": "FP32", "shape": [mib * MIB // 4], "parameters": {"binary_data_size": mib * MIB}}
    head = json.dumps({"inputs": [entry], "outputs": [{"name": "Y", "parameters": {"binary_data": True}}]}).encode()
    return head + bytes(mib * MIB), {"Inference-Header-Content-Length": str(len(head))}


def resident_mib(pod: FrontsPod) -> float:
    """The most that was resident since the last call, of the adapter and the process that parses."""
    most = memory_mib(pod, "VmHWM")
    for pid in processes(pod):
        Path(f"/proc/{pid}/clear_refs").write_text("5")  # Source: proc(5): the peak begins anew
    return most


def processes(pod: FrontsPod) -> list[int]:
    """Of the adapter: itself, and the one that parses."""
    own = pod.adapter.pid
    return [own, *(int(pid) for thread in Path(f"/proc/{own}/task").iterdir() for pid in (thread / "children").read_text().split())]


def memory_mib(pod: FrontsPod, row: str) -> float:
    """Of both, as the kernel counts it."""
    texts = [Path(f"/proc/{pid}/status").read_text() for pid in processes(pod)]
    return sum(int(text.partition(f"{row}:")[2].split()[0]) for text in texts if f"{row}:" in text) / 1024


def all_at_once(http: Http, path: str, body: bytes, headers: dict[str, str]) -> list[Answer]:
    with ThreadPoolExecutor(CALLERS) as pool:
        return list(pool.map(lambda _: http("POST", path, body, headers), range(CALLERS)))


@pytest.mark.parametrize(
    ("front", "path"),
    [
        ("v2", "/v2/models/absent/infer"),
        ("v2", "/v2/models/absent/generate"),
        ("sagemaker", "/models/absent/invoke"),
        ("llm", "/predictions/absent"),
    ],
)
def test_a_body_for_a_model_that_does_not_exist_is_not_read(pod: FrontsPod, front: str, path: str) -> None:
    before = resident_mib(pod)

    answers = all_at_once(getattr(pod, front), path, floats(60), {"Content-Type": "application/json"})

    assert {answer.status for answer in answers} <= {400, 404}
    assert b"absent" in answers[0].body
    assert resident_mib(pod) - before < 60, "not one of them is in memory"


@pytest.mark.parametrize(
    ("front", "path", "mib"),
    [
        ("v2", "/v2/models/m/infer", 60),
        ("v2", "/v2/models/m/infer", 20),
        ("v2", "/v2/models/m/generate", 60),
        ("sagemaker", "/models/m/invoke", 60),
    ],
)
def test_large_bodies_of_json_stay_below_the_limit_of_the_pod(pod: FrontsPod, front: str, path: str, mib: int) -> None:
    answers = all_at_once(getattr(pod, front), path, floats(mib), {"Content-Type": "application/json"})

    assert resident_mib(pod) < LIMIT_MIB
    refused = [answer for answer in answers if answer.status in HTTP_ERRORS_OF_NONE_NOW]
    assert len(refused) >= (CALLERS if mib == 60 else CALLERS - 1), [answer.status for answer in answers]
    assert all(b"HTTP_BODIES_BYTES" in answer.body for answer in refused)
    assert all(b"HTTP_MAX_BODY_BYTES" in answer.body for answer in refused if answer.status == 413)
    assert all(answer.headers.get("retry-after") == "1" for answer in refused if answer.status == 503)
    assert pod.invoke("m", 3.0).json["outputs"][0]["data"] == [7.0]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("infer", texts(5)),
        ("infer", texts(15)),
        ("infer", prompt(40)),
        ("generate", nested(b"{}", 2)),
        ("generate", nested(b'{"a":1}', 2)),
        ("generate", nested(b"[]", 2)),
    ],
    ids=["texts", "many texts", "one long text", "empty objects", "objects", "lists"],
)
def test_what_grows_most_when_it_is_parsed_stays_below_the_limit_too(pod: FrontsPod, path: str, body: bytes) -> None:
    answers = all_at_once(pod.v2, f"/v2/models/m/{path}", body, {})

    assert resident_mib(pod) < LIMIT_MIB
    assert {answer.status for answer in answers} <= {400, 413, 503}, "a model of numbers takes none of them"


def test_what_is_parsed_for_clients_that_have_left_counts_until_it_has_ended(pod: FrontsPod) -> None:
    body = nested(b"[]", 4)
    head = b"POST /v2/models/m/generate HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)

    for _ in range(8):
        begun = memory_mib(pod, "VmRSS") + 20
        with socket.create_connection(("127.0.0.1", pod.v2.port)) as client:
            client.sendall(head + body)
            until(lambda begun=begun: is_answered(client) or memory_mib(pod, "VmRSS") > begun, "an answer, or the body is being parsed")

    assert resident_mib(pod) < LIMIT_MIB
    until(lambda: pod.v2("POST", "/v2/models/m/generate", body).status == 400, "the memory of all that have left")


def test_the_process_that_parses_is_started_again(pod: FrontsPod) -> None:
    body = floats(1)
    assert pod.v2("POST", "/v2/models/m/infer", body).status == 200
    (parser,) = processes(pod)[1:]
    os.kill(parser, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(pod.v2, "POST", "/v2/models/m/infer", body)
        until(lambda: memory_mib(pod, "VmRSS") and not waiting.done(), "the body on its way")
        os.kill(parser, signal.SIGKILL)
        assert waiting.result().status in (200, 503), "503, where the body was with the process already"
    assert pod.v2("POST", "/v2/models/m/infer", body).status == 200
    assert parser not in processes(pod)


def is_answered(client: socket.socket) -> bool:
    """Whether something has come."""
    return bool(select.select([client], [], [], 0)[0])


def test_large_binary_bodies_stay_below_the_limit_and_one_is_served(tmp_path: Path) -> None:
    """Answers are not counted, so the model answers with one number."""
    body, headers = binary(20)
    with FrontsPod(tmp_path, BUDGET) as pod:
        assert pod.load("m", {"config.pbtxt": SUM_CONFIG, "1/model.py": SUM}).status == 200

        answers = all_at_once(pod.v2, "/v2/models/m/infer", body, headers)

        assert resident_mib(pod) < LIMIT_MIB
        assert {answer.status for answer in answers} <= {200, 503}
        assert pod.v2("POST", "/v2/models/m/infer", body, headers).status == 200


def test_small_requests_go_on_while_a_large_body_comes_and_a_client_that_leaves_gives_its_memory_back(pod: FrontsPod) -> None:
    large, headers = binary(20)
    head = f"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(large)}\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    with socket.create_connection(("127.0.0.1", pod.v2.port)) as first:
        with socket.create_connection(("127.0.0.1", pod.v2.port)) as second, socket.create_connection(("127.0.0.1", pod.v2.port)) as third:
            for client in (first, second, third):
                client.sendall(head.encode() + b"\r\n" + large[:1000])
            until(lambda: pod.v2("POST", "/v2/models/m/infer", large, headers).status == 503, "three bodies have all of the memory")
            assert pod.v2("POST", "/v2/models/m/infer", infer_body(3.0)).json["outputs"][0]["data"] == [7.0]
        until(lambda: pod.v2("POST", "/v2/models/m/infer", large, headers).status == 200, "the memory of two that have left")
