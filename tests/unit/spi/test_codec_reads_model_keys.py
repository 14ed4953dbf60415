"""What a request means: modelType, modelKey, and the parameters that are for the adapter itself."""

import json
from typing import Any

import pytest

from adapter._pb import model_runtime_pb2 as pb
from adapter.errors import InvalidRequest
from adapter.model import ModelSpec
from adapter.spi.codec import decode, type_of_label
from tests.contract.spi.bad_inputs import SECRET


def decoded(key: dict[str, Any] | str = "", model_type: str = "", path: str = "model.zip") -> ModelSpec:
    text = key if isinstance(key, str) else json.dumps(key)
    return decode(pb.LoadModelRequest(modelId="m1", modelType=model_type, modelPath=path, modelKey=text))


def test_all_fields_of_a_key_arrive() -> None:
    """One request with everything."""
    spec = decoded(
        {
            "model_type": {"name": "ONNX", "version": "1"},
            "storage_key": "mine",
            "storage_params": {"bucket": "b", "headers.Authorization": "x"},
            "schema_path": "a/schema.json",
            "bucket": "old",
            "disk_size_bytes": 60,
        },
        path="/models/m1/model.onnx",
    )

    assert spec == ModelSpec(
        model_id="m1",
        model_type="onnx",
        path="/models/m1/model.onnx",
        storage_key="mine",
        storage_params={"bucket": "b", "headers.Authorization": "x"},
        bucket="old",
        schema_path="a/schema.json",
        disk_size_bytes=60,
    )


@pytest.mark.parametrize("key", ["", "  ", "{}", '{"unknown": [1, {"a": null}], "more": "x"}'])
def test_key_without_our_fields_is_a_plain_model(key: str) -> None:
    """An empty key counts as an empty object; unknown fields are for others."""
    assert decoded(key) == ModelSpec(model_id="m1", model_type="", path="model.zip")


@pytest.mark.parametrize("absent", [None, ""])
def test_null_and_empty_are_absent(absent: str | None) -> None:
    """As in every store's configuration."""
    fields = dict.fromkeys(["model_type", "storage_key", "schema_path", "bucket"], absent)

    assert decoded({**fields, "storage_params": {"region": absent}, "disk_size_bytes": None}) == decoded({})
    assert decoded({"storage_params": None, "model_type": {"name": absent}}) == decoded({})
    assert decoded({"storage_params": {"adapter.modelSizeBytes": absent}}) == decoded({})


@pytest.mark.parametrize(
    ("key", "bucket"),
    [
        ('{"BUCKET": "b"}', "b"),
        ('{"Bucket": "b", "bucket": "exact"}', "exact"),
        ('{"bucket": "exact", "Bucket": "b"}', "exact"),
        ('{"Bucket": "first", "BUCKET": "last"}', "last"),
        ('{"bucket": "first", "bucket": "last"}', "last"),
    ],
)
def test_names_match_without_regard_to_case(key: str, bucket: str) -> None:
    """As Go's decoder does; the exact name wins, and of several the last."""
    assert decoded(key).bucket == bucket


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("mt:onnx:1|pv:grpc-v2", "onnx"),
        ("mt:onnx:1", "onnx"),
        ("mt:onnx", "onnx"),
        ("mt:onnx|pv:grpc-v2", "onnx"),
        ("onnx", "onnx"),
        ("onnx:1", "onnx"),
        (" ONNX ", "onnx"),
        ("MT:TensorRT:7", "tensorrt"),
        ("rt:triton-2.x", ""),
        ("rt:onnx", ""),
        ("pv:grpc-v2", ""),
        ("mt:", ""),
        ("", ""),
    ],
)
def test_placement_label_holds_the_type(label: str, name: str) -> None:
    """modelType is where ModelMesh places the model; only `mt:` and plain names say what it is."""
    assert type_of_label(label) == name


@pytest.mark.parametrize("given", ["PyTorch", "pytorch:1", " pytorch ", {"name": "pytorch", "version": "1"}, {"NAME": "pytorch"}])
def test_type_of_the_key_beats_the_label(given: object) -> None:
    """The label is about placement; the key is about the model."""
    assert decoded({"model_type": given}, model_type="mt:onnx").model_type == "pytorch"


@pytest.mark.parametrize("given", [None, "", {}, {"name": None}, {"version": "1"}])
def test_label_helps_when_the_key_has_no_type(given: object) -> None:
    """A type object without a name says nothing."""
    assert decoded({"model_type": given}, model_type="mt:onnx").model_type == "onnx"


def test_the_name_of_a_check_is_no_model_id() -> None:
    """The adapter makes directories of such names where Triton looks, and sweeps them."""
    with pytest.raises(InvalidRequest, match="begins with 'adapter-probe-', which is reserved"):
        decode(pb.LoadModelRequest(modelId="adapter-probe-1"))


def test_secrets_are_not_shown_by_the_spec_itself() -> None:
    """A spec may be logged by accident."""
    assert SECRET not in repr(decoded({"storage_params": {"secret_access_key": SECRET}}))


def test_parameters_that_are_very_many_are_refused() -> None:
    """Each is looked at while all other calls wait; the text does not quote them."""
    with pytest.raises(InvalidRequest) as caught:
        decoded({"storage_params": {f"{SECRET}-{number}": "x" for number in range(257)}})

    assert caught.value.text == "modelKey field storage_params has 257 entries, expected at most 256"
    assert SECRET not in caught.value.text and len(caught.value.text) < 200
    assert decoded({"storage_params": {"certificate": "x" * 65_536}}).storage_params["certificate"]
