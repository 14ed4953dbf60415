"""S3 → adapter → Triton → inference → unload."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable

import grpc
import numpy as np
import pytest

from adapter._pb import model_runtime_pb2 as spi
from tests.integration.conftest import BUCKET, Bed
from tests.real.adapter import AdapterProcess
from tests.real.mesh import Mesh
from tests.real.models import count_text, digits_classifier, sleeper, text_statistics
from tests.real.polls import until
from tests.real.s3 import S3Server

Put = Callable[[str, dict[str, bytes]], None]
SECONDS = np.array([3.0], dtype=np.float32)


def test_runtime_status_announces_what_modelmesh_needs(mesh: Mesh) -> None:
    """READY with capacity, the five methods and Triton's own version."""
    state = mesh.start()

    assert state.runtimeVersion.count(".") == 2
    assert state.capacityInBytes > 2 * state.defaultModelSizeInBytes
    assert not state.allowAnyMethod
    assert {name: list(method.idInjectionPath) for name, method in state.methodInfos.items()} == {
        f"inference.GRPCInferenceService/{name}": [1]
        for name in ("ModelInfer", "ModelMetadata", "ModelReady", "ModelConfig", "ModelStatistics")
    }


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


def test_a_native_python_model_keeps_its_config(mesh: Mesh, put: Put) -> None:
    """Its own name is removed, unknown content is kept."""
    files = dict(text_statistics())
    files["config.pbtxt"] = b'name: "somebody-else" # a comment\n' + files["config.pbtxt"]
    put("texts", files)

    mesh.load("texts-7", "python", "texts")
    counts = mesh.infer("texts-7", {"TEXT": np.array(["a bc", "déjà vu"], dtype=np.object_)})["COUNTS"]

    assert (counts == count_text(["a bc", "déjà vu"])).all()


def test_two_models_of_one_path_live_side_by_side(mesh: Mesh, put: Put) -> None:
    put("texts", dict(text_statistics()))
    mesh.load("one", "python", "texts")
    mesh.load("two", "python", "texts")
    mesh.unload("one")

    assert mesh.index() == {"two": "READY"}
    assert (mesh.infer("two", {"TEXT": np.array(["x"], dtype=np.object_)})["COUNTS"] == [[1, 1]]).all()


def test_2500_objects_load_whole_and_siblings_stay_out(mesh: Mesh, put: Put, s3: S3Server, bed: Bed) -> None:
    """More than two pages of a listing, some objects empty; `m-2/` sorts before `m/`."""
    files = dict(text_statistics()) | {f"1/data/{n % 50:02}/{n:04}.bin": b"" if n % 100 == 0 else b"%d" % n for n in range(2498)}
    s3.put_folder(BUCKET, "many/m", files)
    s3.put_folder(BUCKET, "many/m-2", {f"stranger-{n}": b"x" for n in range(150)})

    mesh.load("many", "python", "many/m")
    placed = bed.repository / "many"
    found = {path.relative_to(placed).as_posix() for path in placed.rglob("*") if path.is_file() and "__pycache__" not in path.parts}

    assert found == set(files)
    assert len(found) == 2500
    assert (placed / "1/data/00/0100.bin").stat().st_size == 0
    assert (placed / "1/data/01/0101.bin").read_bytes() == b"101"


def test_unload_answers_after_the_inference_in_flight(mesh: Mesh, put: Put, bed: Bed) -> None:
    """Triton answers its unload at once and frees later; ModelMesh must hear of the latter."""
    put("sleeper", dict(sleeper()))
    mesh.load("sleeper", "python", "sleeper")
    ended: list[float] = []

    def infer() -> None:
        mesh.infer("sleeper", {"SECONDS": SECONDS})
        ended.append(time.monotonic())

    inference = threading.Thread(target=infer)
    inference.start()
    until((bed.repository / "sleeper/1/busy").exists, "the inference has begun")
    mesh.unload("sleeper")
    answered = time.monotonic()
    index_at_that_moment = mesh.index()
    inference.join()

    assert ended and ended[0] < answered
    assert index_at_that_moment == {}
    assert bed.leftovers() == []


def test_a_cancelled_load_and_its_unload_leave_nothing(adapter: AdapterProcess, mesh: Mesh, put: Put, bed: Bed) -> None:
    """Cancelled while Triton loads; ModelMesh's unload comes after the adapter has noticed, while the load still runs."""
    put("slow", dict(sleeper(start_seconds=10)))
    mesh.start_load("slow", "python", "slow").cancel()
    until(lambda: '"code":"CANCELLED"' in adapter.log_text(), "the adapter has noticed the cancel")
    assert mesh.index() == {"slow": "LOADING"}
    mesh.unload("slow")

    assert mesh.index() == {}
    assert bed.leftovers() == []
    put("slow", dict(sleeper(start_seconds=0)))
    assert mesh.load("slow", "python", "slow").sizeInBytes > 8192


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


def test_a_model_that_triton_refuses_is_told_and_gone(mesh: Mesh, put: Put, bed: Bed) -> None:
    """Triton's reason comes first, in one line; nothing is left, so no unload is needed."""
    put("broken", {"config.pbtxt": b'backend: "python"\n', "1/model.py": b"import a_module_that_is_not_there\n"})

    with pytest.raises(grpc.RpcError) as refused:
        mesh.load("broken", "python", "broken")

    assert refused.value.code() is grpc.StatusCode.INTERNAL
    assert "a_module_that_is_not_there" in refused.value.details()
    assert "\n" not in refused.value.details()
    assert mesh.index() == {}
    assert bed.leftovers() == []


def test_a_purge_empties_what_was_loaded(mesh: Mesh, put: Put, bed: Bed) -> None:
    """ModelMesh restarts: READY means that nothing is in memory, on disk or in the index."""
    put("texts", dict(text_statistics()))
    mesh.load("a", "python", "texts")
    mesh.load("b", "python", "texts")
    (bed.repository / "dangling").symlink_to("/nowhere")

    mesh.start()

    assert mesh.index() == {}
    assert bed.leftovers() == []


def test_an_unknown_id_is_unloaded_at_once(mesh: Mesh) -> None:
    mesh.unload("never-heard-of")
    for impossible in ("", ".", "..", "a/b", "_triton_models", "x" * 300):
        mesh.unload(impossible)

    assert mesh.index() == {}


def test_a_model_that_cannot_fit_is_refused_and_the_rest_serves_on(start_adapter, bed: Bed, put: Put) -> None:
    """The reason reaches the model's status: predicted small, refused by loadModel with the arithmetic."""
    put("texts", dict(text_statistics()))
    put("large", {"model.onnx": b"x" * (30 << 20)})
    adapter = start_adapter(CONTAINER_MEM_REQ_BYTES="288MiB", MEM_BUFFER_BYTES="256MiB")
    with Mesh(adapter.channel_target, bed.triton_target) as mesh:
        mesh.start()
        mesh.load("small", "python", "texts")
        assert 8192 < mesh.predict("large", "onnx", "large") < 1 << 20
        with pytest.raises(grpc.RpcError) as refused:
            mesh.load("large", "onnx", "large")

    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "× 1.25" in refused.value.details()
    with Mesh(adapter.channel_target, bed.triton_target) as mesh:
        assert mesh.index() == {"small": "READY"}


def test_model_size_is_the_loaded_one(mesh: Mesh, put: Put) -> None:
    put("texts", dict(text_statistics()))
    loaded = mesh.load("t", "python", "texts")

    assert mesh.runtime.modelSize(spi.ModelSizeRequest(modelId="t")).sizeInBytes == loaded.sizeInBytes
