"""`--grpc-restricted-protocol` of the real Triton: the adapter alone loads, unloads and lists; inference and health stay open to all."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from tritonclient.grpc import service_pb2 as v2

from adapter._pb import model_runtime_pb2 as spi
from tests.integration.conftest import TEXT, Pod, Put, get, until_it_is_why
from tests.real.children import TOP, bare_environment
from tests.real.models import text_statistics

KEY, VALUE = "adapter", "Only-the=adapter,knows: this"
HEADER = ((f"triton-grpc-protocol-{KEY}", VALUE),)
WALL = (f"--grpc-restricted-protocol=model-repository:{KEY}={VALUE}", f"--http-restricted-api=model-repository:{KEY}={VALUE}")
StartPod = Callable[..., Pod]


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """As a mounted secret holds it."""
    path = tmp_path / "value"
    path.write_text(f"{VALUE}\n")
    return path


@pytest.fixture(params=["value", "file"])
def env(request: pytest.FixtureRequest, secret: Path) -> dict[str, str]:
    """How the adapter is told."""
    given = {"TRITON_RESTRICTED_VALUE": VALUE} if request.param == "value" else {"TRITON_RESTRICTED_VALUE_FILE": str(secret)}
    return {"TRITON_RESTRICTED_KEY": KEY, "LOG_LEVEL": "debug"} | given


@pytest.fixture
def texts(put: Put) -> Iterator[str]:
    put("texts", dict(text_statistics()))
    yield "texts"


def others(pod: Pod) -> dict[str, str]:
    """What a client without the header is told, by call."""
    triton, told = pod.mesh.triton, {}
    calls = {
        "RepositoryIndex": v2.RepositoryIndexRequest(),
        "RepositoryModelLoad": v2.RepositoryModelLoadRequest(model_name="t"),
        "RepositoryModelUnload": v2.RepositoryModelUnloadRequest(model_name="t"),
    }
    for name, request in calls.items():
        with pytest.raises(grpc.RpcError) as refused:
            getattr(triton, name)(request, timeout=30)
        told[name] = refused.value.details()
    return told


def test_only_the_adapter_loads_unloads_and_lists(start_pod: StartPod, env: dict[str, str], texts: str) -> None:
    """Over gRPC and over HTTP; the value is in no log line."""
    pod = start_pod(env, extra_args=WALL)
    pod.mesh.start()
    pod.mesh.load("t", "python", texts)

    assert set(others(pod).values()) == {f"This protocol is restricted, expecting header 'triton-grpc-protocol-{KEY}'"}
    for path in ("index", "models/t/load", "models/t/unload"):
        request = urllib.request.Request(f"http://127.0.0.1:{pod.triton.http_port}/v2/repository/{path}", data=b"{}")
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(request, timeout=30)
    assert (pod.mesh.infer("t", TEXT)["COUNTS"] == [[3, 2]]).all()
    assert pod.mesh.triton.ServerLive(v2.ServerLiveRequest(), timeout=30).live
    assert pod.mesh.triton.ModelReady(v2.ModelReadyRequest(name="t"), timeout=30).ready

    pod.mesh.unload("t")
    index = pod.mesh.triton.RepositoryIndex(v2.RepositoryIndexRequest(), metadata=HEADER, timeout=30)
    assert [row.name for row in index.models] == []
    assert VALUE not in pod.adapter.log_text()


def test_every_call_of_the_adapter_may_be_restricted(start_pod: StartPod, env: dict[str, str], texts: str) -> None:
    """Triton takes one flag for each key, and protocols that share a key in one flag."""
    protocols = "health,metadata,model-repository,model-config,statistics,shared-memory,trace,logging"
    pod = start_pod(env, extra_args=(f"--grpc-restricted-protocol={protocols}:{KEY}={VALUE}",))
    pod.mesh.start()
    pod.mesh.load("t", "python", texts)

    assert (pod.mesh.infer("t", TEXT)["COUNTS"] == [[3, 2]]).all()
    pod.mesh.unload("t")


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"TRITON_RESTRICTED_KEY": KEY, "TRITON_RESTRICTED_VALUE": "another-value"},
        {"TRITON_RESTRICTED_KEY": "other", "TRITON_RESTRICTED_VALUE": VALUE},
    ],
    ids=["nothing", "wrong value", "wrong key"],
)
def test_a_wrong_setting_is_said_in_words(start_pod: StartPod, texts: str, given: dict[str, str]) -> None:
    """By `/readyz` and to whoever loads, at once; the value is in none of the texts."""
    words = "set TRITON_RESTRICTED_KEY, and TRITON_RESTRICTED_VALUE or TRITON_RESTRICTED_VALUE_FILE, to key"
    pod = start_pod(given | {"LOG_LEVEL": "debug"}, extra_args=WALL)
    assert pod.mesh.status().status == spi.RuntimeStatusResponse.STARTING
    until_it_is_why(pod.adapter, words)

    with pytest.raises(grpc.RpcError) as refused:
        pod.mesh.load("t", "python", texts)

    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert words in refused.value.details()
    seen = pod.adapter.log_text() + refused.value.details() + get(f"{pod.adapter.metrics_url}/readyz")[1]
    assert all(value not in seen for value in (VALUE, "another-value"))


def test_the_view_of_all_models_reads_a_restricted_index(start_pod: StartPod, env: dict[str, str], texts: str) -> None:
    """`models` with the adapter's environment; without it, it says what to set."""
    pod = start_pod(env, extra_args=WALL)
    pod.mesh.start()
    pod.mesh.load("t", "python", texts)

    with_all, without = models(pod.adapter.settings), models({k: v for k, v in pod.adapter.settings.items() if "RESTRICTED" not in k})

    assert with_all.returncode == 0, with_all.stdout
    assert [model["id"] for model in json.loads(with_all.stdout)["models"]] == ["t"]
    assert without.returncode == 1
    assert "set TRITON_RESTRICTED_KEY" in without.stdout
    assert VALUE not in with_all.stdout + with_all.stderr + without.stdout


def models(settings: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """`modelmesh-triton-adapter models --json`."""
    env = bare_environment() | {"PYTHONPATH": str(TOP)} | settings
    return subprocess.run([sys.executable, "-m", "adapter", "models", "--json"], env=env, capture_output=True, text=True, check=False)
