"""Requests of any kind become a model's name, or words: for the codec alone, and for the whole adapter at its socket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from hypothesis import event
from hypothesis import strategies as st

from adapter._pb import model_runtime_pb2 as spi
from adapter.errors import InvalidRequest
from adapter.model import id_problem
from adapter.spi import codec
from tests.fuzz.fuzzing import SECRET, check_text, check_words, fuzzed, numbers, scalars, texts, trees, wire_texts
from tests.fuzz.whole import WholeAdapter

KEYS = [
    "storage_key", "STORAGE_KEY", "Storage_Key", "model_type", "Model_Type", "bucket", "schema_path", "disk_size_bytes", "storage_params",
    "Storage_Params", "unknown",
]  # fmt: skip
PARAMS = [
    "type", "bucket", "endpoint_url", "access_key_id", "secret_access_key", "session_token", "region", "anonymous", "unpack", "certificate",
    "url", "headers", "headers.Authorization", "a.b.c", "adapter.modelSizeBytes", "adapter.topModel", "adapter.allowDecoupled",
    "ADAPTER.modelsizebytes", "adapter.", "verify_ssl", "addressing_style", "account_key", "name", "type.x", ".", "..", "a..b",
]  # fmt: skip
VALUES = [
    "s3", "gcs", "azure", "http", "pvc", "memory", "true", "false", "maybe", "1", "512MiB", "-5", "9" * 400, "http://127.0.0.1:1", SECRET,
    f"https://u:{SECRET}@host/x?sig={SECRET}", "-----BEGIN CERTIFICATE-----", "x" * 70_000,
]  # fmt: skip

params = st.dictionaries(st.sampled_from(PARAMS) | texts, st.sampled_from(VALUES) | trees, max_size=5)
fields: dict[str, st.SearchStrategy[Any]] = {
    "storage_key": st.sampled_from(["s3", "nobody", "..", "a/b", "default", "broken", "default_s3"]) | trees,
    "model_type": st.sampled_from(["onnx", "python", {"name": "onnx"}, {"name": "fil", "version": "1"}, {"NAME": "x"}, {}]) | trees,
    "bucket": st.sampled_from(["b", "..", "$root", "arn:aws:x"]) | trees,
    "schema_path": wire_texts | trees,
    "disk_size_bytes": numbers | trees,
    "storage_params": params | trees,
}
objects = st.one_of(
    st.fixed_dictionaries({}, optional=fields), st.dictionaries(st.sampled_from(KEYS), params | scalars | trees, max_size=6), trees
).map(json.dumps)
honest_keys = st.sampled_from([{"storage_key": "s3"}, {"storage_key": "s3", "model_type": {"name": "python"}}, {}])
model_keys = st.one_of(
    honest_keys.map(json.dumps),
    st.builds(lambda key, name, value: json.dumps(key | {name: value}), honest_keys, st.sampled_from(KEYS), params | scalars),
    objects,
    st.tuples(objects, st.integers(0, 200)).map(lambda both: both[0][: both[1]]),
    wire_texts,
    st.sampled_from(
        ["[" * 5000, '{"a":' * 5000, '{"disk_size_bytes": ' + "1" * 5000 + "}", '{"a": NaN}', "{}{}", "\ufeff{}", '{"a":1,"a":2}']
    ),
)
model_types = st.one_of(st.sampled_from(["mt:onnx:1|pv:grpc-v2", "rt:triton-2.x|x", "onnx", "mt:", "|||", "mt:python"]), wire_texts)
model_ids = st.one_of(st.sampled_from(["m", "n", "m.onnx", "model__isvc-0123456789", "_adapter", "a" * 255]), wire_texts)
model_paths = st.one_of(
    st.sampled_from(["m", "m", "m/", "b", "m/1/model.py", "other", "/m/", "m/../m", "packed.zip", "/models/x"]), wire_texts
)
requests = st.builds(spi.LoadModelRequest, modelId=model_ids, modelType=model_types, modelPath=model_paths, modelKey=model_keys)


@fuzzed(request_=requests)
def test_any_request_is_decoded_or_refused_in_words(request_: spi.LoadModelRequest) -> None:
    """What is decoded has an id that Triton could have, and paths and texts that can be sent."""
    try:
        spec = codec.decode(request_)
    except InvalidRequest as error:
        event("refused")
        check_words(error)
        return
    assert id_problem(spec.model_id) is None
    assert ".." not in spec.path.split("/") and "\0" not in spec.path
    assert SECRET not in repr(spec)
    assert len(spec.storage_params) <= 256
    found = [spec.model_type, spec.storage_key, spec.bucket, spec.schema_path, *spec.storage_params, *spec.storage_params.values()]
    for text in found:
        assert (text or "").encode() is not None
    assert spec.disk_size_bytes is None or 0 <= spec.disk_size_bytes < 2**63


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WholeAdapter]:
    with WholeAdapter(tmp_path_factory.mktemp("whole")) as whole:
        yield whole


DEFECTS = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.DEADLINE_EXCEEDED)


@fuzzed(request_=requests, kind=st.sampled_from(["load", "load", "predict", "unload", "size"]))
def test_any_request_over_the_wire_is_answered_and_changes_nothing_for_others(
    adapter: WholeAdapter, request_: spi.LoadModelRequest, kind: str
) -> None:
    """Loaded, and then unloaded again; or an error that is no defect. An honest model beside it stays, and nothing is left."""
    model_id = request_.modelId
    try:
        if kind == "load":
            assert adapter.runtime.loadModel(request_, timeout=30).sizeInBytes >= 0
        elif kind == "predict":
            wanted = spi.PredictModelSizeRequest(
                modelId=model_id, modelType=request_.modelType, modelPath=request_.modelPath, modelKey=request_.modelKey
            )
            assert 0 <= adapter.runtime.predictModelSize(wanted, timeout=30).sizeInBytes <= adapter.capacity_bytes
        elif kind == "size":
            adapter.runtime.modelSize(spi.ModelSizeRequest(modelId=model_id), timeout=30)
    except grpc.RpcError as error:
        event(f"{kind}: {error.code().name}")
        assert error.code() not in DEFECTS, error
        check_text(error.details())
    adapter.runtime.unloadModel(spi.UnloadModelRequest(modelId=model_id), timeout=30)
    adapter.check_nothing_is_left()


def test_an_honest_model_is_served_after_all_of_it(adapter: WholeAdapter) -> None:
    adapter.check_an_honest_model()
