"""`helm test` asks the adapter in each pod: here a real adapter at an address of loopback, with a Triton or without one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.chart.admin import operator, upstream
from tests.chart.admin.admin import CHART, Admin
from tests.chart.admin.api import MERGE, NAMESPACE, POD
from tests.fakes.triton import FakeTriton
from tests.real.adapter import AdapterProcess
from tests.real.mesh import Mesh
from tests.real.ports import free_ports

pytestmark = pytest.mark.long

TEST = 'helm test triton-adapter --namespace "$NAMESPACE" --logs'
INSTALL = f'helm install triton-adapter {CHART} --namespace "$NAMESPACE" --set adapter.image.registry="$REGISTRY"'


def install(admin: Admin, port: int, sets: str = "") -> None:
    admin.says(f"{INSTALL} --set adapter.metricsPort={port} {sets}")


def start_pod(admin: Admin, address: str) -> None:
    """A pod of the runtime's Deployment, which the kubelet finds not ready yet."""
    admin.apply(upstream.model())
    template = operator.turn(admin.api, admin.namespace)[upstream.NAME]["spec"]["template"]
    name = f"pod-{address.replace('.', '-')}"
    metadata = {"name": name, "labels": template["metadata"]["labels"]}
    admin.api.ask("POST", POD.path(admin.namespace), {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
    conditions = [{"type": "Ready", "status": "False"}]
    status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "conditions": conditions}
    admin.api.ask("PATCH", f"{POD.path(admin.namespace, name)}/status", {"status": status}, MERGE)


def adapter(folder: Path, port: int, triton_target: str) -> AdapterProcess:
    (folder / "volume" / "_triton_models").mkdir(parents=True, exist_ok=True)
    (folder / "secret").mkdir()
    env = {"METRICS_PORT": str(port)}
    return AdapterProcess(volume=folder / "volume", storage_config=folder / "secret", triton_target=triton_target, env=env)


def test_without_a_pod_it_passes_and_says_that_there_is_none(admin: Admin) -> None:
    install(admin, 9464)

    said = admin.says(TEST)

    assert "Succeeded" in said
    assert "the Deployment modelmesh-serving-triton-2.x is scaled to zero: pods come with the first model" in said


def test_without_a_deployment_it_fails_after_a_minute_and_says_what_to_read(admin: Admin) -> None:
    """As in a namespace that ModelMesh does not serve, or with a runtime that the controller cannot reconcile."""
    labels = {"metadata": {"labels": {"modelmesh-enabled": None}}}
    admin.api.ask("PATCH", NAMESPACE.path(name=admin.namespace), labels, MERGE)
    install(admin, 9464)

    refusal = admin.refusal(TEST)

    assert f"no Deployment modelmesh-serving-triton-2.x in {admin.namespace} after 60 s" in refusal
    assert "the controller cannot reconcile the runtime. Its log has the reason" in refusal


async def test_with_pods_that_are_ready_it_passes_with_a_line_for_each(admin: Admin, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    install(admin, port)
    for address in ("127.0.0.1", "127.0.0.2"):
        start_pod(admin, address)

    async with FakeTriton(tmp_path / "volume" / "_triton_models") as triton:

        def judge() -> str:
            with adapter(tmp_path, port, triton.target) as process, Mesh(process.channel_target, triton.target) as mesh:
                mesh.start()
                return admin.says(TEST)

        said = await asyncio.to_thread(judge)

    assert "Succeeded" in said
    assert f"127.0.0.1:{port}: 200 ready" in said
    assert f"127.0.0.2:{port}: 200 ready" in said


def test_with_a_pod_whose_triton_is_away_it_fails_with_the_reason(admin: Admin, tmp_path: Path) -> None:
    port, unused = free_ports(2)
    install(admin, port)
    start_pod(admin, "127.0.0.1")

    with adapter(tmp_path, port, f"port:{unused}"):
        refusal = admin.refusal(TEST)

    assert f"127.0.0.1:{port}: 503 not ready: " in refusal
    assert "Failed" in refusal
