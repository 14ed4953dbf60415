"""What `helm install` says after a look at the cluster: the namespace, runtimes that share formats, models that lose theirs."""

from __future__ import annotations

import pytest

from tests.chart.admin import upstream
from tests.chart.admin.admin import CHART, Admin
from tests.chart.admin.api import MERGE, NAMESPACE, Object

TRY = f'helm install triton-adapter {CHART} --namespace "$NAMESPACE" --dry-run=server'


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


@pytest.mark.parametrize("kind", ["ServingRuntime", "ClusterServingRuntime"])
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
