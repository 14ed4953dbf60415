"""The adapter as a program: its start, its neighbours' absence, its restart, its end."""

from __future__ import annotations

import json
import os
import signal
import stat
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import grpc
import numpy as np
import pytest

from adapter._pb import model_runtime_pb2 as spi
from tests.builders import load_request
from tests.integration.conftest import Bed
from tests.real.adapter import AdapterProcess
from tests.real.mesh import Mesh
from tests.real.models import sleeper, text_statistics
from tests.real.polls import until
from tests.real.s3 import S3Server
from tests.real.triton import Triton

Start = Callable[..., AdapterProcess]
Put = Callable[[str, dict[str, bytes]], None]
TEXT = {"TEXT": np.array(["x y"], dtype=np.object_)}


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def until_it_is_why(adapter: AdapterProcess, words: str) -> None:
    """Its `/readyz` gives these words as the reason."""
    until(lambda: words in get(f"{adapter.metrics_url}/readyz")[1], f"/readyz says: {words}")


def until_draining(adapter: AdapterProcess) -> None:
    until_it_is_why(adapter, "shutting down")


def test_a_restart_of_the_adapter_alone_is_not_noticed(start_adapter: Start, bed: Bed, put: Put) -> None:
    """Killed and started again: models serve on, are known, and can be unloaded."""
    put("texts", dict(text_statistics()))
    first = start_adapter()
    with Mesh(first.channel_target, bed.triton_target) as mesh:
        mesh.start()
        mesh.load("kept", "python", "texts")
        first.kill()
        assert (mesh.infer("kept", TEXT)["COUNTS"] == [[3, 2]]).all()
    second = start_adapter()
    with Mesh(second.channel_target, bed.triton_target) as mesh:
        size = mesh.runtime.modelSize(spi.ModelSizeRequest(modelId="kept"), wait_for_ready=True, timeout=10).sizeInBytes
        assert size > 8192
        assert (mesh.infer("kept", TEXT)["COUNTS"] == [[3, 2]]).all()
        assert get(f"{second.metrics_url}/readyz")[0] == 200
        mesh.unload("kept")
        assert mesh.index() == {}
    assert bed.leftovers() == []


def test_a_load_that_an_earlier_process_began_is_undone(start_adapter: Start, bed: Bed, put: Put) -> None:
    """kill -9 in the middle of a load: the unload for it may never come."""
    put("slow", dict(sleeper(start_seconds=4)))
    first = start_adapter()
    with Mesh(first.channel_target, bed.triton_target) as mesh:
        mesh.start()
        load = mesh.start_load("half", "python", "slow")
        first.kill()
        assert load.exception() is not None
    second = start_adapter()
    with Mesh(second.channel_target, bed.triton_target) as mesh:
        mesh.unload("another")  # answered when the view is known
        until(lambda: not mesh.index(), "Triton's index is empty")
    assert bed.leftovers() == []


@pytest.mark.parametrize("with_load", [False, True], ids=["idle", "while it loads"])
def test_sigterm_ends_with_code_0_and_nothing_half_done(start_adapter: Start, bed: Bed, put: Put, with_load: bool) -> None:
    """What runs is finished or undone within the grace period; unloads are answered meanwhile."""
    put("slow", dict(sleeper(start_seconds=3)))
    put("texts", dict(text_statistics()))
    adapter = start_adapter()
    with Mesh(adapter.channel_target, bed.triton_target) as mesh:
        mesh.start()
        mesh.load("t", "python", "texts")
        load = mesh.start_load("slow", "python", "slow") if with_load else None
        adapter.signal(signal.SIGTERM)
        until_draining(adapter)
        with pytest.raises(grpc.RpcError) as refused:
            mesh.load("late", "python", "texts")
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        assert "shutting down" in refused.value.details()
        mesh.unload("t")
        if load is not None:
            assert load.result().sizeInBytes > 8192
    assert adapter.wait(30) == 0


