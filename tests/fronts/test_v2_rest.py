"""The V2 protocol over HTTP on the real Triton, beside Triton's own HTTP front, and with Triton's own client."""

from __future__ import annotations

import gzip
import json
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton_http
from onnx import TensorProto

from tests.fronts.rig import FrontsPod, Http, infer_body
from tests.real.llm_models import repeat
from tests.real.models import affine, identity, sleeper, text_statistics
from tests.real.polls import until

X = "/v2/models/m/infer"


@pytest.fixture
def m(shared_pod: FrontsPod) -> FrontsPod:
    """Stays loaded until a test wants an empty pod."""
    shared_pod.keep({"m": partial(affine, 2, 1)})
    return shared_pod


def test_health_is_empty_or_json_where_that_is_named(m: FrontsPod) -> None:
    for path, word in (("/v2/health/live", "live"), ("/v2/health/ready", "ready"), ("/v2/models/m/ready", "ready")):
        plain, named = m.v2("GET", path), m.v2("GET", path, None, {"Accept": "application/json"})
        assert (plain.status, plain.body, named.status, named.json) == (200, b"", 200, {word: True})
        for accepted, is_json in (("text/html, Application/JSON;q=0.2", True), ("*/*", False)):
            assert (m.v2("GET", path, None, {"Accept": accepted}).body != b"") == is_json, (path, accepted)
    assert m.v2("GET", "/v2/models/absent/ready").status == 400


def test_metadata_config_and_infer_are_as_tritons_own(m: FrontsPod) -> None:
    own = Http(m.triton.http_port)
    for path in ("/v2/models/m", "/v2/models/m/versions/1", "/v2/models/m/config"):
        assert m.v2("GET", path).json == own("GET", path).json, path
    assert m.v2("POST", X, infer_body(2)).json == own("POST", X, infer_body(2)).json
    ours, theirs = m.v2("GET", "/v2/models/m/stats").json, own("GET", "/v2/models/m/stats").json
    assert ours["model_stats"][0].keys() == theirs["model_stats"][0].keys()
    assert m.v2("GET", "/v2").json["name"] == own("GET", "/v2").json["name"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", X, b"{nope", 400),
        ("POST", X, b"[" * 250_000, 400),
        ("POST", X, {"inputs": []}, 400),
        ("POST", X, {"inputs": [{"name": "Z", "shape": [1], "datatype": "FP32", "data": [1]}]}, 400),
        ("POST", X, {"inputs": [{"name": "X", "shape": [1], "datatype": "INT8", "data": [300]}]}, 400),
        ("POST", X, {"inputs": [{"name": "X", "shape": [1], "datatype": "FP32", "data": [1e39]}]}, 400),
        ("POST", "/v2/models/absent/infer", infer_body(1), 404),
        ("POST", "/v2/models/m/versions/9/infer", infer_body(1), 404),
        ("POST", "/v2/models/m/versions/x/infer", infer_body(1), 400),
        ("POST", "/v2/models/m%00x/infer", infer_body(1), 400),
        ("GET", "/v2/models/m%00x", None, 400),
        ("GET", "/v2/models/absent", None, 404),
        ("GET", X, None, 405),
        ("GET", "/nowhere", None, 404),
    ],
)
def test_an_error_is_json_with_error_alone(m: FrontsPod, method: str, path: str, body: Any, status: int) -> None:
    answer = m.v2(method, path, body)
    assert (answer.status, answer.headers["content-type"], list(answer.json)) == (status, "application/json", ["error"]), answer.body
    assert m.v2("GET", "/v2/health/live").status == 200


@pytest.mark.parametrize("kind", ["gzip", "deflate"])
def test_bodies_may_be_compressed_both_ways(m: FrontsPod, kind: str) -> None:
    body = json.dumps({"inputs": [{"name": "X", "shape": [1000], "datatype": "FP32", "data": [1] * 1000}]}).encode()
    packed = gzip.compress(body) if kind == "gzip" else zlib.compress(body)
    answer = m.v2("POST", X, packed, {"Content-Encoding": kind, "Accept-Encoding": kind})
    assert (answer.status, answer.headers["content-encoding"]) == (200, kind)
    unpacked = gzip.decompress(answer.body) if kind == "gzip" else zlib.decompress(answer.body)
    assert json.loads(unpacked)["outputs"][0]["data"] == [3.0] * 1000
    assert m.v2("POST", X, packed[:-9], {"Content-Encoding": kind}).status == 400
    refused = m.v2("POST", X, body, {"Content-Encoding": "br"})
    assert (refused.status, refused.headers["accept-encoding"]) == (415, "gzip, deflate")


def test_a_body_that_grows_beyond_the_bound_is_413(m: FrontsPod) -> None:
    bomb = gzip.compress(bytes(80 * 2**20))
    assert m.v2("POST", X, bomb, {"Content-Encoding": "gzip"}).status == 413
    assert m.v2("POST", X, infer_body(1)).status == 200


