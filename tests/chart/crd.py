"""The CRDs of ModelMesh Serving and of the Prometheus operator, for an API server. `crds/` holds them without descriptions."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

CRDS = Path(__file__).with_name("crds")
NAMES = ("servingruntimes", "predictors", "inferenceservices", "podmonitors", "prometheusrules")


def crds() -> list[dict[str, Any]]:
    """ServingRuntime, ClusterServingRuntime, Predictor, InferenceService, PodMonitor, PrometheusRule."""
    made = [json.loads((CRDS / f"{name}.json").read_text()) for name in NAMES]
    return [made[0], _cluster_wide(made[0]), *made[1:]]


def _cluster_wide(crd: dict[str, Any]) -> dict[str, Any]:
    """Names and scope are all that differs."""
    made = copy.deepcopy(crd)
    names = made["spec"]["names"]
    made["spec"]["names"] = {name: f"Cluster{of}" if of[0].isupper() else f"cluster{of}" for name, of in names.items()}
    made["spec"]["scope"] = "Cluster"
    made["metadata"]["name"] = f"cluster{made['metadata']['name']}"
    return made
