"""The adapter alone is killed and started again."""

from __future__ import annotations

from adapter._pb import model_runtime_pb2 as spi
from tests.integration.conftest import TEXT, Put, Rig, Start, get
from tests.real.mesh import Mesh
from tests.real.models import sleeper, text_statistics
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


def test_a_load_that_an_earlier_process_began_is_undone(start_adapter: Start, rig: Rig, put: Put) -> None:
    """kill -9 in the middle of a load: the unload for it may never come."""
    put("slow", dict(sleeper(start_seconds=10)))  # longer than a start of the adapter on a busy machine
    first = start_adapter()
    with Mesh(first.channel_target, rig.triton_target) as mesh:
        mesh.start()
        load = mesh.start_load("half", "python", "slow")
        first.kill()
        assert load.exception() is not None
    second = start_adapter()
    with Mesh(second.channel_target, rig.triton_target) as mesh:
        mesh.unload("another")  # answered when the view is known
        until(lambda: not mesh.index(), "Triton's index is empty")
        until(lambda: not rig.leftovers(), "nothing is left on the volume")
