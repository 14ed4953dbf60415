"""
A simulator of ModelMesh Serving's controller (v0.11, v0.12): which runtimes it refuses, and which pods it makes of the others.

Source: kserve/modelmesh-serving at 9c7a2b7, `controllers/modelmesh/`; the tests compare with facts of its own golden
file. Left out: TLS and payload processors (they touch `mm` and the REST proxy alone), and what an API server adds.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from tests.chart import injected
from tests.chart.admission import validate
from tests.chart.endpoints import AssemblyError
from tests.chart.injected import DROP_ALL, MODELS, PRE_STOP, ControllerConfig
from tests.chart.pod.env import quantity

__all__ = ["AssemblyError", "ControllerConfig", "assemble", "dropped", "validate"]

READ = frozenset(
    {
        *("affinity", "annotations", "builtInAdapter", "containers", "disabled", "grpcDataEndpoint", "grpcEndpoint"),
        *("imagePullSecrets", "labels", "multiModel", "nodeSelector", "protocolVersions", "replicas", "storageHelper"),
        *("supportedModelFormats", "tolerations", "volumes"),
    }
)
"""Fields of a runtime that the controller reads; it passes over all others without a word."""
MODELS_DIR_SCALE = 1.5
GRACE_SECONDS = 90


def dropped(runtime: Mapping[str, Any]) -> list[str]:
    """Fields that the pods will not have."""
    return sorted(runtime["spec"].keys() - READ)


def assemble(
    runtime: Mapping[str, Any], *, namespace: str = "models", claims: Sequence[str] = (), config: ControllerConfig | None = None
) -> dict[str, Any]:
    """
    The pod template of the runtime's Deployment. `claims`: those that the storage secret names.

    Raises:
        AssemblyError: refused, or nothing that a pod can be made of.
    """
    config = config or ControllerConfig()
    if refusals := validate(runtime):
        raise AssemblyError("; ".join(refusals))
    name, spec = runtime["metadata"]["name"], copy.deepcopy(dict(runtime["spec"]))
    pod: dict[str, Any] = {
        "containers": _containers(runtime, spec, claims, config),
        "volumes": _volumes(spec, claims, config),
        "affinity": _affinity(spec.get("affinity"), config),
        "terminationGracePeriodSeconds": GRACE_SECONDS,
    }
    pod |= {field: spec[field] for field in ("nodeSelector", "tolerations", "imagePullSecrets") if spec.get(field)}
    metadata = {
        "namespace": namespace,
        "labels": _labels(name, config) | (spec.get("labels") or {}),
        "annotations": _annotations(config) | (spec.get("annotations") or {}),
    }
    return {"metadata": metadata, "spec": pod}


def _containers(runtime: Mapping[str, Any], spec: dict[str, Any], claims: Sequence[str], config: ControllerConfig) -> list[dict[str, Any]]:
    made = {"mm": injected.mm(runtime["metadata"]["name"], spec, config)}
    for own in spec["containers"]:
        mounts = [MODELS, *injected.claim_mounts(claims), *(own.get("volumeMounts") or ())]
        made[own["name"]] = own | {
            "volumeMounts": mounts,
            "lifecycle": PRE_STOP,
            "securityContext": DROP_ALL if own.get("securityContext") is None else own["securityContext"],
        }
    found = list(made.values())
    if spec.get("builtInAdapter"):
        found.append(injected.built_in_adapter(spec, runtime["metadata"].get("annotations") or {}, claims, config))
    if config.rest_proxy:
        found.append(injected.rest_proxy(config))
    found[0], found[-1] = found[-1], found[0]  # mm goes to the end by changing places
    return [*found, injected.puller(spec, claims, config)] if injected.uses_storage_helper(spec) else found


def _volumes(spec: Mapping[str, Any], claims: Sequence[str], config: ControllerConfig) -> list[dict[str, Any]]:
    limits = [(own.get("resources") or {}).get("limits") or {} for own in spec["containers"]]
    bytes_of_models = int(sum(float(quantity(limit.get("memory", "0"))) for limit in limits) * MODELS_DIR_SCALE)
    made = [*(spec.get("volumes") or ()), {"name": "models-dir", "emptyDir": {"sizeLimit": _binary(bytes_of_models)}}]
    if spec.get("builtInAdapter") or injected.uses_storage_helper(spec):
        made.append({"name": "storage-config", "secret": {"secretName": config.storage_secret}})
    made += [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
    made.append({"name": "tc-config", "configMap": {"name": "tc-config"}})
    return [*made, {"name": "etcd-config", "secret": {"secretName": config.etcd_secret}}]


def _labels(name: str, config: ControllerConfig) -> dict[str, str]:
    own = {f"app.kubernetes.io/{word}": "modelmesh-controller" for word in ("instance", "managed-by", "name")}
    return own | {"modelmesh-service": config.service_name, "name": f"{config.service_name}-{name}"}


def _annotations(config: ControllerConfig) -> dict[str, str]:
    if not config.metrics:
        return {}
    values = {"path": "/metrics", "port": str(config.metrics_port), "scheme": config.metrics_scheme, "scrape": "true"}
    return {f"prometheus.io/{name}": value for name, value in values.items()}


def _affinity(affinity: dict[str, Any] | None, config: ControllerConfig) -> dict[str, Any]:
    """A term of its own: terms are alternatives, so a node that the runtime's own terms refuse is taken by this one."""
    term = {"matchExpressions": [{"key": "kubernetes.io/arch", "operator": "In", "values": list(config.architectures)}]}
    made = affinity or {}
    required = made.setdefault("nodeAffinity", {}).setdefault("requiredDuringSchedulingIgnoredDuringExecution", {})
    required["nodeSelectorTerms"] = [*(required.get("nodeSelectorTerms") or ()), term]
    return made


def _binary(amount: int) -> str:
    suffixes = ("", "Ki", "Mi", "Gi", "Ti", "Pi")
    power = next((power for power in range(len(suffixes) - 1, 0, -1) if amount and amount % 1024**power == 0), 0)
    return f"{amount // 1024**power}{suffixes[power]}"
