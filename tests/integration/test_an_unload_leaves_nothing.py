"""What ends (an unload, a cancel, a refusal, a purge) leaves nothing in Triton, in its index or on the volume."""

from __future__ import annotations

import threading
import time

import numpy as np

from tests.integration.conftest import Put, Rig
from tests.real.mesh import Mesh
from tests.real.models import sleeper
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
