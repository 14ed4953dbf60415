"""
V2 REST beside Triton's own HTTP front: the same answers, and where ours differ on purpose.

On purpose: FP32 is written with the fewest digits that mean the same FP32; FP16 and BF16 are numbers of JSON; a number that its
datatype cannot hold is 400; BYTES that are no UTF-8 are an error or base64; each mistake of the caller is 400 and never 500.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from tests.fronts.echo import DATATYPES, echo, parameters_seen
from tests.fronts.rig import Answer, FrontsPod, Http
from tests.real.models import affine, ensemble

ECHO = "/v2/models/echo/infer"
SEEN = "/v2/models/seen/infer"
SHARED = {"shared_memory_region": "never_made", "shared_memory_byte_size": 16}
LENGTH = "Inference-Header-Content-Length"
VALUES: Mapping[str, list[Any]] = {
    "BOOL": [True, False, True, True],
    "UINT8": [0, 1, 2, 255],
    "UINT16": [0, 1, 2, 65535],
    "UINT32": [0, 1, 2, 2**32 - 1],
    "UINT64": [0, 1, 2, 2**64 - 1],
    "INT8": [-128, 0, 1, 127],
    "INT16": [-(2**15), 0, 1, 2**15 - 1],
    "INT32": [-(2**31), 0, 1, 2**31 - 1],
    "INT64": [-(2**63), 0, 1, 2**63 - 1],
    "FP16": [0.5, -1, 65504.0, 6e-8],
    "BF16": [0.5, -1, 3.3895313892515355e38, 1e-38],
    "FP32": [0.1, -1, 3.4028234663852886e38, 1e-45],
    "FP64": [0.1, -1, 1.7976931348623157e308, 5e-324],
    "BYTES": ['é "\n\u2028\x00', "", "[1]", "\U0001f600"],
}


@pytest.fixture
def both(shared_pod: FrontsPod) -> tuple[Http, Http]:
    """Ours, and Triton's own."""
    shared_pod.keep({"echo": echo})
    return shared_pod.v2, Http(shared_pod.triton.http_port)


@pytest.fixture
def both_seen(both: tuple[Http, Http], shared_pod: FrontsPod) -> tuple[Http, Http]:
    """Both, with a model that shows what it was asked."""
    shared_pod.keep({"seen": parameters_seen})
    return both


def given(datatype: str, data: Any, shape: tuple[int, ...] = (2, 2), **more: Any) -> dict[str, Any]:
    """An input of `echo`."""
    return {"name": f"X_{datatype}", "shape": list(shape), "datatype": datatype, "data": data, **more}


def binary(value: Any, *parts: bytes) -> tuple[bytes, dict[str, str]]:
    """Body and header of a request with binary data."""
    head = json.dumps(value).encode()
    return b"".join((head, *parts)), {LENGTH: str(len(head))}


def as_meant(answer: Answer) -> Any:
    """FP32 as FP32: its digits may differ."""
    value = answer.json
    for output in value.get("outputs", []):
        if output["datatype"] == "FP32":
            output["data"] = np.array(output["data"], np.float32).tolist()
    return value


@pytest.mark.parametrize("datatype", [name for name in DATATYPES if name not in ("FP16", "BF16")])
def test_each_datatype_is_the_same_flat_and_nested(both: tuple[Http, Http], datatype: str) -> None:
    ours, own = both
    flat = VALUES[datatype]
    for data in (flat, [flat[:2], flat[2:]]):
        found, theirs = (http("POST", ECHO, {"id": "i", "inputs": [given(datatype, data)]}) for http in (ours, own))
        assert (found.status, as_meant(found)) == (theirs.status, as_meant(theirs)) == (200, as_meant(theirs))
        if not datatype.startswith("FP"):
            assert found.body == theirs.body
            assert found.json["outputs"][0]["data"] == flat


@pytest.mark.parametrize("datatype", ["FP16", "BF16"])
def test_halves_are_numbers_of_json_with_the_bits_that_binary_data_has(both: tuple[Http, Http], datatype: str) -> None:
    ours, own = both
    body = {"inputs": [given(datatype, VALUES[datatype])]}
    assert own("POST", ECHO, body).status == 400
    written = ours("POST", ECHO, body).json["outputs"][0]["data"]
    raw = ours("POST", ECHO, {**body, "parameters": {"binary_data_output": True}}).body[-8:]
    if datatype == "FP16":
        assert raw == np.array(VALUES[datatype], np.float16).tobytes()
        assert np.array(written, np.float16).tobytes() == raw
    else:
        exact = np.frombuffer(raw, np.uint16).astype(np.uint32) << 16
        assert np.array(written, np.float32).tobytes() == exact.tobytes()
        assert written[:2] == [0.5, -1.0]
    entry = {key: value for key, value in given(datatype, None).items() if key != "data"} | {"parameters": {"binary_data_size": 8}}
    request, header = binary({"inputs": [entry], "parameters": {"binary_data_output": True}}, raw)
    found, theirs = (http("POST", ECHO, request, header) for http in both)
    assert (found.status, found.body, found.headers[LENGTH.lower()]) == (200, theirs.body, theirs.headers[LENGTH.lower()])
    assert found.headers["content-type"] == theirs.headers["content-type"] == "application/octet-stream"


