"""What ends (an unload, a cancel, a refusal, a purge) leaves nothing in Triton, in its index or on the volume."""

from __future__ import annotations

import threading
import time

import grpc
import numpy as np
import pytest

from tests.integration.conftest import Put, Rig, until_nothing_is_left
from tests.real.adapter import AdapterProcess
from tests.real.mesh import Mesh
from tests.real.models import sleeper, text_statistics
from tests.real.polls import until


def test_unload_answers_after_the_inference_in_flight(mesh: Mesh, put: Put, rig: Rig) -> None:
    """Triton answers its unload at once and frees later; ModelMesh must hear of the latter."""
    put("sleeper", dict(sleeper()))
    mesh.load("sleeper", "python", "sleeper")
    ended: list[float] = []

    def infer() -> None:
        mesh.infer("sleeper", {"SECONDS": np.array([3.0], dtype=np.float32)})
        ended.append(time.monotonic())

    inference = threading.Thread(target=infer)
    inference.start()
    until((rig.repository / "sleeper/1/busy").exists, "the inference has begun")
    mesh.unload("sleeper")
    answered = time.monotonic()
    index_at_that_moment = mesh.index()
    inference.join()

    assert ended and ended[0] < answered
    assert index_at_that_moment == {}
    assert rig.leftovers() == []


@pytest.mark.long
def test_a_cancelled_load_and_its_unload_leave_nothing(adapter: AdapterProcess, mesh: Mesh, put: Put, rig: Rig) -> None:
    """Cancelled while Triton loads; ModelMesh's unload comes after the adapter has noticed, while the load still runs."""
    put("slow", dict(sleeper(start_seconds=10)))
    mesh.start_load("slow", "python", "slow").cancel()
    until(lambda: '"code":"CANCELLED"' in adapter.log_text(), "the adapter has noticed the cancel")
    assert mesh.index() == {"slow": "LOADING"}
    mesh.unload("slow")

    assert mesh.index() == {}
    assert rig.leftovers() == []
    put("slow", dict(sleeper(start_seconds=0)))
    assert mesh.load("slow", "python", "slow").sizeInBytes > 8192


def test_a_model_that_triton_refuses_is_told_and_gone(mesh: Mesh, put: Put, rig: Rig) -> None:
    """Triton's reason comes first, in one line; nothing is left, so no unload is needed."""
    put("broken", {"config.pbtxt": b'backend: "python"\n', "1/model.py": b"import a_module_that_is_not_there\n"})

    with pytest.raises(grpc.RpcError) as refused:
        mesh.load("broken", "python", "broken")

    assert refused.value.code() is grpc.StatusCode.INTERNAL
    assert "a_module_that_is_not_there" in refused.value.details()
    assert "\n" not in refused.value.details()
    until_nothing_is_left(mesh, rig)


def test_a_purge_empties_what_was_loaded(mesh: Mesh, put: Put, rig: Rig) -> None:
    """ModelMesh restarts: READY means that nothing is in memory, on disk or in the index."""
    put("texts", dict(text_statistics()))
    mesh.load("a", "python", "texts")
    mesh.load("b", "python", "texts")
    (rig.repository / "dangling").symlink_to("/nowhere")

    mesh.start()

    assert mesh.index() == {}
    assert rig.leftovers() == []


def test_an_unknown_id_is_unloaded_at_once(mesh: Mesh) -> None:
    mesh.unload("never-heard-of")
    for impossible in ("", ".", "..", "a/b", "_triton_models", "x" * 300):
        mesh.unload(impossible)

    assert mesh.index() == {}
