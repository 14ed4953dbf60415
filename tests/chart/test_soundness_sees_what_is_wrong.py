"""Each check over a pod, and of the restricted standard, finds the mistake that it is for: a check that sees nothing proves nothing."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.chart import matrix, soundness
from tests.chart.soundness import ADAPTER, TRITON, PodView

Change = Callable[[dict[str, dict[str, Any]], dict[str, Any]], object]


def said(change: Change, name: str = "default") -> list[str]:
    """`change` gets the containers by name and the pod."""
    template: Any = copy.deepcopy(matrix.case(name).pod().template)
    change({container["name"]: container for container in template["spec"]["containers"]}, template["spec"])
    return soundness.problems(PodView(template, {}))


def env(container: dict[str, Any], **values: str) -> None:
    container["env"] = [entry for entry in container["env"] if entry["name"] not in values]
    container["env"] += [{"name": name, "value": value} for name, value in values.items()]


def script(container: dict[str, Any], old: str, new: str) -> None:
    assert old in container["args"][0]
    container["args"][0] = container["args"][0].replace(old, new)


def mount(container: dict[str, Any], path: str) -> Any:
    (found,) = [each for each in container["volumeMounts"] if each["mountPath"] == path]
    return found


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c, pod: pod["containers"].append(c["mm"]), "container mm is there 2 times"),
        (
            lambda c, pod: pod["volumes"].append({"name": "triton-adapter-shm", "emptyDir": {}}),
            "volume triton-adapter-shm is there 2 times",
        ),
        (lambda c, pod: c[ADAPTER]["ports"].append({"name": "x", "containerPort": 8002}), "port 8002 is there 2 times"),
        (lambda c, pod: c[ADAPTER]["ports"][0].update(name="triton-metrics"), "port name triton-metrics is there 2 times"),
        (lambda c, pod: c[ADAPTER]["ports"][0].update(name="adapter-metrics-"), "has more than 15 characters"),
        (lambda c, pod: c[ADAPTER]["env"].append(c[ADAPTER]["env"][0]), f"variable of {ADAPTER} CONTAINER_MEM_REQ_BYTES is there 2 times"),
        (lambda c, pod: c[TRITON]["volumeMounts"].append({"name": "triton-adapter-tmp", "mountPath": "/dev/shm"}), "mount path of triton"),
        (lambda c, pod: pod["volumes"].clear(), f"{TRITON} mounts triton-adapter-models, which the pod has not"),
        (lambda c, pod: env(c[ADAPTER], ROOT_MODELS_DIR="/x"), "the adapter has no setting ROOT_MODELS_DIR"),
        (lambda c, pod: env(c[ADAPTER], LOG_LEVEL="loud"), "the adapter does not start: LOG_LEVEL"),
        (lambda c, pod: c[ADAPTER]["env"][0]["valueFrom"]["resourceFieldRef"].update(containerName="x"), "a container cannot start: "),
        (lambda c, pod: script(c[TRITON], "--metrics-port=8002", "--metrics-port=8033"), f"mm and {TRITON} listen on 8033"),
        (lambda c, pod: script(c[TRITON], "--metrics-port=8002", ""), ""),
        (
            lambda c, pod: script(c[TRITON], "--metrics-port=8002", "--metrics-port=8003"),
            f"{TRITON} declares the port 8002, where it does not",
        ),
        (lambda c, pod: script(c[TRITON], "--grpc-port=8001", "--grpc-port=8005"), "mm sends inference to 8001, Triton listens on 8005"),
        (lambda c, pod: env(c[ADAPTER], ADAPTER_PORT="8055"), "loads are sent to 8085, the adapter listens on 8055"),
        (lambda c, pod: env(c[ADAPTER], RUNTIME_PORT="8005"), "the adapter calls Triton at 8005, Triton listens on 8001"),
        (lambda c, pod: c[TRITON].pop("livenessProbe"), "the probe of Triton does not ask the adapter's health at 9464"),
        (lambda c, pod: script(c[TRITON], "--http-port=8000", "--http-port=8004"), "the probe of Triton does not ask Triton's at 8004"),
        (
            lambda c, pod: mount(c[TRITON], "/model-cache").update(name="triton-adapter-tmp"),
            "/model-cache is ('triton-adapter-tmp', '.') for",
        ),
        (lambda c, pod: mount(c[TRITON], "/model-cache").update(subPath="x"), "/model-cache is ('triton-adapter-models', 'x') for Triton"),
        (lambda c, pod: env(c[ADAPTER], ROOT_MODEL_DIR="/elsewhere"), "/elsewhere is None for Triton and None for the adapter"),
        (lambda c, pod: script(c[TRITON], "--model-repository=/model-cache", "--model-repository=/x"), "Triton serves /x/_triton_models"),
        (lambda c, pod: c[TRITON]["volumeMounts"].remove(mount(c[TRITON], "/pvc_mounts/model-claim")), "claims of Triton: []"),
        (lambda c, pod: env(c[ADAPTER], CACHE_MAX_BYTES="55Gi"), "is more than 90% of the volume's 60Gi"),
        (lambda c, pod: env(c[ADAPTER], TRITON_LOAD_THREADS="9"), "Triton has 8 load threads, the adapter believes in 9"),
        (lambda c, pod: env(c[ADAPTER], LOADING_CONCURRENCY="8"), "8 load threads for 8 loads at once"),
        (lambda c, pod: env(c[ADAPTER], GRACE_PERIOD_SECONDS="90"), "the adapter takes 90.0 s to end, the pod has 90 s"),
        (
            lambda c, pod: c[ADAPTER]["volumeMounts"].remove(mount(c[ADAPTER], "/storage-config")),
            f"{ADAPTER} sees no secret at /storage-config",
        ),
        (lambda c, pod: next(v for v in pod["volumes"] if v["name"] == "triton-adapter-secret")["secret"].pop("optional"), "no pod starts"),
    ],
)
def test_a_mistake_in_the_pod(change: Change, words: str) -> None:
    problems = said(change)

    assert any(words in problem for problem in problems) if words else problems == []


def test_the_storage_helper_is_looked_at_too() -> None:
    def elsewhere(c: dict[str, dict[str, Any]], _: object) -> None:
        env(c["puller"], MODEL_SERVER_ENDPOINT="port:8055")
        env(c["mm"], INTERNAL_GRPC_PORT="8085")

    problems = said(elsewhere, "storage-helper")

    assert "mm sends loads to 8085, the storage helper listens on 8086" in problems
    assert "loads are sent to 8055, the adapter listens on 8085" in problems
