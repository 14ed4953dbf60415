"""
The CRDs of ModelMesh Serving and of the Prometheus operator; objects checked as an API server with strict validation does.

`crds/` holds them without descriptions; the InferenceService is cut to `predictor.model`.
"""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator, ValidationError, validators

CRDS = Path(__file__).with_name("crds")
NAMES = ("servingruntimes", "predictors", "inferenceservices", "podmonitors", "prometheusrules")


def crds() -> list[dict[str, Any]]:
    """All of them, for an API server: ServingRuntime, ClusterServingRuntime, Predictor, InferenceService, PodMonitor, PrometheusRule."""
    made = [json.loads((CRDS / f"{name}.json").read_text()) for name in NAMES]
    return [made[0], _cluster_wide(made[0]), *made[1:]]


def problems(found: Mapping[str, Any]) -> list[str]:
    """What an API server says against the object, as `place: words`; nothing for one that is valid."""
    validator = _validators().get((found.get("apiVersion", ""), found.get("kind", "")))
    if validator is None:
        return [f"{found.get('apiVersion')} {found.get('kind')}: no CRD"]
    errors = sorted(validator.iter_errors(found), key=lambda error: list(map(str, error.absolute_path)))
    return [f"{'.'.join(map(str, error.absolute_path)) or found['kind']}: {error.message}" for error in errors]


def is_known(found: Mapping[str, Any]) -> bool:
    """Whether one of these CRDs speaks of the object."""
    return (found.get("apiVersion", ""), found.get("kind", "")) in _validators()


@functools.cache
def _validators() -> dict[tuple[str, str], Draft202012Validator]:
    keys = {"x-kubernetes-list-map-keys": _unique_by_keys}
    strict = validators.extend(Draft202012Validator, keys)
    made = {}
    for crd in crds():
        for version in crd["spec"]["versions"]:
            schema = _closed(version["schema"]["openAPIV3Schema"])
            schema["required"] = sorted({"apiVersion", "kind", "metadata", "spec", *schema.get("required", [])})
            made[f"{crd['spec']['group']}/{version['name']}", crd["spec"]["names"]["kind"]] = strict(schema)
    return made


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    """Fields that the schema does not name are refused, where it does not say that unknown ones are kept."""
    made: dict[str, Any] = {key: value for key, value in schema.items() if key != "properties"}
    if "properties" in schema:
        made["properties"] = {name: _closed(inner) for name, inner in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields") and "additionalProperties" not in schema:
            made["additionalProperties"] = False
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            made[key] = _closed(schema[key])
    if schema.get("nullable") and "type" in schema:
        made["type"] = [schema["type"], "null"]
    return made


def _unique_by_keys(_: object, keys: list[str], items: object, __: object) -> Iterator[ValidationError]:
    seen: list[tuple[object, ...]] = []
    for item in items if isinstance(items, list) else []:
        key = tuple(item.get(name) for name in keys)
        if key in seen:
            yield ValidationError(f"duplicate {', '.join(keys)}: {', '.join(map(str, key))}")
        seen.append(key)


def _cluster_wide(crd: dict[str, Any]) -> dict[str, Any]:
    """Names and scope are all that differs."""
    made = copy.deepcopy(crd)
    names = made["spec"]["names"]
    made["spec"]["names"] = {name: f"Cluster{of}" if of[0].isupper() else f"cluster{of}" for name, of in names.items()}
    made["spec"]["scope"] = "Cluster"
    made["metadata"]["name"] = f"cluster{made['metadata']['name']}"
    return made
