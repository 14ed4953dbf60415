"""What plain Triton loads is loaded, however odd, and what it could only refuse never reaches it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.real.mesh import Mesh
from tests.real.models import affine

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
