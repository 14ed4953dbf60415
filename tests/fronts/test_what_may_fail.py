"""Deaths, absences and bounds, each in a pod of its own: a model is listed and serves, or it is 404 and out of Triton."""

from __future__ import annotations

import os
import random
import signal
import socket
import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from onnx import TensorProto

from tests.fronts.platform import Platform
from tests.fronts.rig import FrontsPod, Http
from tests.integration.conftest import get
from tests.real.adapter import AdapterProcess
from tests.real.certificates import make_certificates
from tests.real.models import affine, identity, sleeper, write
from tests.real.polls import until
from tests.real.ports import free_ports
from tests.real.triton import Triton

JSON = {"Content-Type": "application/json"}


def is_settled(pod: FrontsPod) -> bool | None:
    """Every model that is listed serves, and Triton's folder has no other."""
    names = pod.listed()
    is_same = len(os.listdir(pod.repository)) == len(names)
    return (is_same and all(pod.invoke(name, 1.0).status == 200 for name in names)) or None


@pytest.mark.parametrize(
    ("models", "fit", "memory"),  # 256 MiB are Triton's, a model has 10 MiB and some
    [(5, 3, "288MiB"), pytest.param(50, 10, "361MiB", marks=[pytest.mark.long, pytest.mark.timeout(420)])],
)
def test_many_models_go_through_a_memory_for_few(tmp_path: Path, models: int, fit: int, memory: str) -> None:
    files = {**affine(2, 1), "1/weights.bin": bytes(8 * 2**20)}
    with FrontsPod(tmp_path, {"CONTAINER_MEM_REQ_BYTES": memory}) as pod:
        urls = {f"m{number:02}": pod.put(f"m{number:02}", files) for number in range(models)}
        chance = random.Random(13)
        with Platform(pod, urls) as platform:
            for name in [*urls, *chance.choices(list(urls), k=models // 10)]:
                answer = platform.ask(name, 3.0)
                assert (answer.status, answer.json["outputs"][0]["data"]) == (200, [7.0]), answer.body
        assert 0 < platform.most_listed <= fit, "a sample: the poller may miss the moment of the most"
        assert platform.unloads >= models - fit
        assert platform.bad_polls == []
        assert is_settled(pod)


def test_models_and_their_names_outlive_the_adapter(tmp_path: Path) -> None:
    with FrontsPod(tmp_path) as pod:
        names = ["a", "b c", "é" * 150]
        urls = {name: pod.put(name, affine(2, 1)) for name in names}
        for name in names:
            assert pod.load(name).status == 200
        pod.adapter.kill()
        pod.start_adapter()
        assert {model["modelName"]: model["modelUrl"] for model in pod.sagemaker("GET", "/models").json["models"]} == urls
        assert is_settled(pod)
        assert pod.unload("b c").status == 200
        assert pod.listed() == ["a", "é" * 150]


def test_an_adapter_that_dies_in_a_load_leaves_all_or_nothing(tmp_path: Path) -> None:
    with FrontsPod(tmp_path) as pod, ThreadPoolExecutor(1) as pool:
        assert pod.load("a").status == 200
        pool.submit(pod.load, "slow", sleeper(10))  # longer than a start of the adapter on a busy machine
        until(lambda: (pod.repository / "slow").exists() or None, "the load")
        pod.adapter.kill()
        pod.start_adapter()
        until(lambda: "slow" not in os.listdir(pod.repository) or None, "the end of what was half done")
        assert pod.listed() == ["a"]
        assert is_settled(pod)
        assert pod.load("slow", sleeper(0)).status == 200


def test_models_come_back_with_triton(tmp_path: Path) -> None:
    with FrontsPod(tmp_path) as pod:
        for name in ("a", "b"):
            assert pod.load(name).status == 200
        pod.triton.kill()
        until(lambda: pod.status("/ping") == 503 or None, "the ping that tells of it")
        assert pod.invoke("a").status == 503
        for http, path in ((pod.llm, "/predictions/a"), (pod.sagemaker, "/models/a/invoke")):
            answer = http("POST", path, {"inputs": ["x", "y"]}, JSON)
            assert (answer.status, answer.headers["retry-after"], answer.json["code"]) == (503, "1", 503), "424 is for a model's own errors"
        assert pod.sagemaker("GET", "/models").status == 200
        time.sleep(1)  # the watch of the connection for loads sees it within a second
        started = time.monotonic()
        assert pod.load("c").status == 503
        assert time.monotonic() - started < 10, "a load may take far longer"
        pod.triton.start()
        until(lambda: (pod.status("/ping") == 200 and pod.listed() == ["a", "b"]) or None, "both models")
        until(lambda: is_settled(pod), "models that serve: the connection for inference comes back a moment later")


def test_ports_answer_before_triton_is_there_and_while_it_hangs(tmp_path: Path) -> None:
    port, v2 = free_ports(2)
    gone, *_ = free_ports(1)
    (tmp_path / "v" / "_triton_models").mkdir(parents=True)
    env = {"ADAPTER_PORT": "0", "SAGEMAKER_PORT": str(port), "V2_REST_PORT": str(v2), "SAGEMAKER_MODEL_ROOTS": str(tmp_path)}
    adapter = AdapterProcess(volume=tmp_path / "v", storage_config=tmp_path, triton_target=f"127.0.0.1:{gone}", env=env, wait=False)
    with socket.socket() as silent, adapter:
        until(lambda: _status(Http(port), "/ping"), "the front", 30)
        for listens in (False, True):
            if listens:
                silent.bind(("127.0.0.1", gone))
                silent.listen(64)  # accepts, and says nothing
            for http, path in ((Http(port), "/ping"), (Http(v2), "/v2/health/ready"), (Http(v2), "/v2/health/live")):
                until(lambda http=http, path=path: seconds_of_503(http, path) < 2, "an answer that does not wait for Triton")
            assert Http(port)("GET", "/models").json == {"models": []}


def seconds_of_503(http: Http, path: str) -> float:
    started = time.monotonic()
    assert http("GET", path).status == 503
    return time.monotonic() - started


def _status(http: Http, path: str) -> int | None:
    try:
        return http("GET", path).status
    except OSError:
        return None


def test_sigterm_lets_running_requests_end_and_refuses_new_ones(tmp_path: Path) -> None:
    with FrontsPod(tmp_path) as pod, ThreadPoolExecutor(1) as pool:
        assert pod.load("slow", sleeper()).status == 200
        body = {"inputs": [{"name": "SECONDS", "shape": [1], "datatype": "FP32", "data": [3.0]}]}
        running = pool.submit(pod.sagemaker, "POST", "/models/slow/invoke", body, JSON)
        pod.until_has("slow")
        pod.adapter.signal(signal.SIGTERM)
        until(lambda: _status(pod.sagemaker, "/models") == 503 or None, "the refusal")
        assert running.result().status == 200
        assert pod.adapter.wait(30) == 0


def test_restricted_calls_need_their_header(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text("model-repository,model-config:X-Admin=correct-horse\n")
    with FrontsPod(tmp_path, {"HTTP_RESTRICTED_API_FILE": str(rules)}) as pod:
        admin = {"X-Admin": "correct-horse"}
        url = pod.put("m", affine(2, 1))
        body = {"model_name": "m", "url": url}
        refused = pod.sagemaker("POST", "/models", body)
        assert (refused.status, "X-Admin" in refused.json["error"], "correct" in refused.json["error"]) == (403, True, False)
        assert pod.sagemaker("POST", "/models", body, {"X-Admin": "wrong"}).status == 403
        assert pod.sagemaker("POST", "/models", body, admin).status == 200
        assert pod.invoke("m").status == 200
        assert (pod.v2("GET", "/v2/models/m/config").status, pod.v2("GET", "/v2/models/m/config", None, admin).status) == (403, 200)
        assert pod.sagemaker("GET", "/ping").status == 200
        assert "correct-horse" not in pod.adapter.log_text()


def test_more_requests_than_there_may_be_are_503_and_health_still_answers(tmp_path: Path) -> None:
    with FrontsPod(tmp_path, {"HTTP_MAX_REQUESTS": "2"}) as pod, ThreadPoolExecutor(2) as pool:
        assert pod.load("slow", sleeper()).status == 200
        body = {"inputs": [{"name": "SECONDS", "shape": [1], "datatype": "FP32", "data": [3.0]}]}
        running = [pool.submit(pod.v2, "POST", "/v2/models/slow/infer", body) for _ in range(2)]
        until(lambda: 'http_requests{front="v2"} 2.0' in get(f"{pod.adapter.metrics_url}/metrics")[1], "two requests under way")
        assert pod.v2("POST", "/v2/models/slow/infer", body).status == 503
        assert pod.v2("GET", "/v2/health/live").status == 200
        assert [each.result().status for each in running] == [200, 200]


def test_https_where_there_is_a_certificate(tmp_path: Path) -> None:
    make_certificates(tmp_path)
    certificate, key = tmp_path / "server.pem", tmp_path / "server.key"
    (tmp_path / "v" / "_triton_models").mkdir(parents=True)
    (port,) = free_ports(1)
    env = {"ADAPTER_PORT": "0", "V2_REST_PORT": str(port), "HTTP_TLS_CERT": str(certificate), "HTTP_TLS_KEY": str(key)}
    with AdapterProcess(volume=tmp_path / "v", storage_config=tmp_path, triton_target="127.0.0.1:1", env=env, wait=False):
        until(lambda: _greeting(port), "HTTPS", 30)
        assert b" 503 " in (_greeting(port) or b"")


def _greeting(port: int) -> bytes | None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection(("127.0.0.1", port), 5) as plain, context.wrap_socket(plain) as secure:
            secure.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")
            return secure.recv(1000)
    except OSError:
        return None


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"HTTP_RESTRICTED_API": "inference"}, "HTTP_RESTRICTED_API"),
        ({"HTTP_TLS_CERT": "/absent", "HTTP_TLS_KEY": "/absent"}, "HTTP_TLS_CERT"),
        ({"V2_REST_PORT": "TAKEN"}, "cannot be used"),
    ],
)
def test_a_front_that_cannot_start_ends_the_adapter_in_one_sentence(tmp_path: Path, env: dict[str, str], words: str) -> None:
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        (port,) = free_ports(1)
        env = {name: value.replace("TAKEN", str(taken.getsockname()[1])) for name, value in env.items()}
        (tmp_path / "v" / "_triton_models").mkdir(parents=True)
        env = {"ADAPTER_PORT": "0", "V2_REST_PORT": str(port), **env}
        with AdapterProcess(volume=tmp_path / "v", storage_config=tmp_path, triton_target="127.0.0.1:1", env=env, wait=False) as adapter:
            assert adapter.wait(30) == 1
            assert words in adapter.log_text()
            assert "Traceback" not in adapter.log_text()


