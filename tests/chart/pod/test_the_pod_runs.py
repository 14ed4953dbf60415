"""The pods that the chart's runtimes become, started: what loads, who may write what, what can be reached."""

from __future__ import annotations

import copy
import http.client
import json
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from adapter.memory.watch import NOT_TOLD
from tests.chart.admin import upstream
from tests.chart.controller import assemble
from tests.chart.pod.env import CannotStartError
from tests.chart.pod.pod import Pod
from tests.chart.pod.rig import KEY, Rig, running
from tests.chart.pod.runtime import ADDRESS
from tests.chart.render import render, the_runtime
from tests.chart.soundness import ADAPTER, TRITON
from tests.integration.conftest import TEXT
from tests.real.models import digits_classifier, text_statistics, write
from tests.real.polls import until

ROOT: Mapping[str, object] = {"triton.securityContext.runAsUser": 0, "triton.securityContext.runAsNonRoot": False}
MIGHTY: Mapping[str, object] = {**ROOT, "triton.securityContext.capabilities": None}
USERS: Mapping[str, tuple[Mapping[str, object], int | None]] = {
    "both are 1000": ({}, 1000),
    "Triton is root without capabilities": (ROOT, None),
    "Triton is root": (MIGHTY, 0),
}
"""What the chart is told, and whose the bytecode is that Triton writes beside a python model; None: Triton may not write there."""
UPSTREAM = upstream.runtime()
"""With an image whose reference makes an odd RUNTIME_VERSION."""
UPSTREAM["spec"]["containers"][0]["image"] = "registry.example.com:5000/tritonserver:23.04-py3@sha256:0af1"
WALLED = ("RepositoryIndex", "RepositoryModelLoad", "RepositoryModelUnload")


def pod_of(sets: Mapping[str, object]) -> dict[str, Any]:
    """What the controller makes of the chart's runtime."""
    return assemble(the_runtime(render(sets=sets)))


