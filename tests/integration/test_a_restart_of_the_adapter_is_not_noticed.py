"""The adapter alone is killed and started again."""

from __future__ import annotations

from adapter._pb import model_runtime_pb2 as spi
from tests.integration.conftest import TEXT, Put, Rig, Start, get
from tests.real.mesh import Mesh
from tests.real.models import text_statistics
from tests.real.polls import until


def test_a_restart_of_the_adapter_alone_is_not_noticed(start_adapter: Start, rig: Rig, put: Put) -> None:
    """Killed and started again: models serve on, are known, and can be unloaded."""
    put("texts", dict(text_statistics()))
    first = start_adapter()
    with Mesh(first.channel_target, rig.triton_target) as mesh:
        mesh.start()
        mesh.load("kept", "python", "texts")
        first.kill()
        assert (mesh.infer("kept", TEXT)["COUNTS"] == [[3, 2]]).all()
    second = start_adapter()
    with Mesh(second.channel_target, rig.triton_target) as mesh:
        until(lambda: get(f"{second.metrics_url}/readyz")[0] == 200, "Triton's models are taken over")
        size = mesh.runtime.modelSize(spi.ModelSizeRequest(modelId="kept"), wait_for_ready=True, timeout=10).sizeInBytes
        assert size > 8192
        assert (mesh.infer("kept", TEXT)["COUNTS"] == [[3, 2]]).all()
        mesh.unload("kept")
        assert mesh.index() == {}
    assert rig.leftovers() == []