@pytest.mark.parametrize(
    "body",
    [
        {"inputs": []},
        {"inputs": [given("FP32", [], (0, 2))]},
        {"inputs": [given("FP32", [[], []], (2, 0))]},
        {"inputs": [given("INT8", VALUES["INT8"]), given("BYTES", ["a"], (1, 1))], "outputs": [{"name": "Y_BYTES"}, {"name": "Y_INT8"}]},
        {"inputs": [given("FP32", [4, 3, 2, 1])], "outputs": [{"name": "Y_FP32", "parameters": {"classification": 2}}]},
        {"inputs": [given("FP32", [4, 3, 2, 1])], "parameters": {"a": 1, "b": 1.5, "c": "d", "e": True}},
        {"inputs": [given("FP32", [4, 3, 2, 1], parameters={"a": "b"})], "unknown": {"a": None}},
    ],
)
def test_an_answer_is_byte_for_byte_the_same(both: tuple[Http, Http], body: Any) -> None:
    found, theirs = (http("POST", ECHO, body) for http in both)
    assert (found.status, found.body) == (theirs.status, theirs.body) == (200, theirs.body)


@pytest.mark.parametrize(
    ("body", "theirs"),
    [
        ({}, 500),
        ({"inputs": [given("FP32", [1, 2, 3])]}, 500),
        ({"inputs": [given("FP32", [1, 2, 3, 4, 5])]}, 500),
        ({"inputs": [given("FP32", [1, 2, 3, 4], (-2, -2))]}, 500),
        ({"inputs": [given("FP32", [1, 2, 3, 4], (2, 2, 1))]}, 400),
        ({"inputs": [{**given("FP32", [1, 2, 3, 4]), "datatype": "INT32"}]}, 400),
        ({"inputs": [given("FP32", [1, 2, 3, 4])], "outputs": [{"name": "Z"}]}, 400),
        ({"inputs": [given("INT8", [300, 0, 0, 0])]}, 200),
        ({"inputs": [given("UINT32", [-1, 0, 0, 0])]}, 500),
        ({"inputs": [given("FP32", [1e39, 0, 0, 0])]}, 200),
        ({"inputs": [given("FP32", [None, 0, 0, 0])]}, 500),
        ({"inputs": [given("BOOL", [1, 0, 0, 0])]}, 500),
        ({"inputs": [given("BYTES", [1, 2, 3, 4])]}, 500),
        ({"inputs": [{"name": "X_FP32", "datatype": "FP32", "shape": [4, 1], "parameters": SHARED}]}, 404),
    ],
)
def test_a_mistake_of_the_caller_is_400_whatever_triton_says(both: tuple[Http, Http], body: Any, theirs: int) -> None:
    ours, own = both
    found = ours("POST", ECHO, body)
    assert (found.status, list(found.json)) == (400, ["error"])
    assert own("POST", ECHO, body).status == theirs, "what is known of Triton's own front has changed"


@pytest.mark.parametrize(("size", "sent"), [(16, 15), (16, 17), (12, 12), (-1, 16), (True, 16), ("16", 16)])
def test_binary_data_of_another_size_is_400(both: tuple[Http, Http], size: Any, sent: int) -> None:
    entry = {"name": "X_FP32", "shape": [2, 2], "datatype": "FP32", "parameters": {"binary_data_size": size}}
    body, header = binary({"inputs": [entry]}, bytes(sent))
    found = both[0]("POST", ECHO, body, header)
    assert (found.status, list(found.json)) == (400, ["error"])


@pytest.mark.parametrize("length", ["", "x", "-1", "1e2", "99999", "9" * 40, "0x10", "1 2"])
def test_a_malformed_length_of_the_header_is_400(both: tuple[Http, Http], length: str) -> None:
    body, _ = binary({"inputs": [given("FP32", [1, 2, 3, 4])]})
    found = both[0]("POST", ECHO, body, {LENGTH: length})
    assert (found.status, list(found.json)) == (400, ["error"])
    assert both[0]("POST", ECHO, body).status == 200


def test_bytes_that_are_no_utf8_are_base64_or_an_error(both: tuple[Http, Http]) -> None:
    ours, _ = both
    texts = [b"\xff\xfe", b"", b"plain", bytes(range(256))]
    coded = [base64.b64encode(text).decode() for text in texts]
    body: dict[str, Any] = {"inputs": [given("BYTES", coded, parameters={"content_type": "base64"})]}
    refused = ours("POST", ECHO, body)
    assert (refused.status, "content_type=base64" in refused.json["error"]) == (400, True)
    body["outputs"] = [{"name": "Y_BYTES", "parameters": {"content_type": "base64"}}]
    assert ours("POST", ECHO, body).json["outputs"][0]["data"] == coded
    body["outputs"] = [{"name": "Y_BYTES", "parameters": {"binary_data": True}}]
    as_binary = b"".join(struct.pack("<I", len(text)) + text for text in texts)
    assert ours("POST", ECHO, body).body.endswith(as_binary)
    entry = {"name": "X_BYTES", "shape": [2, 2], "datatype": "BYTES", "parameters": {"binary_data_size": len(as_binary)}}
    request, header = binary({"inputs": [entry], "outputs": body["outputs"]}, as_binary)
    found, theirs = (http("POST", ECHO, request, header) for http in both)
    assert (found.status, found.body) == (200, theirs.body)


