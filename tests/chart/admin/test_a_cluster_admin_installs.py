"""
The commands of `deploy/docs/install.md` and `deploy/docs/drop-in-image.md`, with real Helm and kubectl on a real API server.

And what `helm install` says after a look at the cluster: the namespace, runtimes that share formats, models that lose theirs. All in one
file, so that one API server is started for them.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
import yaml

from tests.chart import controller
from tests.chart.admin import operator, upstream
from tests.chart.admin.admin import CHART, Admin
from tests.chart.admin.api import CLUSTER_RUNTIME, CONFIG_MAP, MERGE, NAMESPACE, NETWORK_POLICY, RUNTIME, SECRET, SERVICE, Object
from tests.real.children import TOP

PAGE = "install.md"
IMAGE_PAGE = "drop-in-image.md"
NAME = "triton-2.x"
FRESH = ("Check what is there", "Tell it where models are stored", "Install the runtime", "Test it", "Load the first model")
CONFIG = "model-serving-config"
IMAGE = {"name": "registry.example.com/modelmesh-triton-adapter", "tag": "0.1.0"}
TRY = f'helm install triton-adapter {CHART} --namespace "$NAMESPACE" --dry-run=server'


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
    helper = dataclasses.replace(controller.ControllerConfig(), storage_helper_image=f"{image['name']}:{image['tag']}")
    pod = controller.assemble(upstream.runtime(), config=helper)
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


def other_runtime(kind: str, name: str, *formats: str, **further: object) -> Object:
    found = upstream.runtime(kind, **further)
    found["metadata"]["name"] = name
    found["spec"]["supportedModelFormats"] = [{"name": each, "version": "1", "autoSelect": True} for each in formats]
    return found


def notes(admin: Admin, *further: str) -> str:
    """As one line: where words are wrapped is no matter here."""
    said = admin.says(" ".join([TRY, *further]))
    return " ".join(said.partition("NOTES:")[2].split())


def test_an_empty_cluster_has_nothing_to_tell(admin: Admin) -> None:
    said = notes(admin)

    assert "Namespace:" not in said, "its label is there"
    assert "shared with" not in said
    assert "These models" not in said


def test_a_namespace_without_the_label_is_told(admin: Admin) -> None:
    labels = {"metadata": {"labels": {"modelmesh-enabled": None}}}
    admin.api.ask("PATCH", NAMESPACE.path(name=admin.namespace), labels, MERGE)

    assert f"Namespace: {admin.namespace} does not have the label modelmesh-enabled=true." in notes(admin)
    assert f"Namespace: {admin.namespace} must have the label modelmesh-enabled=true." in notes(admin, "--set notes.lookup=false")


def test_runtimes_that_auto_select_the_same_formats_are_named(admin: Admin) -> None:
    admin.apply(
        other_runtime("ClusterServingRuntime", "ovms-1.x", "onnx", "openvino_ir"),
        other_runtime("ServingRuntime", "mine", "pytorch", "onnx"),
        other_runtime("ServingRuntime", "elsewhere", "sklearn"),
        other_runtime("ServingRuntime", "off", "onnx", disabled=True),
        other_runtime("ClusterServingRuntime", "triton-2.x", "onnx"),
    )

    said = notes(admin)

    assert "shared with ServingRuntime mine: pytorch, onnx shared with ClusterServingRuntime ovms-1.x: onnx *" in said
    assert said.count("shared with") == 2
    assert "shared with" not in notes(admin, "--set notes.lookup=false")


@pytest.mark.parametrize("kind", ["ServingRuntime", pytest.param("ClusterServingRuntime", marks=pytest.mark.long)])
def test_models_whose_format_is_not_served_any_more_are_named(admin: Admin, kind: str) -> None:
    predictor = {
        "apiVersion": "serving.kserve.io/v1alpha1",
        "kind": "Predictor",
        "metadata": {"name": "old"},
        "spec": {"modelType": {"name": "tensorflow"}, "path": "models/old", "storage": {"s3": {"secretKey": "s3"}}},
    }
    single = upstream.model("single", "tensorflow")
    single["metadata"]["annotations"] = {"serving.kserve.io/deploymentMode": "RawDeployment"}
    admin.apply(
        upstream.model("keras", "keras"),
        upstream.model("named", "tensorflow", runtime="triton-2.x"),
        upstream.model("other", "tensorflow", runtime="another"),
        upstream.model("kept", "onnx"),
        single,
        predictor,
    )
    names = [f"{admin.namespace}/{each}" for each in ("keras (keras)", "named (tensorflow)", "old (tensorflow)")]

    said = notes(admin, f"--set runtime.kind={kind}")

    named = said.partition("These models lose their runtime: ")[2].partition(".")[0].split(", ")
    assert [each for each in named if each.startswith(f"{admin.namespace}/")] == names
    assert "These models" not in notes(admin, "--set runtime.name=another-one")
    served = "--set triton.image.tag=25.02-py3 --set formats.keras.enabled=true --set formats.tensorflow.enabled=true"
    assert "These models" not in notes(admin, served)
