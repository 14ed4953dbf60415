"""What an API server would refuse or drop is named; what it would store is not."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.chart import crd, valid

RUNTIME: dict[str, Any] = {
    "apiVersion": "serving.kserve.io/v1alpha1",
    "kind": "ServingRuntime",
    "metadata": {"name": "triton-2.x"},
    "spec": {
        "multiModel": True,
        "supportedModelFormats": [{"name": "onnx", "version": "1", "autoSelect": True}],
        "containers": [
            {
                "name": "triton",
                "image": "triton:1",
                "ports": [{"name": "metrics", "containerPort": 8002}],
                "resources": {"limits": {"cpu": 2, "memory": "1Gi"}},
            }
        ],
    },
}


def changed(**fields: Any) -> dict[str, Any]:
    runtime = copy.deepcopy(RUNTIME)
    runtime["spec"] |= fields
    return runtime


@pytest.mark.parametrize(
    ("runtime", "words"),
    [
        (changed(hostIPC=True), "spec: Additional properties are not allowed ('hostIPC' was unexpected)"),
        (changed(initContainers=[]), "spec: Additional properties are not allowed ('initContainers' was unexpected)"),
        (changed(replicas="2"), "spec.replicas: '2' is not of type 'integer'"),
        (
            changed(containers=[{"name": "a", "env": [{"name": "A", "value": 1}]}]),
            "spec.containers.0.env.0.value: 1 is not of type 'string'",
        ),
        (changed(supportedModelFormats=[{"version": "1"}]), "spec.supportedModelFormats.0: 'name' is a required property"),
        (
            changed(containers=[{"name": "a", "ports": [{"containerPort": 80, "protocol": "TCP"}] * 2}]),
            "spec.containers.0.ports: duplicate containerPort, protocol: 80, TCP",
        ),
        (changed() | {"kind": "ServingRuntimes"}, "serving.kserve.io/v1alpha1 ServingRuntimes: no CRD"),
    ],
    ids=["unknown to this CRD", "nor this", "number as text", "text as number", "missing", "twice", "another kind"],
)
def test_a_wrong_runtime_is_refused(runtime: dict[str, Any], words: str) -> None:
    assert words in crd.problems(runtime)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"apiVersion": "v1", "kind": "Secret", "stringDate": {}}, "'stringDate' was unexpected"),
        ({"apiVersion": "v1", "kind": "Nonsense"}, "v1 Nonsense: no schema"),
        (
            {"apiVersion": "monitoring.coreos.com/v1", "kind": "PodMonitor", "metadata": {}, "spec": {"selector": {}, "portz": []}},
            "'portz' was unexpected",
        ),
        (
            {"apiVersion": "serving.kserve.io/v1beta1", "kind": "InferenceService", "metadata": {}, "spec": {"predictor": {"modl": {}}}},
            "'modl' was unexpected",
        ),
    ],
    ids=["built-in", "no kind", "Prometheus operator", "InferenceService"],
)
def test_other_objects_are_checked_too(found: dict[str, Any], words: str) -> None:
    (said,) = valid.problems(found)
    assert words in said
