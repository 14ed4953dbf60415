"""What an admin has before: the facts of ModelMesh Serving's runtime `triton-2.x`, and models of its formats."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.chart.admin.api import Object

NAME = "triton-2.x"


def runtime(kind: str = "ServingRuntime", **further: object) -> Object:
    """With the built-in adapter. `further`: fields of its spec that an admin has set."""
    made: Object = yaml.safe_load(Path(__file__).with_name("triton-2.x.yaml").read_text())
    return made | {"kind": kind, "spec": made["spec"] | further}


def model(name: str = "digits", format_name: str = "onnx", **model: object) -> Object:
    """An InferenceService."""
    storage = {"key": "s3", "path": f"models/{name}"}
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": name, "annotations": {"serving.kserve.io/deploymentMode": "ModelMesh"}},
        "spec": {"predictor": {"model": {"modelFormat": {"name": format_name}, "storage": storage, **model}}},
    }
