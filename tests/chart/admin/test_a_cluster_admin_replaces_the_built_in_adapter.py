"""The commands of `deploy/docs/replace.md`, with real Helm and kubectl on a real API server."""

from __future__ import annotations

import json

import pytest

from tests.chart.admin import operator, upstream
from tests.chart.admin.admin import Admin
from tests.chart.admin.api import CLUSTER_RUNTIME, INFERENCE_SERVICE, RUNTIME, Object

pytestmark = pytest.mark.long

PAGE = "replace.md"
NAME = upstream.NAME
OURS = ["rest-proxy", "triton", "triton-adapter", "mm"]


def containers(deployment: Object) -> list[str]:
    return [each["name"] for each in deployment["spec"]["template"]["spec"]["containers"]]


def adapter_image(deployment: Object) -> str:
    (found,) = [each["image"] for each in deployment["spec"]["template"]["spec"]["containers"] if each["name"] == "triton-adapter"]
    return str(found)


def essence(runtime: Object) -> Object:
    """What an admin wrote of a runtime: not what the API server, kubectl and Helm note beside it."""
    metadata = runtime["metadata"]
    annotations = {key: value for key, value in metadata["annotations"].items() if "kubernetes.io/" not in key}
    return {"name": metadata["name"], "labels": metadata["labels"], "annotations": annotations, "spec": runtime["spec"]}


def test_a_runtime_of_the_namespace_is_replaced_in_its_place_and_comes_back(admin: Admin) -> None:
    admin.apply(upstream.runtime(replicas=3), upstream.model())
    before = admin.api.get(RUNTIME, admin.namespace, NAME)
    deployment = operator.turn(admin.api, admin.namespace)[NAME]
    models = admin.api.all_of(INFERENCE_SERVICE, admin.namespace)

    admin.follow(PAGE, "Look first", "Your values", "A runtime of the namespace:0")

    runtime = admin.api.get(RUNTIME, admin.namespace, NAME)
    ours = operator.turn(admin.api, admin.namespace)[NAME]
    assert runtime["metadata"]["uid"] == before["metadata"]["uid"]
    assert {"builtInAdapter", "replicas"}.isdisjoint(runtime["spec"])
    assert "maxLoadingConcurrency" not in runtime["metadata"]["annotations"]
    assert containers(ours) == OURS
    assert adapter_image(ours).startswith("registry.example.com/")
    assert ours["metadata"]["uid"] == deployment["metadata"]["uid"]
    admin.follow(PAGE, "Check afterwards")

    admin.follow(PAGE, "The way back")

    after = admin.api.get(RUNTIME, admin.namespace, NAME)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert essence(after) == essence(before)
    assert containers(operator.turn(admin.api, admin.namespace)[NAME]) == containers(deployment)
    assert admin.says('helm list --namespace "$NAMESPACE" --short') == ""
    assert admin.api.all_of(INFERENCE_SERVICE, admin.namespace) == models


def test_an_older_helm_takes_what_is_labelled(admin: Admin) -> None:
    admin.apply(upstream.runtime(replicas=3))
    before = admin.api.get(RUNTIME, admin.namespace, NAME)

    admin.follow(PAGE, "Your values", "A runtime of the namespace:1")

    runtime = admin.api.get(RUNTIME, admin.namespace, NAME)
    assert runtime["metadata"]["uid"] == before["metadata"]["uid"]
    assert {"builtInAdapter", "replicas"}.isdisjoint(runtime["spec"])
    assert containers(operator.turn(admin.api, admin.namespace)[NAME]) == OURS


def test_plain_manifests_replace_a_runtime_in_its_place(admin: Admin) -> None:
    """However the runtime was made: `kubectl apply` would know only what it applied itself."""
    (admin.folder / "before.json").write_text(json.dumps(upstream.runtime(replicas=3)))
    admin.says('kubectl create --namespace "$NAMESPACE" --filename before.json')
    before = admin.api.get(RUNTIME, admin.namespace, NAME)

    admin.follow(PAGE, "A runtime of the namespace:2")

    runtime = admin.api.get(RUNTIME, admin.namespace, NAME)
    assert runtime["metadata"]["uid"] == before["metadata"]["uid"]
    assert {"builtInAdapter", "replicas"}.isdisjoint(runtime["spec"])
    assert containers(operator.turn(admin.api, admin.namespace)[NAME]) == OURS


def test_a_namespace_of_a_cluster_gets_a_runtime_before_the_one_of_the_cluster(admin: Admin) -> None:
    admin.apply(upstream.runtime("ClusterServingRuntime"), upstream.model())
    before = admin.api.get(CLUSTER_RUNTIME, "", NAME)
    theirs = operator.turn(admin.api, admin.namespace)[NAME]
    models = admin.api.all_of(INFERENCE_SERVICE, admin.namespace)

    admin.follow(PAGE, "Look first", "Your values", "One namespace of a cluster")

    ours = operator.turn(admin.api, admin.namespace)[NAME]
    assert containers(ours) == OURS
    assert ours["metadata"]["uid"] == theirs["metadata"]["uid"]
    assert admin.api.get(CLUSTER_RUNTIME, "", NAME) == before

    admin.follow(PAGE, "The way back")

    back = operator.turn(admin.api, admin.namespace)[NAME]
    assert containers(back) == containers(theirs)
    assert back["metadata"]["uid"] == theirs["metadata"]["uid"]
    assert admin.api.get(RUNTIME, admin.namespace, NAME)["spec"] == before["spec"]
    assert admin.api.all_of(INFERENCE_SERVICE, admin.namespace) == models


def test_the_uninstall_of_such_a_runtime_brings_the_one_of_the_cluster_back_with_a_gap(admin: Admin) -> None:
    admin.apply(upstream.runtime("ClusterServingRuntime"), upstream.model())
    theirs = operator.turn(admin.api, admin.namespace)[NAME]
    admin.follow(PAGE, "Your values", "One namespace of a cluster")
    ours = operator.turn(admin.api, admin.namespace)[NAME]

    admin.says('helm uninstall triton-adapter --namespace "$NAMESPACE"')

    back = operator.turn(admin.api, admin.namespace)[NAME]
    assert containers(back) == containers(theirs)
    assert back["metadata"]["uid"] != ours["metadata"]["uid"]


def test_the_runtime_of_the_cluster_is_replaced_for_all_namespaces_and_comes_back(admin: Admin) -> None:
    admin.apply(upstream.runtime("ClusterServingRuntime"), upstream.model())
    before = admin.api.get(CLUSTER_RUNTIME, "", NAME)

    admin.follow(PAGE, "Your values", "The whole cluster")

    runtime = admin.api.get(CLUSTER_RUNTIME, "", NAME)
    assert runtime["metadata"]["uid"] == before["metadata"]["uid"]
    assert "builtInAdapter" not in runtime["spec"]
    assert containers(operator.turn(admin.api, admin.namespace)[NAME]) == OURS
    admin.follow(PAGE, "Check afterwards")

    admin.follow(PAGE, "The way back")

    after = admin.api.get(CLUSTER_RUNTIME, "", NAME)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert essence(after) == essence(before)
