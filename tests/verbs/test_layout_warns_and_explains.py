"""`layout`: what Triton may refuse or do harm with is told before the upload, and so is a wrong schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.layout.cases.builders import config_from, config_of
from tests.verbs.layouts import shown

ADD = "Triton may refuse this model: the PyTorch backend does not fill in inputs and outputs: add a schema (schema_path) or a config.pbtxt"
DECOUPLED = 'backend: "python"\nmodel_transaction_policy { decoupled: true }\n'
STEP = 'platform: "ensemble"\nensemble_scheduling { step { model_name: "a" } }\n'
BLS = 'backend: "python"\nparameters { key: "bls_model.a" value { string_value: "a" } }\n'
FILES = {"1/model.pt": "x", "1/model.py": "x", "1/model.onnx": "x", "1/model.json": "x"}
A_AS_STEP = {"top/config.pbtxt": STEP, "a/1/model.py": "x", "a/1/model.pt": "x"}


def tensors(*names: str) -> list[dict[str, object]]:
    return [{"name": name, "datatype": "FP32", "shape": [-1, 4]} for name in names]


@pytest.mark.parametrize(
    ("kind", "files", "schema", "warnings"),
    [
        ("pytorch", {"model.pt": "x"}, None, [ADD]),
        ("pytorch", {"net.pth": "x"}, None, [ADD]),
        ("pytorch", {"model.pt2": "x"}, None, [ADD]),
        ("", {"model.pt": "x"}, None, [ADD]),
        ("pytorch", {"model.pt": "x"}, {"inputs": tensors("x"), "outputs": tensors("y")}, []),
        ("pytorch", {"model.pt": "x"}, {"inputs": tensors("x")}, ["with all of them"]),
        ("pytorch", {"model.pt": "x"}, {"outputs": tensors("y")}, ["with all of them"]),
        ("pytorch", {"model.pt": "x"}, {}, ["with all of them"]),
        ("", {"config.pbtxt": 'backend: "pytorch"', **FILES}, None, ["the PyTorch backend does not fill in"]),
        ("", {"config.pbtxt": 'platform: "pytorch_libtorch"', **FILES}, None, ["the PyTorch backend does not fill in"]),
        ("", {"config.pbtxt": 'platform: "torch_aoti"', **FILES}, None, ["the PyTorch backend does not fill in"]),
        ("", {"config.pbtxt": "max_batch_size: 8", **FILES}, None, ["the PyTorch backend does not fill in"]),
        ("", {"config.pbtxt": 'backend: "pytorch" input { name: "x" } output { name: "y" }', **FILES}, None, []),
        ("", {"config.pbtxt": 'backend: "onnxruntime"', **FILES}, None, []),
        ("", {"config.pbtxt": 'platform: "onnxruntime_onnx"', **FILES}, None, []),
        ("onnx", {"model.onnx": "x"}, None, []),
        ("python", {"model.py": "x"}, None, []),
        ("", {"model.onnx": "x", "model.py": "x"}, None, []),
        ("", {"a/config.pbtxt": 'backend: "pytorch"', **A_AS_STEP}, None, ["model: a: the PyTorch backend does not fill in"]),
        ("", {"a/config.pbtxt": DECOUPLED, **A_AS_STEP}, None, ["a: the model is decoupled: "]),
        ("", {"a/config.pbtxt": DECOUPLED, "top/1/model.py": "x", **A_AS_STEP, "top/config.pbtxt": BLS}, None, []),
        ("python", {"config.pbtxt": 'backend: "vllm"', **FILES}, None, ["with one answer only"]),
        ("python", {"config.pbtxt": DECOUPLED, **FILES}, None, ["with one answer only"]),
        ("python", {"config.pbtxt": "backend: 'python' model_transaction_policy: < decoupled: t >", **FILES}, None, ["decoupled"]),
        ("python", {"config.pbtxt": "backend: 'python' model_transaction_policy { decoupled: 1 }", **FILES}, None, ["decoupled"]),
        ("python", {"config.pbtxt": "model_transaction_policy { decoupled: false decoupled: true }", **FILES}, None, ["decoupled"]),
        ("python", {"config.pbtxt": 'backend: "python"', **FILES}, None, []),
        ("python", {"config.pbtxt": 'backend: "python" model_transaction_policy { }', **FILES}, None, []),
        ("python", {"config.pbtxt": 'backend: "python" model_transaction_policy { decoupled: false }', **FILES}, None, []),
    ],
)
def test_each_model_has_the_warnings_that_it_deserves(
    kind: str, files: dict[str, str], schema: Any, warnings: list[str], tmp_path: Path
) -> None:
    """Of the PyTorch backend, which fills in nothing, and of models that answer any number of times; it fits all the same."""
    found = shown(tmp_path, files, kind, schema=schema)
    assert found.code == 0, found.text
    assert len(found.warnings) == len(warnings), found.warnings
    assert all(words in warning for words, warning in zip(warnings, found.warnings, strict=True))


@pytest.mark.parametrize(
    ("kind", "files"),
    [
        ("vllm", ["model.json"]), ("vllm", ["1/model.json", "1/weights/w.safetensors"]), ("vllm", ["config.json"]),
        ("", ["model.json"]), ("", ["1/model.json", "1/weights/w.safetensors"]),
    ],
)  # fmt: skip
def test_vllm_without_a_config_is_refused_with_the_parameter_that_allows_it(kind: str, files: list[str], tmp_path: Path) -> None:
    """Also where only `model.json` tells what it is."""
    found = shown(tmp_path, dict.fromkeys(files, "{}"), kind)
    assert found.code == 1
    assert found.refusal.startswith("a vLLM model is decoupled: ")
    assert 'set adapter.allowDecoupled to "true" in its storage_params, or give it a config.pbtxt' in found.refusal


@pytest.mark.parametrize(
    ("names", "fits"),
    [
        (["INPUT__1"], False), (["x__0", "x__2"], False), (["x__99999999999"], False), (["a__0", "b__1", "c__18446744073709551616"], False),
        (["x"], True), (["INPUT__0"], True), (["a__1", "b__0"], True), (["x", "INPUT__7"], True), (["a__b__7"], True),
        (["INPUT__", "y__1"], True), (["x__7a"], True), (["tokens", "mask__9"], True),
    ],
)  # fmt: skip
def test_a_number_that_no_input_of_pytorch_has_is_refused(names: list[str], fits: bool, tmp_path: Path) -> None:
    """The backend writes the tensor at that place of a list as long as the request's inputs; one name without a number ends that."""
    found = shown(tmp_path, {"model.pt": "x"}, "pytorch", schema={"inputs": tensors(*names), "outputs": tensors("OUTPUT__7")})
    assert (found.code == 0, "the first is 0" in found.refusal) == (fits, not fits)