@pytest.mark.parametrize(("size", "length"), [(6, 5), (6, 2**32 - 1), (3, 1)])
def test_lengths_of_binary_texts_that_lie_are_400(both: tuple[Http, Http], size: int, length: int) -> None:
    entry = {"name": "X_BYTES", "shape": [1, 1], "datatype": "BYTES", "parameters": {"binary_data_size": size}}
    body, header = binary({"inputs": [entry]}, (struct.pack("<I", length) + b"ab")[:size])
    assert both[0]("POST", ECHO, body, header).status == 400
    assert both[0]("GET", "/v2/health/live").status == 200


def test_what_is_told_of_models_is_the_same(pod: FrontsPod) -> None:
    own = Http(pod.triton.http_port)
    assert pod.load("echo", echo()).status == 200
    assert pod.load("both", ensemble(scale=affine(2, 0), shift=affine(1, 1))).status == 200
    for name in [row["name"] for row in own("POST", "/v2/repository/index", {}).json]:
        for path in (f"/v2/models/{name}", f"/v2/models/{name}/config", f"/v2/models/{name}/stats", f"/v2/models/{name}/versions/1/stats"):
            found, theirs = pod.v2("GET", path), own("GET", path)
            value = found.json
            if "ensemble_scheduling" in value:
                assert value["ensemble_scheduling"].pop("max_inflight_requests", 0) == 0  # a field of newer Tritons
            assert (found.status, value) == (200, theirs.json), path
    found, theirs = pod.v2("GET", "/v2/models/stats"), own("GET", "/v2/models/stats")
    assert (found.status, found.json) == (200, theirs.json)


@pytest.mark.parametrize(("body", "status"), [(b"abcdefgh", 200), (b"abc", 400)])
def test_a_raw_request_is_as_tritons(pod: FrontsPod, body: bytes, status: int) -> None:
    assert pod.load("m", affine(2, 1)).status == 200
    found, theirs = (http("POST", "/v2/models/m/infer", body, {LENGTH: "0"}) for http in (pod.v2, Http(pod.triton.http_port)))
    assert found.status == theirs.status == status
    if status == 200:
        assert (found.body, found.headers[LENGTH.lower()]) == (theirs.body, theirs.headers[LENGTH.lower()])


@pytest.mark.parametrize("number", [2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1])
def test_a_whole_number_of_a_parameter_is_int64_or_double(both_seen: tuple[Http, Http], number: int) -> None:
    given_one = {"name": "X", "shape": [1], "datatype": "BOOL", "data": [True], "parameters": {"of_an_input": number}}
    output = {"name": "SEEN", "parameters": {"of_an_output": number}}
    body = {"id": "i", "inputs": [given_one], "outputs": [output], "parameters": {"a": number, "priority": abs(number) % 2**64}}
    found, theirs = (http("POST", SEEN, body) for http in both_seen)
    assert (found.status, found.body) == (theirs.status, theirs.body) == (200, theirs.body)
    (text,) = found.json["outputs"][0]["data"]
    is_int64 = -(2**63) <= number < 2**63
    assert json.loads(text) == ["i", {"a": number if is_int64 else pytest.approx(float(number))}]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"id": "a\0b"}, "$.id"),
        ({"inputs": [{"name": "X\0b", "shape": [1], "datatype": "BOOL", "data": [True]}]}, "$.inputs[0].name"),
        ({"outputs": [{"name": "SEEN\0b"}]}, "$.outputs[0].name"),
        ({"parameters": {"a": "a\0b"}}, "$.parameters[...]"),
    ],
)
def test_a_text_that_triton_would_cut_is_400(both_seen: tuple[Http, Http], change: Any, field: str) -> None:
    body = {"inputs": [{"name": "X", "shape": [1], "datatype": "BOOL", "data": [True]}], **change}
    found, theirs = (http("POST", SEEN, body) for http in both_seen)
    assert (found.status, found.json) == (400, {"error": f"the request is wrong: Expected `str` without a NUL - at `{field}`"})
    assert (theirs.status, b"u0000" in theirs.body) == (200, False), "what is known of Triton's own front has changed"


def test_classes_of_texts_are_refused_and_triton_lives(both: tuple[Http, Http]) -> None:
    """Triton 2.51 dies of them, asked over gRPC."""
    wanted = {"name": "Y_BYTES", "parameters": {"classification": 1}}
    refused = both[0]("POST", ECHO, {"inputs": [given("BYTES", ["a", "b", "c", "d"])], "outputs": [wanted]})
    assert (refused.status, refused.json) == (400, {"error": "output 'Y_BYTES' has texts, which have no classification"})
    assert both[1]("GET", "/v2/health/ready").status == 200
