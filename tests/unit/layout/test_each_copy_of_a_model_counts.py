"""Bytes of which a size is predicted before the first load: what is served, as often as one device holds it."""

from __future__ import annotations

import pytest

from adapter.layout import rules
from adapter.layout.model_config import ALL_GPUS
from adapter.model import Layout, Listing, SourceFile
from tests.builders import a_spec

MIB = 1 << 20
ONNX, PYTHON, TENSORRT = "onnx 1/model.onnx", "python 1/model.py", "tensorrt 1/model.plan"


def planned(model: str, config: str, *more: str) -> int:
    """Its MiB, of files of 10 MiB each."""
    return laid_out(model, config, *more).size_bytes // MIB


def laid_out(model: str, config: str, *more: str) -> Layout:
    model_type, *paths = model.split()
    files = [SourceFile(path, 10 * MIB, "e") for path in (*paths, *more)] + [SourceFile("config.pbtxt", 0, "c")]
    listing = Listing("memory://a", "a", False, tuple(sorted(files, key=lambda file: file.path)))
    spec = a_spec("a", model_id="a", model_type=model_type)
    return rules.plan(spec, listing, {files[-1]: config.encode()})


@pytest.mark.parametrize(
    ("model", "config", "mib"),
    [
        (ONNX, "", 10),
        (ONNX, "instance_group { kind: KIND_CPU count: 4 }", 40),
        (ONNX, "instance_group [ { count: 2 gpus: [ 0, 1 ] }, { count: 1 gpus: [ 1 ] } ]", 30),
        (ONNX, "instance_group [ { kind: KIND_CPU count: 2 }, { kind: KIND_GPU count: 3 } ]", 30),
        (ONNX, "instance_group { kind: KIND_CPU }", 10),
        (PYTHON, 'backend: "python" instance_group { kind: KIND_CPU count: 3 }', 30),
        (TENSORRT, "instance_group { kind: KIND_GPU count: 4 }", 10),
        ("onnx 1/model.plan", 'platform: "tensorrt_plan" instance_group { kind: KIND_GPU count: 4 }', 10),
        (
            "pytorch 1/model.pt",
            'backend: "pytorch" instance_group { count: 4 } parameters { key: "ENABLE_WEIGHT_SHARING" value { string_value: "true" } }',
            10,
        ),
        (
            ONNX,
            'instance_group { count: 4 } parameters { key: "share_session_between_instances" value { string_value: "false" } }',
            40,
        ),
    ],
)
def test_files_count_once_for_each_instance_on_one_device(model: str, config: str, mib: int) -> None:
    assert planned(model, config) == mib


@pytest.mark.parametrize(
    ("model", "config", "gpus"),
    [
        (ONNX, "", ALL_GPUS),
        (ONNX, "instance_group { kind: KIND_CPU }", 0),
        (ONNX, "instance_group [ { kind: KIND_CPU }, { kind: KIND_GPU } ]", ALL_GPUS),
        (ONNX, "instance_group [ { count: 2 gpus: [ 0, 1 ] }, { gpus: [ 1 ] } ]", 2),
        (PYTHON, 'backend: "python"', 0),
        (PYTHON, 'backend: "python" instance_group { kind: KIND_GPU }', ALL_GPUS),
        (TENSORRT, "", ALL_GPUS),
    ],
)
def test_which_gpus_hold_a_model_is_said_where_it_is_certain(model: str, config: str, gpus: int) -> None:
    assert laid_out(model, config).gpus == gpus


def test_what_lies_beside_a_model_is_loaded_with_it() -> None:
    """External data of ONNX, weights of a python model: in full, of the served version."""
    assert planned("onnx 1/model.onnx/model.onnx", "", "1/model.onnx/weights.bin", "2/model.onnx/model.onnx") == 10
    assert planned("onnx 2/model.onnx/model.onnx", "", "2/model.onnx/weights.bin", "1/model.onnx/model.onnx") == 20
    assert planned(PYTHON, 'backend: "python"', "1/model-00001-of-00002.safetensors", "1/model-00002-of-00002.safetensors") == 30


def test_inner_models_have_copies_of_their_own() -> None:
    texts = {
        "config.pbtxt": 'platform: "ensemble" ensemble_scheduling { step [ { model_name: "a" }, { model_name: "b" } ] }',
        "a/config.pbtxt": 'backend: "onnxruntime" instance_group { count: 3 }',
        "b/config.pbtxt": 'backend: "onnxruntime"',
    }
    files = {path: SourceFile(path, 0, "c") for path in texts}
    models = [SourceFile(f"{name}/1/model.onnx", 10 * MIB, "e") for name in "ab"]
    listing = Listing("memory://m", "m", False, tuple(sorted([*files.values(), *models], key=lambda file: file.path)))
    spec = a_spec("m", model_id="m", model_type="triton")
    layout = rules.plan(spec, listing, {files[path]: text.encode() for path, text in texts.items()})
    assert layout.size_bytes == 40 * MIB
    assert layout.gpus == ALL_GPUS
