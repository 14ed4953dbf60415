"""S3 → adapter → Triton → inference: every form in which a model may lie serves its own answers."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.integration.conftest import TEXT, Put, Rig, Start
from tests.real.mesh import Mesh
from tests.real.models import digits_classifier, text_statistics

COMPLETES_CONFIGS = True


@pytest.mark.parametrize("path", ["digits", "digits/", "/digits", "digits/model.onnx", "versions", "odd-name"])
def test_an_onnx_model_answers_like_itself(mesh: Mesh, put: Put, path: str) -> None:
    """A directory, one file, a version tree and a file of another name serve the same predictions."""
    digits = digits_classifier()
    put("digits", {"model.onnx": digits.onnx_bytes()})
    put("versions", {"1/model.onnx": b"not this one", "12/model.onnx": digits.onnx_bytes()})
    put("odd-name", {"digits-v3.onnx": digits.onnx_bytes()})

    loaded = mesh.load("m", "onnx", path)
    answer = mesh.infer("m", {"image": digits.images[:20]})["probabilities"]

    assert loaded.sizeInBytes == mesh.predict("m", "onnx", path) > 8192
    np.testing.assert_allclose(answer, digits.predict(digits.images[:20]), atol=1e-5)


def test_replaced_content_is_served_after_the_next_load(mesh: Mesh, put: Put) -> None:
    digits, other = digits_classifier(), digits_classifier(seed=8)
    put("replaced", {"model.onnx": digits.onnx_bytes()})
    mesh.load("r", "onnx", "replaced")
    put("replaced", {"model.onnx": other.onnx_bytes()})
    mesh.load("r", "onnx", "replaced")

    answer = mesh.infer("r", {"image": digits.images[:5]})["probabilities"]
    np.testing.assert_allclose(answer, other.predict(digits.images[:5]), atol=1e-5)


def test_a_schema_becomes_inputs_and_outputs(mesh: Mesh, put: Put) -> None:
    digits = digits_classifier()
    schema = {
        "inputs": [{"name": "image", "datatype": "FP32", "shape": [-1, 64]}],
        "outputs": [{"name": "probabilities", "datatype": "FP32", "shape": [-1, 10]}],
    }
    put("with-schema", {"model.onnx": digits.onnx_bytes(), "_schema.json": json.dumps(schema).encode()})

    mesh.load("s", "onnx", "with-schema", schema_path="with-schema/_schema.json")
    answer = mesh.infer("s", {"image": digits.images[:5]})["probabilities"]

    np.testing.assert_allclose(answer, digits.predict(digits.images[:5]), atol=1e-5)


def test_files_of_the_storage_helper_are_served_in_place(start_adapter: Start, rig: Rig) -> None:
    """An absolute path with `disk_size_bytes` was pulled by ModelMesh's own puller: linked, and never deleted by us."""
    folder = rig.volume / "helped" / "texts"
    for name, content in text_statistics().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    adapter = start_adapter()
    with Mesh(adapter.channel_target, rig.triton_target) as mesh:
        mesh.start()
        key = {"storage_key": None, "disk_size_bytes": 1_000_000}
        assert 8192 < mesh.predict("helped", "python", str(folder), **key) < 100_000, "what is there counts, not what is said of it"
        mesh.load("helped", "python", str(folder), **key)
        assert (mesh.infer("helped", TEXT)["COUNTS"] == [[3, 2]]).all()
        mesh.unload("helped")
        assert mesh.index() == {}
    assert (folder / "1/model.py").is_file()
    for path in sorted((rig.volume / "helped").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (rig.volume / "helped").rmdir()