def test_v2_may_ask_another_server(tmp_path: Path) -> None:
    """As ModelMesh, which knows the models of all pods; the front is ready as long as both answer."""
    write(identity(TensorProto.FLOAT, "FP32"), tmp_path / "there" / "theirs")
    with Triton(tmp_path / "there", explicit=False) as there:
        (tmp_path / "pod").mkdir()
        with FrontsPod(tmp_path / "pod", {"V2_REST_ENDPOINT": there.grpc_target}) as pod:
            body = {"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [4]}]}
            assert pod.v2("POST", "/v2/models/theirs/infer", body).json["outputs"][0]["data"] == [4.0]
            assert pod.v2("GET", "/v2/health/ready").status == 200
            there.kill()
            assert pod.v2("POST", "/v2/models/theirs/infer", body).status == 503
            assert pod.v2("GET", "/v2/health/ready").status == 503


def test_models_of_another_repository_are_served(tmp_path: Path) -> None:
    """V2 asks Triton, whichever client has loaded the model."""
    with FrontsPod(tmp_path) as pod:
        write(identity(TensorProto.FLOAT, "FP32"), pod.repository / "theirs")
        own = Http(pod.triton.http_port)
        assert own("POST", "/v2/repository/models/theirs/load", {}).status == 200
        body = {"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [4]}]}
        assert pod.v2("POST", "/v2/models/theirs/infer", body).json["outputs"][0]["data"] == [4.0]
