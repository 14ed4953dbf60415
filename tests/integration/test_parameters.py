"""Each storage parameter of the adapter's own, over the SPI: what ModelMesh passes on is what counts."""

from __future__ import annotations

from collections.abc import Callable

import grpc
import numpy as np
import pytest

from adapter.parameters import PARAMETERS
from tests.real.adapter import AdapterProcess
from tests.real.mesh import Mesh
from tests.real.models import affine, text_statistics

Put = Callable[[str, dict[str, bytes]], None]
X = np.array([1.0, 2.0], dtype=np.float32)
MIB = 2**20


def test_model_size_bytes_is_the_answer_to_both_questions(mesh: Mesh, put: Put) -> None:
    """Of `predictModelSize` before the load, and of `loadModel`; other storage parameters still reach the store."""
    put("sized", dict(text_statistics()))
    params = {"adapter.modelSizeBytes": "123MiB", "bucket": "models"}

    assert mesh.predict("sized", "python", "sized", storage_params=params) == 123 * MIB
    assert mesh.load("sized", "python", "sized", storage_params=params).sizeInBytes == 123 * MIB
    assert mesh.predict("unsized", "python", "sized") < 123 * MIB


@pytest.mark.parametrize(("top", "answer"), [("twice", [2.0, 4.0]), ("thrice", [3.0, 6.0])])
def test_top_model_chooses_between_two(top: str, answer: list[float], mesh: Mesh, put: Put) -> None:
    """A bundle in which no model names another: each could be asked for inference."""
    model_id = f"chosen-{top}"
    models = {"twice": affine(2, 0), "thrice": affine(3, 0)}
    put("two-tops", {f"{name}/{path}": content for name, files in models.items() for path, content in files.items()})

    with pytest.raises(grpc.RpcError, match=r"name that one in storage_params: adapter\.topModel"):
        mesh.load(model_id, "python", "two-tops")
    mesh.load(model_id, "python", "two-tops", storage_params={"adapter.topModel": top})

    assert mesh.infer(model_id, {"X": X})["Y"].tolist() == answer
    assert mesh.index() == dict.fromkeys([model_id, *(f"{model_id}~inner~{name}" for name in models if name != top)], "READY")


def test_allow_decoupled_lets_a_vllm_model_come_to_triton(mesh: Mesh, put: Put) -> None:
    """Refused before anything is pulled; allowed, it is Triton that has no such backend."""
    put("llm", {"model.json": b'{"model": "org/name"}'})

    with pytest.raises(grpc.RpcError, match=r"set adapter\.allowDecoupled to .true. in its storage_params") as refused:
        mesh.load("llm", "vllm", "llm")
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT

    with pytest.raises(grpc.RpcError, match="vllm") as asked:
        mesh.load("llm", "vllm", "llm", storage_params={"adapter.allowDecoupled": "true"})
    assert asked.value.code() is grpc.StatusCode.INTERNAL


def test_a_decoupled_config_of_the_user_is_loaded_and_the_log_warns(adapter: AdapterProcess, mesh: Mesh, put: Put) -> None:
    """No parameter is needed for it. Triton refuses ModelMesh's kind of call."""
    files = dict(affine(2, 0))
    files["config.pbtxt"] += b"model_transaction_policy { decoupled: true }\n"
    put("decoupled", files)

    mesh.load("decoupled", "python", "decoupled")

    assert adapter.log_text().count('"event":"model.warning"') == 1
    with pytest.raises(grpc.RpcError, match="decoupled"):
        mesh.infer("decoupled", {"X": X})


def test_every_parameter_is_tried_here() -> None:
    """A new row needs a test that goes over the SPI."""
    assert [parameter.name for parameter in PARAMETERS] == ["adapter.modelSizeBytes", "adapter.topModel", "adapter.allowDecoupled"]