def test_a_second_signal_ends_it_at_once(storage_config: Path, tmp_path: Path, put: Put) -> None:
    """Long before the load ends, and before the grace period does."""
    put("slow", dict(sleeper(start_seconds=60)))
    (tmp_path / "_triton_models").mkdir()
    with (
        Triton(tmp_path / "_triton_models") as triton,
        AdapterProcess(volume=tmp_path, storage_config=storage_config, triton_target=triton.grpc_target, env={}) as adapter,
        Mesh(adapter.channel_target, triton.grpc_target) as mesh,
    ):
        mesh.start()
        load = mesh.start_load("slow", "python", "slow")
        adapter.signal(signal.SIGTERM)
        until_draining(adapter)
        adapter.signal(signal.SIGTERM)
        assert adapter.wait(20) == 128 + signal.SIGTERM
        assert load.exception() is not None


def test_triton_may_come_later(start_adapter: Start, storage_config: Path, tmp_path: Path, put: Put) -> None:
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


def test_a_triton_that_dies_in_a_load_fails_that_load_only(storage_config: Path, tmp_path: Path, put: Put) -> None:
    put("slow", dict(sleeper(start_seconds=20)))
    put("texts", dict(text_statistics()))
    (tmp_path / "_triton_models").mkdir()
    with (
        Triton(tmp_path / "_triton_models") as triton,
        AdapterProcess(volume=tmp_path, storage_config=storage_config, triton_target=triton.grpc_target, env={}) as adapter,
        Mesh(adapter.channel_target, triton.grpc_target) as mesh,
    ):
        mesh.start()
        load = mesh.start_load("slow", "python", "slow")
        triton.kill()
        unload = mesh.runtime.unloadModel.future(spi.UnloadModelRequest(modelId="slow"))
        assert load.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.ABORTED)
        triton.start()
        unload.result(30)
        assert mesh.load("texts", "python", "texts").sizeInBytes > 8192
        assert mesh.index() == {"texts": "READY"}


def test_both_neighbours_on_unix_sockets(storage_config: Path, tmp_path: Path, put: Put) -> None:
    put("texts", dict(text_statistics()))
    (tmp_path / "_triton_models").mkdir()
    socket = tmp_path / "a.sock"
    with (
        Triton(tmp_path / "_triton_models", grpc_address=f"unix:{tmp_path}/t.sock") as triton,
        AdapterProcess(
            volume=tmp_path, storage_config=storage_config, triton_target=triton.grpc_target, env={"ADAPTER_ENDPOINT": f"unix:{socket}"}
        ) as adapter,
        Mesh(f"unix:{socket}", triton.grpc_target) as mesh,
    ):
        mesh.start()
        assert stat.S_IMODE(socket.stat().st_mode) == 0o666
        mesh.load("t", "python", "texts")
        assert (mesh.infer("t", TEXT)["COUNTS"] == [[3, 2]]).all()
        adapter.signal(signal.SIGTERM)
        assert adapter.wait(30) == 0
    assert not socket.exists()


def test_a_wrong_triton_is_named(storage_config: Path, tmp_path: Path, put: Put) -> None:
    """Without explicit mode Triton answers like one that is away: we say which flag is missing, and do not wait."""
    put("texts", dict(text_statistics()))
    (tmp_path / "_triton_models").mkdir()
    with (
        Triton(tmp_path / "_triton_models", explicit=False) as triton,
        AdapterProcess(volume=tmp_path, storage_config=storage_config, triton_target=triton.grpc_target, env={}) as adapter,
        Mesh(adapter.channel_target, triton.grpc_target) as mesh,
    ):
        assert mesh.status().status == spi.RuntimeStatusResponse.STARTING
        until_it_is_why(adapter, "--model-control-mode=explicit")
        assert mesh.status().status == spi.RuntimeStatusResponse.STARTING
        with pytest.raises(grpc.RpcError) as refused:
            mesh.load("t", "python", "texts")
        assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert "--model-control-mode=explicit" in refused.value.details()


