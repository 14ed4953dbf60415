"""SageMaker's multi-model contract, as the platform calls it, on the real Triton. Each test is a row of the contract."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import boto3
import pytest
from botocore import UNSIGNED
from botocore.client import Config
from botocore.exceptions import ClientError

from tests.fronts.rig import FrontsPod, infer_body, rest_of
from tests.integration.conftest import get
from tests.real.models import Files, affine, ensemble, pipeline, sleeper
from tests.real.polls import until

JSON = {"Content-Type": "application/json"}


def test_ping_is_200_while_triton_answers(pod: FrontsPod) -> None:
    answer = pod.sagemaker("GET", "/ping")
    assert (answer.status, answer.json, answer.headers["content-type"]) == (200, {"status": "Healthy"}, "application/json")


def test_a_model_is_loaded_listed_asked_and_unloaded(pod: FrontsPod) -> None:
    url = pod.put("m", affine(2, 1))
    assert pod.sagemaker("GET", "/models").json == {"models": []}
    loaded = pod.sagemaker("POST", "/models", {"model_name": "m", "url": url})
    assert (loaded.status, loaded.json) == (200, {"status": 'Model "m" registered'})
    shown = {"modelName": "m", "modelUrl": url}
    assert pod.sagemaker("GET", "/models").json == {"models": [shown]}
    assert pod.sagemaker("GET", "/models/m").json == shown
    answer = pod.invoke("m", 3.0)
    assert answer.status == 200, answer.body
    assert answer.json == {
        "model_name": "m", "model_version": "1", "outputs": [{"name": "Y", "datatype": "FP32", "shape": [1], "data": [7.0]}],
    }  # fmt: skip
    gone = pod.unload("m")
    assert (gone.status, gone.json) == (200, {"status": 'Model "m" unregistered'})
    assert not (pod.repository / "m").exists()
    assert Path(url, "config.pbtxt").exists(), "the platform's files are its own"


@pytest.mark.parametrize(("method", "path"), [("GET", "/models/absent"), ("DELETE", "/models/absent"), ("POST", "/models/absent/invoke")])
def test_a_model_that_is_not_loaded_is_404_in_words_that_clients_check(pod: FrontsPod, method: str, path: str) -> None:
    answer = pod.sagemaker(method, path, b"{}" if method == "POST" else None)
    text = "Model not found: absent"
    assert answer.status == 404
    assert answer.json == {"error": text, "code": 404, "type": "ModelNotFoundException", "message": text}
    assert answer.headers["content-type"] == "application/json"


def test_a_second_load_is_409_also_while_the_first_one_runs(pod: FrontsPod) -> None:
    assert pod.load("m").status == 200
    assert pod.load("m").status == 409
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(pod.load, "slow", sleeper(3))
        until(lambda: (pod.repository / "slow").exists() or None, "the load")
        assert pod.load("slow", sleeper(3)).status == 409
        assert not first.done()
        assert pod.sagemaker("GET", "/models/slow").status == 404, "no model that is still being loaded"
        assert pod.listed() == ["m"]
        assert first.result().status == 200


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{nope", 400),
        (b"[]", 400),
        ({"url": "/opt"}, 400),
        ({"model_name": "m"}, 400),
        ({"model_name": 1, "url": "/opt"}, 400),
        ({"model_name": "", "url": "/opt"}, 400),
        ({"model_name": "a/b", "url": "/opt"}, 400),
        ({"model_name": "a\\b", "url": "/opt"}, 400),
        ({"model_name": "a\nb", "url": "/opt"}, 400),
        ({"model_name": "a\0b", "url": "/opt"}, 400),
        ({"model_name": "..", "url": "/opt"}, 400),
        ({"model_name": "m", "url": "relative"}, 400),
        ({"model_name": "m", "url": "/etc"}, 400),
        ({"model_name": "m", "url": "MODELS/../../../etc"}, 400),
        ({"model_name": "m", "url": "MODELS/absent"}, 404),
        ({"model_name": "m", "url": "MODELS/empty"}, 400),
        ({"model_name": "m", "url": "MODELS/link"}, 400),
    ],
)
def test_a_load_that_cannot_be_meant_is_refused_and_leaves_nothing(pod: FrontsPod, body: object, status: int) -> None:
    (pod.models / "empty").mkdir()
    (pod.models / "link").symlink_to("/etc")
    if isinstance(body, dict) and isinstance(body.get("url"), str):
        body = {**body, "url": body["url"].replace("MODELS", str(pod.models))}
    answer = pod.sagemaker("POST", "/models", body)
    assert (answer.status, answer.json["code"]) == (status, status), answer.body
    assert "\n" not in answer.json["error"]
    assert pod.listed() == []
    assert os.listdir(pod.repository) == []


NAMES = (
    "a b", "ü", "100%", "a?b", "模型", "x" * 200, "é" * 200, "adapter-probe-x", "a~inner~b", "_adapter", "%41", "%FF", "a{b", "{name}",
    "\ufffd",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_names_are_opaque(pod: FrontsPod, name: str) -> None:
    assert pod.load(name).status == 200
    assert pod.listed() == [name]
    assert pod.sagemaker("GET", f"/models/{quote(name, safe='')}").json["modelName"] == name
    answer = pod.invoke(name)
    assert (answer.status, answer.json["model_name"]) == (200, name)
    assert pod.unload(name).status == 200
    assert os.listdir(pod.repository) == []


@pytest.mark.parametrize("path", ["a%2Fb", "a%5Cb", "a%00b", "a%0Ab", "%2E%2E", "%2e"])
def test_a_name_that_is_a_path_is_400(pod: FrontsPod, path: str) -> None:
    answer = pod.sagemaker.raw(f"GET /models/{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 400 "), answer


def test_pages_are_stable_while_the_list_changes(pod: FrontsPod) -> None:
    for name in ("a", "b", "c"):
        assert pod.load(name).status == 200
    first = pod.sagemaker("GET", "/models?limit=1").json
    assert [model["modelName"] for model in first["models"]] == ["a"]
    pod.unload("a")
    second = pod.sagemaker("GET", f"/models?limit=2&next_page_token={first['nextPageToken']}").json
    assert [model["modelName"] for model in second["models"]] == ["b", "c"]
    assert "nextPageToken" not in second, "an exact last page has no token"
    for query in ("limit=0", "limit=101", "limit=x", "limit="):
        assert pod.sagemaker("GET", f"/models?{query}").status == 400, query


def test_what_does_not_fit_is_507_by_arithmetic_and_leaves_nothing(pod: FrontsPod) -> None:
    files = {**affine(2, 1), "1/weights.bin": b""}
    url = pod.put("huge", files)
    with Path(url, "1", "weights.bin").open("wb") as file:
        file.truncate(4 * 2**30)
    answer = pod.sagemaker("POST", "/models", {"model_name": "huge", "url": url})
    assert (answer.status, answer.json["type"]) == (507, "InsufficientStorageException")
    assert pod.listed() == []
    assert os.listdir(pod.repository) == []


def test_a_model_that_triton_refuses_is_400_with_its_words(pod: FrontsPod) -> None:
    bad = {**affine(2, 1), "1/model.py": b"raise RuntimeError('BLOOM cannot ZOOM')\n"}
    answer = pod.load("BLOOM", bad)
    assert (answer.status, "BLOOM cannot ZOOM" in answer.json["error"]) == (400, True), answer.body
    assert os.listdir(pod.repository) == []


def test_what_a_caller_calls_a_tensor_is_no_want_of_memory(pod: FrontsPod) -> None:
    """507 would make the platform unload models."""
    assert pod.load("m").status == 200
    tensor = {"name": "CUDA out of memory", "shape": [1], "datatype": "FP32", "data": [1.0]}
    answer = pod.sagemaker("POST", "/models/m/invoke", {"inputs": [tensor]}, JSON)
    assert (answer.status, "CUDA out of memory" in answer.json["error"]) == (400, True), answer.body


def test_delete_lets_running_invokes_end_and_answers_new_ones_404(pod: FrontsPod) -> None:
    assert pod.load("slow", sleeper()).status == 200
    with ThreadPoolExecutor(2) as pool:
        body = {"inputs": [{"name": "SECONDS", "shape": [1], "datatype": "FP32", "data": [3.0]}]}
        running = pool.submit(pod.sagemaker, "POST", "/models/slow/invoke", body, JSON)
        pod.until_has("slow")
        going = pool.submit(pod.unload, "slow")
        until(lambda: pod.sagemaker("GET", "/models/slow").status == 404 or None, "the unload")
        assert pod.sagemaker("POST", "/models/slow/invoke", body, JSON).status == 404
        assert not going.done()
        assert running.result().status == 200
        assert going.result().status == 200
    assert not (pod.repository / "slow").exists()


@pytest.mark.parametrize("body", [b'{"inputs":[]}', b'{"inputs":"a"}', b'{"text_input":"a"}'])
def test_a_body_that_comes_after_the_delete_is_404_in_the_contracts_form(pod: FrontsPod, body: bytes) -> None:
    """Whichever schema it has."""
    assert pod.load("m").status == 200
    with socket.create_connection(("127.0.0.1", pod.sagemaker.port)) as connection:
        head = b"POST /models/m/invoke HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
        connection.sendall(head + body[:2])
        until(lambda: 'http_requests{front="sagemaker"} 1.0' in get(f"{pod.adapter.metrics_url}/metrics")[1], "the head is read")
        assert pod.unload("m").status == 200
        connection.sendall(body[2:])
        head, _, text = rest_of(connection).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 404 ")
    words = "Model not found: m"
    assert json.loads(text) == {"error": words, "code": 404, "type": "ModelNotFoundException", "message": words}


@pytest.mark.parametrize("bundle", [ensemble, pytest.param(pipeline, marks=pytest.mark.long)])
def test_delete_of_a_bundle_lets_its_running_invokes_end(pod: FrontsPod, bundle: Callable[..., Files]) -> None:
    """The second inner model is asked when the bundle is being unloaded already."""
    assert pod.load("both", bundle(scale=affine(2, 0, seconds=2), shift=affine(1, 1))).status == 200
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(pod.invoke, "both", 5.0)
        until(lambda: any(pod.repository.rglob("busy")) or None, "the invoke")
        assert pod.unload("both").status == 200
        answer = running.result()
    assert (answer.status, answer.json["outputs"][0]["data"]) == (200, [11.0]), answer.body
    assert os.listdir(pod.repository) == []


def test_no_request_waits_for_another_models_unload_on_a_kept_connection(pod: FrontsPod) -> None:
    """Triton's own front stalls such a connection for as long as the unload takes."""
    assert pod.load("quick").status == 200
    assert pod.load("slow", sleeper()).status == 200
    body = {"inputs": [{"name": "SECONDS", "shape": [1], "datatype": "FP32", "data": [4.0]}]}
    with ThreadPoolExecutor(2) as pool, pod.sagemaker.kept() as ask:
        assert ask("GET", "/ping").status == 200
        pool.submit(pod.sagemaker, "POST", "/models/slow/invoke", body, JSON)
        pod.until_has("slow")
        going = pool.submit(pod.unload, "slow")
        slowest, count = 0.0, 0
        while not going.done():
            started = time.monotonic()
            assert ask("POST", "/models/quick/invoke", infer_body(1), JSON).status == 200
            assert ask("GET", "/models").status == 200
            slowest, count = max(slowest, time.monotonic() - started), count + 1
            time.sleep(0.02)
    assert count > 5
    assert slowest < 2, f"the slowest of {count} took {slowest:.2f} s"


