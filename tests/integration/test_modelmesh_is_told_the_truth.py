"""What ModelMesh decides by: a refusal of what cannot fit."""

from __future__ import annotations

import grpc
import pytest

from tests.integration.conftest import Put, Rig
from tests.real.mesh import Mesh
from tests.real.models import text_statistics


def test_a_model_that_cannot_fit_is_refused_and_the_rest_serves_on(start_adapter, rig: Rig, put: Put) -> None:
    """The reason reaches the model's status: predicted small, refused by loadModel with the arithmetic."""
    put("texts", dict(text_statistics()))
    put("large", {"model.onnx": b"x" * (30 << 20)})
    adapter = start_adapter(CONTAINER_MEM_REQ_BYTES="288MiB", MEM_BUFFER_BYTES="256MiB")
    with Mesh(adapter.channel_target, rig.triton_target) as mesh:
        assert mesh.start().runtimeVersion.count(".") == 2, "Triton's own"
        mesh.load("small", "python", "texts")
        assert 8192 < mesh.predict("large", "onnx", "large") < 1 << 20
        with pytest.raises(grpc.RpcError) as refused:
            mesh.load("large", "onnx", "large")

    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "× 1.25" in refused.value.details()
    with Mesh(adapter.channel_target, rig.triton_target) as mesh:
        assert mesh.index() == {"small": "READY"}
