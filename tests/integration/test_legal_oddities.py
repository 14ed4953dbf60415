"""What plain Triton loads is loaded, however odd, and what it could only refuse never reaches it."""

from __future__ import annotations

from collections.abc import Callable

import grpc
import numpy as np
import pytest

from tests.integration.conftest import Rig
from tests.real.mesh import Mesh
from tests.real.models import affine, digits_classifier

COMPLETES_CONFIGS = True

Put = Callable[[str, dict[str, bytes]], None]
X = np.array([1.0, 2.0], dtype=np.float32)
LARGEST_VERSION = "9223372036854775807"


def test_a_comment_in_latin_1_a_set_default_and_the_largest_version_are_legal(mesh: Mesh, put: Put) -> None:
    """Protobuf reads past the comment, takes a second value after a default, and Triton reads versions of 64 bits."""
    files = dict(affine(3, 0))
    files["config.pbtxt"] = b"# mod\xe8le\n" + files["config.pbtxt"] + b"max_batch_size: 0\nversion_policy { all { } }\n"
    files[f"{LARGEST_VERSION}/model.py"] = files["1/model.py"]
    put("odd", files)

    mesh.load("odd", "python", "odd")

    assert mesh.infer("odd", {"X": X})["Y"].tolist() == [3.0, 6.0]


def test_files_beside_the_versions_are_placed_beside_them(mesh: Mesh, put: Put, rig: Rig) -> None:
    """Triton takes no notice; the model's author had a reason."""
    put("beside", {"7/model.onnx": digits_classifier().onnx_bytes(), "labels.txt": b"zero", "env.tar.gz": b"no archive"})

    mesh.load("beside", "onnx", "beside")

    assert {path.name for path in (rig.repository / "beside").iterdir()} == {"7", "labels.txt", "env.tar.gz"}


def test_a_value_that_protobuf_would_refuse_is_told_before_triton_is_asked(mesh: Mesh, put: Put, rig: Rig) -> None:
    """With its line, and the word that seems to be meant."""
    files = dict(affine(3, 0))
    files["config.pbtxt"] = files["config.pbtxt"].replace(b"TYPE_FP32", b"TYPE_FLOAT", 1)
    put("float", files)

    with pytest.raises(grpc.RpcError) as refused:
        mesh.load("float", "python", "float")

    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "line 3, column 32: data_type cannot be TYPE_FLOAT; TYPE_FP32 seems to be meant" in refused.value.details()
    assert rig.leftovers() == []