@pytest.mark.parametrize(
    ("kind", "datatype", "values"),
    [(TensorProto.FLOAT16, "FP16", [0.1, 65504.0]), (TensorProto.INT64, "INT64", [2**63 - 1]), (TensorProto.UINT8, "UINT8", [0, 255])],
)
def test_numbers_go_through_a_model_unchanged(pod: FrontsPod, kind: int, datatype: str, values: list[float]) -> None:
    assert pod.load("same", identity(kind, datatype)).status == 200
    body = {"id": "7", "inputs": [{"name": "x", "shape": [len(values)], "datatype": datatype, "data": values}]}
    answer = pod.v2("POST", "/v2/models/same/infer", body)
    assert answer.status == 200, answer.body
    assert (answer.json["id"], answer.json["outputs"][0]["datatype"]) == ("7", datatype)
    assert answer.json["outputs"][0]["data"] == pytest.approx(values, rel=1e-3)


def test_texts_and_nan(pod: FrontsPod) -> None:
    assert pod.load("count", text_statistics()).status == 200
    body = {"inputs": [{"name": "TEXT", "shape": [2], "datatype": "BYTES", "data": ["é ü", ""]}]}
    assert pod.v2("POST", "/v2/models/count/infer", body).json["outputs"][0]["data"] == [3, 2, 0, 0]
    assert pod.load("m").status == 200
    answer = pod.v2("POST", X, b'{"inputs":[{"name":"X","shape":[2],"datatype":"FP32","data":[NaN,-Infinity]}]}')
    assert b'"data":[NaN,-Infinity]' in answer.body


@pytest.mark.parametrize("is_binary", [True, False])
@pytest.mark.parametrize("compression", [None, "gzip"])
def test_tritons_own_client_works(m: FrontsPod, is_binary: bool, compression: str | None) -> None:
    client = triton_http.InferenceServerClient(f"127.0.0.1:{m.v2.port}")
    try:
        assert client.is_server_live()
        assert client.is_model_ready("m")
        assert client.get_model_metadata("m")["inputs"][0]["name"] == "X"
        given = triton_http.InferInput("X", [3], "FP32")
        given.set_data_from_numpy(np.array([1, 2, 3], np.float32), binary_data=is_binary)
        wanted = triton_http.InferRequestedOutput("Y", binary_data=is_binary)
        answer = client.infer(
            "m",
            [given],
            outputs=[wanted],
            request_id="r",
            request_compression_algorithm=compression,
            response_compression_algorithm=compression,
        )
        assert answer.as_numpy("Y").tolist() == [3.0, 5.0, 7.0]
        assert answer.get_response()["id"] == "r"
        with pytest.raises(triton_http.InferenceServerException, match="absent"):
            client.infer("absent", [given])
    finally:
        client.close()


@pytest.mark.long
def test_a_client_that_leaves_has_its_inference_cancelled(pod: FrontsPod) -> None:
    """The log's one line of the request says so, long before the model would have answered; nothing of the adapter waits on."""
    assert pod.load("slow", sleeper()).status == 200
    body = {"inputs": [{"name": "SECONDS", "shape": [1], "datatype": "FP32", "data": [20.0]}]}
    started = time.monotonic()
    with pod.v2.begun("/v2/models/slow/infer", body, "X-Request-Id: gone-1"):
        pod.until_has("slow")
    line = until(lambda: next((text for text in pod.adapter.log_text().splitlines() if "gone-1" in text), None), "the line of the request")
    assert (json.loads(line)["status"], json.loads(line)["reason"]) == (499, "cancelled")
    assert time.monotonic() - started < 15


def test_a_request_has_an_id_a_line_and_metrics_without_its_path(m: FrontsPod) -> None:
    answer = m.v2("POST", X, infer_body(1), {"X-Request-Id": "mine"})
    assert answer.headers["x-request-id"] == "mine"
    assert len(m.v2("GET", "/v2").headers["x-request-id"]) == 32
    line = until(lambda: next((json.loads(text) for text in m.adapter.log_text().splitlines() if '"mine"' in text), None), "the line")
    assert (line["event"], line["front"], line["route"], line["status"]) == ("http", "v2", "/v2/models/{name}/infer", 200)
    found = Http(int(m.adapter.metrics_url.rpartition(":")[2]))("GET", "/metrics").body.decode()
    assert 'triton_adapter_http_request_seconds_count{front="v2",method="POST",route="/v2/models/{name}/infer",status="200"}' in found
    assert "/v2/models/m/" not in found


def test_many_at_once(m: FrontsPod) -> None:
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda value: m.v2("POST", X, infer_body(value)).json["outputs"][0]["data"][0], range(200)))
    assert answers == [2.0 * value + 1 for value in range(200)]


@pytest.mark.parametrize(("numbers", "status"), [([5], 200), ([5, 6], 400), ([], 400)])
def test_a_decoupled_model_is_asked_for_its_one_answer(pod: FrontsPod, numbers: list[int], status: int) -> None:
    """Triton's own front refuses it."""
    assert pod.load("several", repeat()).status == 200
    shape = [len(numbers)]
    inputs = [
        {"name": "IN", "shape": shape, "datatype": "INT32", "data": numbers},
        {"name": "DELAY", "shape": shape, "datatype": "UINT32", "data": [0] * len(numbers)},
    ]
    for answer in (
        pod.v2("POST", "/v2/models/several/infer", {"inputs": inputs}),
        pod.sagemaker("POST", "/models/several/invoke", {"inputs": inputs}, {"Content-Type": "application/json"}),
    ):
        assert answer.status == status, answer.body
        if status == 200:
            assert [output["data"] for output in answer.json["outputs"]] == [[5], [0]]
