"""SIGTERM, as Kubernetes sends it, and a second one."""

from __future__ import annotations

import signal
from collections.abc import Callable

import grpc
import pytest

from tests.integration.conftest import Pod, Put, Rig, Start, until_it_is_why
from tests.real.mesh import Mesh
from tests.real.models import sleeper, text_statistics


@pytest.mark.parametrize("with_load", [pytest.param(False, marks=pytest.mark.long), True], ids=["idle", "while it loads"])
def test_sigterm_ends_with_code_0_and_nothing_half_done(start_adapter: Start, rig: Rig, put: Put, with_load: bool) -> None:
    """What runs is finished or undone within the grace period; unloads are answered meanwhile."""
    put("slow", dict(sleeper(start_seconds=3)))
    put("texts", dict(text_statistics()))
    adapter = start_adapter()
    with Mesh(adapter.channel_target, rig.triton_target) as mesh:
        mesh.start()
        mesh.load("t", "python", "texts")
        load = mesh.start_load("slow", "python", "slow") if with_load else None
        adapter.signal(signal.SIGTERM)
        until_it_is_why(adapter, "shutting down")
        with pytest.raises(grpc.RpcError) as refused:
            mesh.load("late", "python", "texts")
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        assert "shutting down" in refused.value.details()
        mesh.unload("t")
        if load is not None:
            assert load.result().sizeInBytes > 8192
    assert adapter.wait(30) == 0


def test_a_second_signal_ends_it_at_once(start_pod: Callable[..., Pod], put: Put) -> None:
    """Long before the load ends, and before the grace period does."""
    put("slow", dict(sleeper(start_seconds=60)))
    pod = start_pod()
    pod.mesh.start()
    load = pod.mesh.start_load("slow", "python", "slow")

    pod.adapter.signal(signal.SIGTERM)
    until_it_is_why(pod.adapter, "shutting down")
    pod.adapter.signal(signal.SIGTERM)

    assert pod.adapter.wait(20) == 128 + signal.SIGTERM
    assert load.exception() is not None