def test_a_triton_over_another_folder_is_named(storage_config: Path, tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for folder in (ours, theirs):
        (folder / "_triton_models").mkdir(parents=True)
    with (
        Triton(theirs / "_triton_models") as triton,
        AdapterProcess(volume=ours, storage_config=storage_config, triton_target=triton.grpc_target, env={}) as adapter,
        Mesh(adapter.channel_target, triton.grpc_target) as mesh,
    ):
        assert mesh.status().status == spi.RuntimeStatusResponse.STARTING
        until_it_is_why(adapter, "--model-repository is not")
        assert mesh.status().status == spi.RuntimeStatusResponse.STARTING
        assert list((ours / "_triton_models").iterdir()) == []


def test_a_second_adapter_on_the_volume_ends_in_one_sentence(adapter: AdapterProcess, bed: Bed, storage_config: Path) -> None:
    second = AdapterProcess(volume=bed.volume, storage_config=storage_config, triton_target=bed.triton_target, env={}, wait=False)
    with second:
        assert second.wait(20) == 1
        assert "another adapter" in second.log_text()
        assert "Traceback" not in second.log_text()


def test_a_second_adapter_on_the_port_ends_in_one_sentence(adapter: AdapterProcess, storage_config: Path, tmp_path: Path) -> None:
    port = adapter.channel_target.rpartition(":")[2]
    second = AdapterProcess(
        volume=tmp_path, storage_config=storage_config, triton_target="localhost:1", env={"ADAPTER_PORT": port}, wait=False
    )
    with second:
        assert second.wait(20) == 1
        assert "cannot be used" in second.log_text()
        assert "Traceback" not in second.log_text()


def test_files_of_the_storage_helper_are_served_in_place(start_adapter: Start, bed: Bed) -> None:
    """An absolute path with `disk_size_bytes` was pulled by ModelMesh's own puller: linked, and never deleted by us."""
    folder = bed.volume / "helped" / "texts"
    for name, content in text_statistics().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    adapter = start_adapter()
    with Mesh(adapter.channel_target, bed.triton_target) as mesh:
        mesh.start()
        key = {"storage_key": None, "disk_size_bytes": 1_000_000}
        assert mesh.predict("helped", "python", str(folder), **key) == 1_250_000
        mesh.load("helped", "python", str(folder), **key)
        assert (mesh.infer("helped", TEXT)["COUNTS"] == [[3, 2]]).all()
        mesh.unload("helped")
        assert mesh.index() == {}
    assert (folder / "1/model.py").is_file()
    for path in sorted((bed.volume / "helped").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (bed.volume / "helped").rmdir()


def test_many_callers_at_once_get_their_models(mesh: Mesh, put: Put, bed: Bed) -> None:
    """Loads and unloads of different ids overlap; nothing is left at the end."""
    put("texts", dict(text_statistics()))
    failures: list[Exception] = []

    def live(model_id: str) -> None:
        try:
            mesh.load(model_id, "python", "texts")
            assert (mesh.infer(model_id, TEXT)["COUNTS"] == [[3, 2]]).all()
            mesh.unload(model_id)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=live, args=(f"m{n}",)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    assert mesh.index() == {}
    assert bed.leftovers() == []


def test_the_process_ends_with_its_settings_explained(storage_config: Path, tmp_path: Path) -> None:
    """Every mistake at once, in words, exit code 2."""
    env = {"CONTAINER_MEM_REQ_BYTES": "-1", "DEFAULT_MODELSIZE": "many", "ADAPTER_PORT": "0"}
    broken = AdapterProcess(volume=tmp_path, storage_config=storage_config, triton_target="localhost:1", env=env, wait=False)
    with broken:
        assert broken.wait(20) == 2
        assert all(name in broken.log_text() for name in ("DEFAULT_MODELSIZE", "ADAPTER_PORT"))
        assert os.strerror(2) not in broken.log_text()


def test_s3_over_https_with_a_private_authority(bed: Bed, tmp_path: Path) -> None:
    """The authority's certificate lies in the secret; without it the store is not trusted, and the text says so."""
    (tmp_path / "config").mkdir()
    with S3Server(tmp_path / "s3", tls=True) as s3:
        s3.put_folder("private", "texts", dict(text_statistics()))
        config = s3.storage_config("private")
        (tmp_path / "config/s3").write_text(json.dumps(config))
        (tmp_path / "config/untrusted").write_text(json.dumps(config | {"certificate": ""}))
        with (
            AdapterProcess(volume=bed.volume, storage_config=tmp_path / "config", triton_target=bed.triton_target, env={}) as adapter,
            Mesh(adapter.channel_target, bed.triton_target) as mesh,
        ):
            mesh.start()
            mesh.load("private", "python", "texts")
            assert (mesh.infer("private", TEXT)["COUNTS"] == [[3, 2]]).all()
            with pytest.raises(grpc.RpcError) as refused:
                mesh.load("untrusted", "python", "texts", storage_key="untrusted")
            mesh.unload("private")
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    assert "certificate" in refused.value.details()
