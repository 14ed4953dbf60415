"""The PyTorch backend fills nothing in and believes the names of inputs: what users must add, and what is refused."""

from __future__ import annotations

import pytest

from adapter.errors import InvalidModel
from tests.unit.layout.cases.builders import planned
from tests.unit.layout.test_bundles import planned as plan_bundle

ADD = "the PyTorch backend does not fill in inputs and outputs: add a schema (schema_path) or a config.pbtxt"


def tensors(*names: str) -> list[dict[str, object]]:
    return [{"name": name, "datatype": "FP32", "shape": [-1, 4]} for name in names]


@pytest.mark.parametrize(("kind", "file"), [("pytorch", "model.pt"), ("pytorch", "net.pth"), ("pytorch", "model.pt2"), ("", "model.pt")])
def test_a_model_without_config_and_schema_has_the_hint(kind, file):
    """TorchScript and AOTInductor, also where Triton finds the backend by the file's name."""
    assert planned(kind, [file]).hint == ADD


@pytest.mark.parametrize(
    ("schema", "has_hint"),
    [
        ({"inputs": tensors("x"), "outputs": tensors("y")}, False),
        ({"inputs": tensors("x")}, True),
        ({"outputs": tensors("y")}, True),
        ({}, True),
    ],
)
def test_a_schema_must_have_both_sides(schema, has_hint):
    assert ("name all of them" in planned("pytorch", ["model.pt"], schema=schema).hint) is has_hint


@pytest.mark.parametrize(
    ("config", "has_hint"),
    [
        ('backend: "pytorch"', True),
        ('platform: "pytorch_libtorch"', True),
        ('platform: "torch_aoti"', True),
        ("max_batch_size: 8", True),
        ('backend: "pytorch" input { name: "x" } output { name: "y" }', False),
        ('backend: "onnxruntime"', False),
        ('backend: "python"', False),
        ('platform: "onnxruntime_onnx"', False),
    ],
)
def test_a_config_without_tensors_has_the_hint(config, has_hint):
    """For Triton the config counts, not the model type."""
    found = planned("", ["config.pbtxt", "1/model.pt", "1/model.py", "1/model.onnx"], config=config)

    assert found.hint.startswith("the PyTorch backend does not fill in") is has_hint


@pytest.mark.parametrize("kind", ["onnx", "python", "tensorrt", "openvino", ""])
def test_other_types_have_no_hint(kind):
    files = ["model.xml", "model.bin"] if kind == "openvino" else ["model.onnx", "model.py"]
    assert planned(kind, files[:1] if kind in ("onnx", "tensorrt") else files).hint == ""


def test_the_hint_of_a_bundle_says_which_model():
    step = 'platform: "ensemble"\nensemble_scheduling { step { model_name: "a" } }\n'
    found = plan_bundle({"top/config.pbtxt": step, "a/config.pbtxt": 'backend: "pytorch"', "a/1/model.pt": ""})

    assert found.hint.startswith("a: the PyTorch backend does not fill in")


@pytest.mark.parametrize("names", [["INPUT__1"], ["x__0", "x__2"], ["x__99999999999"], ["a__0", "b__1", "c__18446744073709551616"]])
def test_a_number_that_no_input_has_is_refused(names):
    """The backend writes the tensor at that place of a list that is as long as the request's inputs."""
    with pytest.raises(InvalidModel, match="the first is 0"):
        planned("pytorch", ["model.pt"], schema={"inputs": tensors(*names), "outputs": tensors("OUTPUT__7")})


@pytest.mark.parametrize(
    "names", [["x"], ["INPUT__0"], ["a__1", "b__0"], ["x", "INPUT__7"], ["a__b__7"], ["INPUT__", "y__1"], ["x__7a"], ["tokens", "mask__9"]]
)
def test_names_that_the_backend_reads_otherwise_are_its_business(names):
    """It counts the config's order when one name has no number, and it compares outputs with what there is."""
    planned("pytorch", ["model.pt"], schema={"inputs": tensors(*names), "outputs": tensors("OUTPUT__7")})


def test_aotinductor_compares_all_names_itself():
    planned("pytorch", ["model.pt2"], schema={"inputs": tensors("INPUT__7"), "outputs": tensors("y")})