@pytest.mark.parametrize(
    ("kind", "files"),
    [("dali", {"model.dali": "x"}), ("dali", {"dali.py": "x"}), ("", {"config.pbtxt": 'backend: "dali"', "1/model.dali": "x"})],
)
@pytest.mark.parametrize("model_id", ['a"; touch x #', "a$(x)", "a`x`", "a'b", "a b", "a\\b", "a\nb", "ä", "a;b", "a|b", "a&b"])
def test_dali_gets_no_id_with_characters_of_a_shell(kind: str, files: dict[str, str], model_id: str, tmp_path: Path) -> None:
    """Also for a serialized pipeline: the backend runs the command for what it cannot read."""
    found = shown(tmp_path, files, kind, model_id=model_id)
    assert found.code == 1
    assert "would hand to a shell" in found.refusal


@pytest.mark.parametrize(
    ("kind", "file", "model_id"),
    [
        ("dali", "model.dali", "resize__isvc-3f2a9c"),
        ("dali", "model.dali", "a~b"),
        ("dali", "model.dali", "m.1"),
        ("dali", "dali.py", "resize"),
        ("dali", "dali.py", "resize__isvc-3f2a9c"),
        ("onnx", "model.onnx", 'a"; touch x #'),
    ],
)
def test_other_ids_are_fine(kind: str, file: str, model_id: str, tmp_path: Path) -> None:
    """Newer backends refuse a script under some of them, in words of their own."""
    found = shown(tmp_path, {file: "x"}, kind, model_id=model_id)
    assert found.code == 0, found.text


def tensor(**changes: Any) -> dict[str, Any]:
    return {"name": "t", "datatype": "FP32", "shape": [1], **changes}