def test_a_client_that_leaves_mid_load_has_it_undone(pod: FrontsPod) -> None:
    with pod.sagemaker.begun("/models", {"model_name": "slow", "url": pod.put("slow", sleeper(6))}):
        until(lambda: (pod.repository / "slow").exists() or None, "the load")
    until(lambda: not (pod.repository / "slow").exists() or None, "the undo")
    assert pod.listed() == []
    assert pod.load("slow", sleeper(0)).status == 200


def test_a_delete_mid_load_stops_it(pod: FrontsPod) -> None:
    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(pod.load, "slow", sleeper(3))
        until(lambda: (pod.repository / "slow").exists() or None, "the load")
        assert pod.unload("slow").status == 200
        assert loading.result().status == 503
    assert os.listdir(pod.repository) == []


def test_a_bundle_is_one_model_and_two_of_them_have_the_same_inner_names(pod: FrontsPod) -> None:
    assert pod.load("first", ensemble(scale=affine(2, 0), shift=affine(1, 1))).status == 200
    assert pod.load("second", ensemble(scale=affine(3, 0), shift=affine(1, 1))).status == 200
    assert pod.listed() == ["first", "second"]
    assert [pod.invoke(name, 5.0).json["outputs"][0]["data"] for name in ("first", "second")] == [[11.0], [16.0]]


