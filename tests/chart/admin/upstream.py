"""What an admin has before: the facts of ModelMesh Serving's runtime `triton-2.x`, and models of its formats."""

from __future__ import annotations

from tests.chart.admin.api import Object

NAME = "triton-2.x"
PROBE = ["curl", "--fail", "--silent", "--show-error", "--max-time", "9", "http://localhost:8000/v2/health/live"]
SCRIPT = (
    "mkdir -p /models/_triton_models; chmod 777 /models/_triton_models; exec tritonserver "
    '"--model-repository=/models/_triton_models" "--model-control-mode=explicit" "--strict-model-config=false" '
    '"--strict-readiness=false" "--allow-http=true" "--allow-sagemaker=false" '
)
FORMATS = (("keras", "2"), ("onnx", "1"), ("pytorch", "1"), ("tensorflow", "1"), ("tensorflow", "2"), ("tensorrt", "7"))


def runtime(kind: str = "ServingRuntime", **further: object) -> Object:
    """
    With the built-in adapter. `further`: fields of its spec that an admin has set.

    Source: kserve/modelmesh-serving, `config/runtimes/triton-2.x.yaml`.
    """
    resources = {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "5", "memory": "1Gi"}}
    container = {
        "name": "triton",
        "image": "nvcr.io/nvidia/tritonserver:23.04-py3",
        "command": ["/bin/sh"],
        "args": ["-c", SCRIPT],
        "resources": resources,
        "livenessProbe": {"exec": {"command": PROBE}, "initialDelaySeconds": 5, "periodSeconds": 30, "timeoutSeconds": 10},
    }
    spec = {
        "supportedModelFormats": [{"name": name, "version": version, "autoSelect": True} for name, version in FORMATS],
        "multiModel": True,
        "grpcEndpoint": "port:8085",
        "grpcDataEndpoint": "port:8001",
        "containers": [container],
        "builtInAdapter": {
            "serverType": "triton",
            "runtimeManagementPort": 8001,
            "memBufferBytes": 134217728,
            "modelLoadingTimeoutMillis": 90000,
        },
        **further,
    }
    labels, annotations = {"name": f"modelmesh-serving-{NAME}-SR"}, {"maxLoadingConcurrency": "2"}
    metadata = {"name": NAME, "labels": labels, "annotations": annotations}
    return {"apiVersion": "serving.kserve.io/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}


def model(name: str = "digits", format_name: str = "onnx", **model: object) -> Object:
    """An InferenceService."""
    storage = {"key": "s3", "path": f"models/{name}"}
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": name, "annotations": {"serving.kserve.io/deploymentMode": "ModelMesh"}},
        "spec": {"predictor": {"model": {"modelFormat": {"name": format_name}, "storage": storage, **model}}},
    }
