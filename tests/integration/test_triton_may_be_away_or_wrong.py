"""A Triton that comes later, dies, listens on a socket, lacks a flag or serves another folder."""

from __future__ import annotations

import signal
import stat
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from adapter._pb import model_runtime_pb2 as spi
from tests.builders import load_request
from tests.integration.conftest import TEXT, Pod, Put, get
from tests.real.adapter import AdapterProcess
from tests.real.mesh import Mesh
from tests.real.models import text_statistics
from tests.real.triton import Triton


def test_triton_may_come_later(storage_config: Path, tmp_path: Path, put: Put) -> None:
    """STARTING with the reason while Triton is absent; a load that came meanwhile is held, not failed."""
    put("texts", dict(text_statistics()))
    (tmp_path / "_triton_models").mkdir()
    triton = Triton(tmp_path / "_triton_models")
    with triton:
        target = triton.grpc_target
        triton.kill()
        with (
            AdapterProcess(volume=tmp_path, storage_config=storage_config, triton_target=target, env={}) as adapter,
            Mesh(adapter.channel_target, target) as mesh,
        ):
            assert mesh.status().status == spi.RuntimeStatusResponse.STARTING
            code, reason = get(f"{adapter.metrics_url}/readyz")
            assert (code, target in reason) == (503, True)
            assert get(f"{adapter.metrics_url}/healthz")[0] == 200
            load = mesh.runtime.loadModel.future(load_request("early", "python", "texts"))
            with pytest.raises(grpc.FutureTimeoutError):
                load.result(1)
            triton.start()
            assert load.result(30).sizeInBytes > 8192 or load.code() is grpc.StatusCode.ABORTED
            assert mesh.start().status == spi.RuntimeStatusResponse.READY
            assert get(f"{adapter.metrics_url}/readyz")[0] == 200


def test_both_neighbours_on_unix_sockets(start_pod: Callable[..., Pod], tmp_path: Path, put: Put) -> None:
    put("texts", dict(text_statistics()))
    socket = tmp_path / "new" / "a.sock"
    pod = start_pod({"ADAPTER_ENDPOINT": f"unix:{socket}"}, grpc_address=f"unix:{tmp_path}/t.sock")
    pod.mesh.start()

    assert stat.S_IMODE(socket.stat().st_mode) == 0o666
    pod.mesh.load("t", "python", "texts")
    assert (pod.mesh.infer("t", TEXT)["COUNTS"] == [[3, 2]]).all()
    pod.adapter.signal(signal.SIGTERM)
    assert pod.adapter.wait(60) == 0
    assert not socket.exists()