def test_invocations_go_by_target_model_or_to_the_only_one(pod: FrontsPod) -> None:
    assert pod.sagemaker("POST", "/invocations", infer_body(1), JSON).status == 400
    pod.load("a.tar.gz")
    assert pod.sagemaker("POST", "/invocations", infer_body(1), JSON).status == 200
    pod.load("b")
    assert pod.sagemaker("POST", "/invocations", infer_body(1), JSON).status == 400
    target = {**JSON, "X-Amzn-SageMaker-Target-Model": "b", "X-Amzn-SageMaker-Custom-Attributes": "trace=1"}
    answer = pod.sagemaker("POST", "/invocations", infer_body(1), target)
    assert (answer.status, answer.json["model_name"]) == (200, "b")
    assert answer.headers["x-amzn-sagemaker-custom-attributes"] == "trace=1"


def test_the_vendors_binary_content_type_goes_both_ways(pod: FrontsPod) -> None:
    pod.load("m")
    head = (
        b'{"inputs":[{"name":"X","shape":[2],"datatype":"FP32","parameters":{"binary_data_size":8}}],'
        b'"parameters":{"binary_data_output":true}}'
    )
    kind = "application/vnd.sagemaker-triton.binary+json;json-header-size="
    answer = pod.sagemaker("POST", "/models/m/invoke", head + bytes(8), {"Content-Type": f"{kind}{len(head)}"})
    assert answer.status == 200, answer.body
    assert answer.headers["content-type"].startswith(kind)
    assert answer.body[int(answer.headers["content-type"].removeprefix(kind)) :] == b"\0\0\x80?" * 2
    for size in ("x", "-1", "99999", str(2**40), ""):
        assert pod.sagemaker("POST", "/models/m/invoke", head + bytes(8), {"Content-Type": f"{kind}{size}"}).status == 400, size
    raw = pod.sagemaker("POST", "/models/m/invoke", bytes(4), {"Content-Type": "application/octet-stream"})
    assert (raw.status, raw.body[-4:]) == (200, b"\0\0\x80?")


