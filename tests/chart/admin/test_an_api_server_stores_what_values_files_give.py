"""
The objects of each values file, and the pod that the controller would make, against a real API server with strict validation.

Unlike a schema, it also knows what Kubernetes' own code says of a pod: names and paths that are there twice, ports, quantities.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.chart import matrix, pod_security, valid
from tests.chart.admin.cluster import Cluster, CommandError
from tests.chart.render import NAMESPACE

pytestmark = pytest.mark.long

RESTRICTED = "restricted"


@pytest.fixture(scope="module")
def server(cluster: Cluster) -> Cluster:
    """With the namespace of the renders, and one that enforces the restricted Pod Security Standard."""
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": RESTRICTED, "labels": labels}})
    return cluster


def store(server: Cluster, *objects: dict[str, Any]) -> str:
    words = ("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-")
    return server.kubectl(*words, stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))


def a_pod(case: matrix.Case) -> dict[str, Any]:
    template = case.pod().template
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {**template["metadata"], "name": "assembled"}, "spec": template["spec"]}


@pytest.mark.parametrize("case", matrix.values(), ids=lambda case: case.name)
def test_it_stores_the_objects_and_the_pod(server: Cluster, case: matrix.Case) -> None:
    """And says of Pod Security what ours says."""
    objects = [*case.objects(), *([a_pod(case)] if case.has_runtime else [])]

    assert len(store(server, *objects).splitlines()) == len(objects)
    if case.has_runtime:
        assert is_restricted(server, case.runtime()) == (not pod_security.restricted(case.runtime()))


def is_restricted(server: Cluster, runtime: dict[str, Any]) -> bool:
    """Whether our containers and volumes keep to the restricted standard: those of ModelMesh do not."""
    bare = {name: runtime["spec"][name] for name in ("containers", "volumes")}
    try:
        store(server, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "ours", "namespace": RESTRICTED}, "spec": bare})
    except CommandError as error:
        assert "violates PodSecurity" in str(error)
        return False
    return True


def test_it_refuses_what_the_schemas_refuse(server: Cluster) -> None:
    """So strict validation is on, and the schemas here are no stricter than need be."""
    runtime = matrix.case("default").runtime()
    runtime["spec"]["hostIPC"] = True

    assert valid.problems(runtime)
    with pytest.raises(CommandError, match="hostIPC"):
        store(server, runtime)


def test_it_knows_more_of_a_pod_than_the_schemas(server: Cluster) -> None:
    pod = a_pod(matrix.case("default"))
    pod["spec"]["containers"][1]["volumeMounts"].append({"name": "triton-adapter-tmp", "mountPath": "/dev/shm"})

    assert valid.problems(pod) == []
    with pytest.raises(CommandError, match="duplicate entries"):
        store(server, pod)
