"""
The commands of `deploy/docs/install.md` and `deploy/docs/drop-in-image.md`, with real Helm and kubectl on a real API server.

All in one file, so that one API server is started for them.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from tests.chart import controller
from tests.chart.admin import operator, upstream
from tests.chart.admin.admin import CHART, Admin
from tests.chart.admin.api import CLUSTER_RUNTIME, CONFIG_MAP, NETWORK_POLICY, RUNTIME, SECRET, SERVICE, Object
from tests.real.children import TOP

PAGE = "install.md"
IMAGE_PAGE = "drop-in-image.md"
NAME = "triton-2.x"
FRESH = ("Check what is there", "Tell it where models are stored", "Install the runtime", "Test it", "Load the first model")
CONFIG = "model-serving-config"
IMAGE = {"name": "registry.example.com/modelmesh-triton-adapter", "tag": "0.1.0"}


def test_a_fresh_install_ends_with_pods_for_the_first_model(admin: Admin) -> None:
    admin.follow(PAGE, *FRESH[:-1])
    before = operator.turn(admin.api, admin.namespace)[NAME]

    admin.follow(PAGE, FRESH[-1])

    after = operator.turn(admin.api, admin.namespace)[NAME]
    assert (before["spec"]["replicas"], after["spec"]["replicas"]) == (0, operator.PODS)
    images = [each["image"] for each in after["spec"]["template"]["spec"]["containers"]]
    assert any(image.startswith("registry.example.com/modelmesh-triton-adapter:") for image in images)
    assert admin.api.has(NETWORK_POLICY, admin.namespace, "triton-adapter-modelmesh-triton-adapter")
    assert admin.api.has(SERVICE, admin.namespace, "triton-adapter-modelmesh-triton-adapter")
    assert not admin.api.get(SECRET, admin.namespace, "storage-config")["metadata"].get("annotations")


def test_a_runtime_of_the_cluster_serves_further_namespaces_with_their_own_policy(admin: Admin) -> None:
    admin.follow(PAGE, "Check what is there")
    install = f'helm install triton-adapter {CHART} --namespace "$NAMESPACE" --set adapter.image.registry="$REGISTRY"'

    admin.says(f"{install} --set runtime.kind=ClusterServingRuntime")
    admin.says('helm install further --namespace "$NAMESPACE" --set runtime.create=false ' + CHART)

    assert admin.api.has(CLUSTER_RUNTIME, "", NAME)
    assert admin.api.all_of(RUNTIME, admin.namespace) == []
    assert NAME in operator.turn(admin.api, admin.namespace)
    assert admin.api.has(NETWORK_POLICY, admin.namespace, "further-modelmesh-triton-adapter")


def test_plain_manifests_make_the_same_runtime(admin: Admin) -> None:
    admin.follow(PAGE, "Without Helm")

    runtime = admin.api.get(RUNTIME, admin.namespace, NAME)
    assert runtime["spec"]["containers"][1]["image"] == "registry.example.com/modelmesh-triton-adapter:0.1.0"
    assert NAME in operator.turn(admin.api, admin.namespace)


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        ("runtime.kind=InferenceRuntime", "/runtime/kind"),
        pytest.param("triton.readinessProbe.periodSeconds=5", "readinessProbe", marks=pytest.mark.long),
        pytest.param("runtime.initContainers[0].name=x", "initContainers", marks=pytest.mark.long),
    ],
)
def test_a_wrong_value_ends_at_the_install_and_nothing_is_made(admin: Admin, sets: str, words: str) -> None:
    refusal = admin.refusal(f'helm install triton-adapter {CHART} --namespace "$NAMESPACE" --set "{sets}"')

    assert words in refusal
    assert admin.api.all_of(RUNTIME, admin.namespace) == []
    assert json.loads(admin.says('helm list --namespace "$NAMESPACE" --all --output json')) == []


def config(admin: Admin) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(admin.api.get(CONFIG_MAP, admin.namespace, CONFIG)["data"]["config.yaml"]) or {}
    return found


def built_in_adapter(configuration: dict[str, Any]) -> Object:
    """The container that the controller makes with this ConfigMap, of the runtime as it was."""
    image = configuration["storageHelperImage"]
    pod = controller.assemble(upstream.runtime(), helper_image=f"{image['name']}:{image['tag']}")
    (found,) = [each for each in pod["spec"]["containers"] if each["name"] == "triton-adapter"]
    return dict(found)


@pytest.mark.parametrize(
    "before",
    [
        pytest.param("", marks=pytest.mark.long),
        "podsPerRuntime: 3\nrestProxy:\n  enabled: false",
        pytest.param("podsPerRuntime: 3\n", marks=pytest.mark.long),
    ],
)
def test_the_image_is_changed_and_all_else_stays(admin: Admin, before: str) -> None:
    if before:
        admin.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": CONFIG}, "data": {"config.yaml": before}})

    admin.follow(IMAGE_PAGE, "Change the image")

    assert config(admin) == {**(yaml.safe_load(before) or {}), "storageHelperImage": IMAGE}
    container = built_in_adapter(config(admin))
    assert container["image"] == "registry.example.com/modelmesh-triton-adapter:0.1.0"
    (command,) = container["command"]
    assert (TOP / "deploy" / "image" / command.rpartition("/")[2]).is_file()

    admin.follow(IMAGE_PAGE, "The way back")

    assert config(admin) == (yaml.safe_load(before) or {})