def get(pod: Pod, port: int, path: str) -> tuple[int, str]:
    """From outside the pod, as Prometheus asks. Raises OSError where no process listens."""
    with closing(http.client.HTTPConnection("127.0.0.1", pod.forward(port, ADDRESS), timeout=10)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def serve_onnx(rig: Rig) -> None:
    """Loaded, asked, unloaded; nothing stays."""
    digits = digits_classifier()
    content = digits.onnx_bytes()
    assert rig.load("digits", "onnx", {"model.onnx": content}) > len(content)
    answer = rig.mesh.infer("digits", {"image": digits.images[:8]})["probabilities"]
    np.testing.assert_allclose(answer, digits.predict(digits.images[:8]), rtol=1e-4, atol=1e-6)
    unload(rig, "digits")


def serve_python(rig: Rig, bytecode_of: int | None) -> None:
    """The same. `bytecode_of`: who writes some beside the code; None: no user can."""
    rig.load("texts", "python", text_statistics())
    assert (rig.mesh.infer("texts", TEXT)["COUNTS"] == [[3, 2]]).all()
    written = {path.stat().st_uid for path in (rig.volume / "_triton_models" / "texts").rglob("*.pyc")}
    assert written == ({bytecode_of} if bytecode_of is not None else set())
    unload(rig, "texts")


def unload(rig: Rig, model_id: str) -> None:
    rig.mesh.unload(model_id)
    until(lambda: rig.left() == [], "nothing is left on the volume")
    assert rig.mesh.index() == {}


def check_log(pod: Pod) -> None:
    said = pod.log(ADAPTER)
    assert [word for word in ("Traceback", "Permission denied", "Read-only", '"level":"error"') if word in said] == []


@pytest.mark.parametrize(
    ("mode", "users"),
    [
        ("adapterPull", "both are 1000"),
        *(pytest.param("adapterPull", users, marks=pytest.mark.long) for users in USERS if users != "both are 1000"),
        pytest.param("storageHelper", "both are 1000", marks=pytest.mark.long),
        pytest.param("storageHelper", "Triton is root", marks=pytest.mark.long),
        pytest.param("builtInAdapter", "both are 1000", marks=pytest.mark.long),
    ],
)
def test_it_loads_serves_unloads_and_ends(mode: str, users: str, tmp_path: Path) -> None:
    """On a read-only root, from the mounted secret; the probes are the pod's own; SIGTERM ends each container in order."""
    sets, bytecode_of = USERS[users]
    with running(pod_of({"runtime.mode": mode, **sets}), tmp_path) as rig:
        pod = rig.pod
        serve_python(rig, bytecode_of)
        if mode != "builtInAdapter" and users == "both are 1000":
            serve_onnx(rig)
        assert "Read-only file system" in pod.exec(TRITON, ["sh", "-c", "echo > /x"]).text
        ready = pod.exec(ADAPTER, ["modelmesh-triton-adapter", "probe", "--ready", "--host", f"{ADDRESS}:9464"])
        assert (ready.code, ready.text) == (0, f"{ADDRESS}:9464: 200 ready; {NOT_TOLD}\n"), "no control groups are mounted in this pod"
        assert "1.0G" in pod.exec(TRITON, ["df", "-h", "/dev/shm"]).text
        assert pod.probe(TRITON).code == 0
        assert pod.terminate(ADAPTER) == 0
        assert pod.probe(TRITON).code == 0, "without the adapter Triton speaks for itself"
        assert pod.terminate(TRITON) == 0
        check_log(pod)


@pytest.mark.long
def test_the_image_takes_the_place_of_the_built_in_adapter(tmp_path: Path) -> None:
    """Under ModelMesh Serving's own runtime, which is not changed: the controller's environment, its file, its users."""
    with running(assemble(copy.deepcopy(UPSTREAM)), tmp_path) as rig:
        serve_onnx(rig)
        env = rig.pod.env(ADAPTER)
        assert env["RUNTIME_VERSION"] == "5000/tritonserver:23.04-py3@sha256:0af1"
        status = rig.mesh.status()
        assert (status.capacityInBytes, status.maxLoadingConcurrency) == (1024**3 - 128 * 1024**2, 2)
        assert (status.modelLoadingTimeoutMs, status.runtimeVersion) == (90_000, "2.51.0")
        check_log(rig.pod)


@pytest.mark.long
def test_metrics_can_be_reached_from_outside_and_nothing_else(tmp_path: Path) -> None:
    """A client that reaches Triton's ports may load models; one that reaches the adapter's may purge them."""
    with running(pod_of({}), tmp_path) as rig:
        declared = {port["name"]: port["containerPort"] for name in (TRITON, ADAPTER) for port in rig.pod.container(name)["ports"]}
        assert declared == {"triton-metrics": 8002, "adapter-metrics": 9464}
        assert "# TYPE nv_" in get(rig.pod, 8002, "/metrics")[1]
        assert "triton_adapter_triton_up 1.0" in get(rig.pod, 9464, "/metrics")[1]
        assert get(rig.pod, 9464, "/readyz") == (200, "ready\n")
        for port in (8000, 8001, 8085):
            with pytest.raises((OSError, http.client.HTTPException)):
                get(rig.pod, port, "/v2/health/live")


@pytest.mark.long
def test_only_the_adapter_controls_a_triton_with_restricted_protocols(tmp_path: Path) -> None:
    """The value comes from one secret into both containers, spaces, quotes and dollars included."""
    sets = {"triton.restrictedProtocols.existingSecret": "triton-control"}
    wall = "a $HOME 'b' \"c\" $(d) `e`"
    with running(pod_of(sets), tmp_path, secrets={"triton-control": {"value": wall}}) as rig:
        rig.load("texts", "python", text_statistics())
        assert (rig.mesh.infer("texts", TEXT)["COUNTS"] == [[3, 2]]).all()
        for call in WALLED:
            with pytest.raises(grpc.RpcError, match="This protocol is restricted"):
                rig.call(call)
        assert rig.pod.probe(TRITON).code == 0
        rig.mesh.unload("texts")
        check_log(rig.pod)
        stored = json.loads((rig.pod.behind(ADAPTER, "/storage-config") / KEY).read_text())["secret_access_key"]
        said = rig.pod.log(ADAPTER)
        assert [secret for secret in (wall, stored) if secret in said or secret in rig.pod.exec(ADAPTER, ["ps", "axww"]).text] == []


@pytest.mark.long
def test_a_pod_of_a_namespace_without_the_secret_starts(tmp_path: Path) -> None:
    """A load says what is missing."""
    with Pod(pod_of({}), tmp_path / "pod") as pod:
        for name in (TRITON, ADAPTER):
            pod.start(name)
            pod.until_well(name)
    helped = pod_of({"runtime.mode": "builtInAdapter"})
    with pytest.raises(CannotStartError, match="there is no 'storage-config'"), Pod(helped, tmp_path / "other"):
        pass


@pytest.mark.long
def test_a_volume_of_root_is_told_at_the_start(tmp_path: Path) -> None:
    """As a new claim is formatted by most drivers; the controller hands no fsGroup on to the pod."""
    template = pod_of({"modelVolume.spec": {"ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}}}})
    with Pod(template, tmp_path / "pod") as pod:
        for name in (TRITON, ADAPTER):
            pod.start(name)
        assert pod.wait(TRITON) != 0
        assert "cannot create directory '/model-cache/_triton_models': Permission denied" in pod.log(TRITON)
        assert pod.wait(ADAPTER) != 0
        assert "cannot create the folder /model-cache/_triton_models: Permission denied" in pod.log(ADAPTER)


@pytest.mark.long
@pytest.mark.parametrize("mode", ["adapterPull", "builtInAdapter"])
def test_a_model_is_served_from_a_claim(mode: str, tmp_path: Path) -> None:
    """That the controller mounts read-only into both containers, with files of another user."""
    claim = tmp_path / "claim"
    write(text_statistics(), claim / "some" / "texts")
    secrets = {"storage-config": {"ours": json.dumps({"type": "pvc", "name": "models"})}}
    with running(
        assemble(the_runtime(render(sets={"runtime.mode": mode})), claims=("models",)), tmp_path, secrets=secrets, claims={"models": claim}
    ) as rig:
        rig.mesh.load("texts", "python", "some/texts", storage_key="ours")
        assert (rig.mesh.infer("texts", TEXT)["COUNTS"] == [[3, 2]]).all()
        unload(rig, "texts")
        check_log(rig.pod)
    assert list(claim.rglob("__pycache__")) == []