def test_boto3_calls_the_container_itself(pod: FrontsPod) -> None:
    pod.load("m")
    client = boto3.client(
        "sagemaker-runtime",
        region_name="us-east-1",
        endpoint_url=f"http://127.0.0.1:{pod.sagemaker.port}",
        config=Config(signature_version=UNSIGNED, retries={"total_max_attempts": 1}),
    )
    body = b'{"inputs":[{"name":"X","shape":[1],"datatype":"FP32","data":[4]}]}'
    answer = client.invoke_endpoint(EndpointName="e", TargetModel="m", ContentType="application/json", Body=body, CustomAttributes="c=1")
    assert (b"[9.0]" in answer["Body"].read(), answer["CustomAttributes"]) == (True, "c=1")
    with pytest.raises(ClientError) as refused:
        client.invoke_endpoint(EndpointName="e", TargetModel="absent", ContentType="application/json", Body=body)
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 404
    client.close()


def test_a_wrong_method_is_405_with_the_right_ones(pod: FrontsPod) -> None:
    answer = pod.sagemaker("PUT", "/models")
    assert (answer.status, set(answer.headers["allow"].split(",")) >= {"GET", "POST"}) == (405, True)
    assert pod.sagemaker("GET", "/modelsfoo").status == 404


def test_many_clients_of_one_name_agree(pod: FrontsPod) -> None:
    """Whatever order they come in: at the end the model is listed and serves, or it is nowhere."""
    model = {"model_name": "m", "url": pod.put("m", affine(2, 1))}
    barrier = threading.Barrier(8)

    def act(number: int) -> int:
        barrier.wait()
        return (pod.sagemaker("POST", "/models", model) if number % 2 else pod.unload("m")).status

    with ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(act, range(8)))
    assert set(statuses) <= {200, 404, 409, 503}, statuses
    is_listed = pod.listed() == ["m"]
    assert (pod.invoke("m").status == 200) == is_listed
    assert (os.listdir(pod.repository) == ["m"]) == is_listed