@pytest.mark.parametrize(
    ("schema", "batch", "words"),
    [
        ([], 0, "an array at the top level, an object is expected"),
        (b"null", 0, "nothing at the top level, an object is expected"),
        ({"inputs": {}}, 0, "an object at inputs, an array is expected"),
        ({"outputs": "x"}, 0, "a string at outputs, an array is expected"),
        ({"inputs": [1]}, 0, "a whole number at inputs[0], an object is expected"),
        ({"inputs": [tensor(), tensor(name=3)]}, 0, "a whole number at inputs[1].name, a string is expected"),
        ({"inputs": [{"datatype": "FP32"}]}, 0, "nothing at inputs[0].name, a string is expected"),
        ({"inputs": [tensor(name="")]}, 0, "an empty name, or half a surrogate pair, at inputs[0].name"),
        ({"inputs": [tensor(name="\ud800")]}, 0, "half a surrogate pair, at inputs[0].name"),
        ({"inputs": [tensor(datatype=None)]}, 0, "nothing at inputs[0].datatype, a string is expected"),
        ({"inputs": [tensor(datatype=["FP32"])]}, 0, "an array at inputs[0].datatype"),
        ({"inputs": [tensor(shape="1,2")]}, 0, "a string at inputs[0].shape, an array is expected"),
        ({"inputs": [tensor(shape=[1, 2.0])]}, 0, "a number with a fraction at inputs[0].shape[1], a whole number is expected"),
        ({"inputs": [tensor(shape=[True])]}, 0, "true or false at inputs[0].shape[0], a whole number is expected"),
        ({"inputs": [tensor(), tensor()]}, 0, "names the tensor t twice in inputs"),
        *(({"inputs": [tensor(datatype=kind)]}, 0, "the tensor t the unknown datatype") for kind in ("FLOAT", "fp32", "TYPE_FP32", "")),
        ({"inputs": [tensor(datatype="INVALID")]}, 0, "BOOL, UINT8, UINT16, UINT32, UINT64, INT8, INT16, INT32, INT64, FP16, BF16"),
        ({"inputs": [tensor(shape=[10])]}, 4, "(inputs[0].shape): config.pbtxt has max_batch_size 4"),
        ({"inputs": [tensor(shape=[10])]}, 1, "(inputs[0].shape): config.pbtxt has max_batch_size 1"),
        ({"inputs": [tensor(shape=[])]}, 4, "(inputs[0].shape): config.pbtxt has max_batch_size 4"),
        ({"inputs": [tensor(shape=None)]}, 4, "config.pbtxt has max_batch_size 4"),
        ({"inputs": [tensor(shape=[-1])]}, 4, "has no dimension besides the batch"),
        ({"inputs": [tensor(shape=[])]}, 0, "has no dimension: Triton has no scalars"),
        ({"inputs": [tensor(shape=None)]}, 0, "has no dimension: Triton has no scalars"),
        ({"inputs": [tensor(shape=[3, 0])]}, 0, "a dimension that Triton does not allow at inputs[0].shape[1]"),
        ({"inputs": [tensor(shape=[-2])]}, 0, "a dimension that Triton does not allow at inputs[0].shape[0]"),
        ({"inputs": [tensor(shape=[2**63])]}, 0, "a dimension that Triton does not allow at inputs[0].shape[0]"),
        (b"", 0, "line 1 column 1"),
        (b'{"inputs":\n [}', 0, "line 2 column 3"),
        (b"\xff", 0, "byte 0xff in position 0"),
        (b"[" * 100_000, 0, "recursion depth exceeded"),
        (json.dumps({"inputs": [tensor(shape=[7])]}).replace("7", "9" * 10_000).encode(), 0, "Exceeds the limit (4300 digits)"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_wrong_schema_is_refused_with_the_place_in_it(schema: Any, batch: int, words: str, tmp_path: Path) -> None:
    """So that it can be found in a long file."""
    files = {"config.pbtxt": f"max_batch_size: {batch}", "1/model.onnx": "x"}
    found = shown(tmp_path, files, "onnx", schema=schema)
    assert found.code == 1
    assert words in found.refusal


@pytest.mark.parametrize(
    ("schema", "batch", "config"),
    [
        *(
            ({"inputs": [tensor(datatype=kind)]}, 0, {"input": [{"name": "t", "data_type": f"TYPE_{kind}", "dims": [1]}]})
            for kind in ("BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64", "BF16")
        ),
        ({"inputs": [tensor(datatype="BYTES")]}, 0, {"input": [{"name": "t", "data_type": "TYPE_STRING", "dims": [1]}]}),
        (
            {"inputs": [tensor(shape=[-1, 64, -1])], "outputs": [tensor(shape=[-1, 10])]},
            8,
            {
                "max_batch_size": 8,
                "input": [{"name": "t", "data_type": "TYPE_FP32", "dims": [64, -1]}],
                "output": [{"name": "t", "data_type": "TYPE_FP32", "dims": [10]}],
            },
        ),
        ({}, 0, {}),
        ({"inputs": None}, 0, {}),
        ({"inputs": [], "outputs": []}, 0, {}),
        ({"name": "x", "other": 1}, 0, {}),
        (b"\xef\xbb\xbf{}", 0, {}),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_schema_becomes_tensors_of_tritons_types(schema: Any, batch: int, config: dict[str, Any], tmp_path: Path) -> None:
    """The batch dimension is cut where the model batches; an absent or empty list says nothing."""
    files = {"config.pbtxt": f"max_batch_size: {batch}", "1/model.onnx": "x"}
    assert config_of(shown(tmp_path, files, "onnx", schema=schema).configs["m"]) == config_from(config)
