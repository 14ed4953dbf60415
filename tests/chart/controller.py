"""
A simulator of ModelMesh Serving's controller (v0.11, v0.12): which runtimes it refuses, and which pods it makes of the others.

Source: kserve/modelmesh-serving at 9c7a2b7, `controllers/modelmesh/`. Left out: TLS and payload processors (they touch `mm` and the
REST proxy alone), what an API server adds, and of the containers of ModelMesh all that neither the adapter nor Triton can notice.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tests.chart.admission import validate
from tests.chart.pod.env import quantity

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
SERVICE, HELPER_IMAGE = "modelmesh-serving", "kserve/modelmesh-runtime-adapter:v0.12.0"
STORAGE_SECRET, ETCD_SECRET = "storage-config", "model-serving-etcd"
PULLER_PORT = 8086
MODELS = {"name": "models-dir", "mountPath": "/models"}
SECRET = {"name": "storage-config", "mountPath": "/storage-config", "readOnly": True}
DROP_ALL = {"capabilities": {"drop": ["ALL"]}}
SCRAPE = {"path": "/metrics", "port": "2112", "scheme": "https", "scrape": "true"}
HELPER = {"requests": {"cpu": "50m", "memory": "96Mi"}, "limits": {"cpu": "2", "memory": "512Mi"}}
"""Resources of the storage helper's image."""


class AssemblyError(Exception):
    """The controller cannot make the pod: its reconcile fails for ever."""


def dropped(runtime: Mapping[str, Any]) -> list[str]:
    """Fields that the pods will not have."""
    return sorted(runtime["spec"].keys() - READ)


def assemble(
    runtime: Mapping[str, Any],
    *,
    namespace: str = "models",
    claims: Sequence[str] = (),
    service: str = SERVICE,
    helper_image: str = HELPER_IMAGE,
) -> dict[str, Any]:
    """
    The pod template of the runtime's Deployment. `claims`: those that the storage secret names.

    Raises:
        AssemblyError: refused, or nothing that a pod can be made of.
    """
    if refusals := validate(runtime):
        raise AssemblyError("; ".join(refusals))
    spec, annotations = copy.deepcopy(dict(runtime["spec"])), runtime["metadata"].get("annotations") or {}
    pod: dict[str, Any] = {
        "containers": _containers(spec, annotations, claims, helper_image),
        "volumes": _volumes(spec, claims),
        "terminationGracePeriodSeconds": GRACE_SECONDS,
    }
    pod |= {field: spec[field] for field in ("affinity", "nodeSelector", "tolerations", "imagePullSecrets") if spec.get(field)}
    labels = {"modelmesh-service": service, "name": f"{service}-{runtime['metadata']['name']}"}
    metadata = {
        "namespace": namespace,
        "labels": labels | (spec.get("labels") or {}),
        "annotations": {f"prometheus.io/{name}": value for name, value in SCRAPE.items()} | (spec.get("annotations") or {}),
    }
    return {"metadata": metadata, "spec": pod}


def _containers(spec: dict[str, Any], annotations: Mapping[str, str], claims: Sequence[str], helper_image: str) -> list[dict[str, Any]]:
    found = [_mm(spec)]
    for own in spec["containers"]:
        context = DROP_ALL if own.get("securityContext") is None else own["securityContext"]
        mounts = [MODELS, *_mounts(claims), *(own.get("volumeMounts") or ())]
        found.append(own | {"volumeMounts": mounts, "securityContext": context})
    if spec.get("builtInAdapter"):
        found.append(_built_in_adapter(spec, annotations, claims, helper_image))
    found.append(
        {
            "name": "rest-proxy",
            "image": "kserve/rest-proxy:v0.12.0",
            "ports": [{"name": "http", "containerPort": 8008}],
            "resources": {"requests": {"cpu": "50m", "memory": "96Mi"}, "limits": {"cpu": "1", "memory": "512Mi"}},
        }
    )
    found[0], found[-1] = found[-1], found[0]  # mm goes to the end by changing places
    return [*found, _puller(spec, claims, helper_image)] if _uses_storage_helper(spec) else found


def _volumes(spec: Mapping[str, Any], claims: Sequence[str]) -> list[dict[str, Any]]:
    limits = [(own.get("resources") or {}).get("limits") or {} for own in spec["containers"]]
    bytes_of_models = int(sum(float(quantity(limit.get("memory", "0"))) for limit in limits) * MODELS_DIR_SCALE)
    made = [*(spec.get("volumes") or ()), {"name": "models-dir", "emptyDir": {"sizeLimit": str(bytes_of_models)}}]
    if spec.get("builtInAdapter") or _uses_storage_helper(spec):
        made.append({"name": "storage-config", "secret": {"secretName": STORAGE_SECRET}})
    made += [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
    made.append({"name": "tc-config", "configMap": {"name": "tc-config"}})
    return [*made, {"name": "etcd-config", "secret": {"secretName": ETCD_SECRET}}]


def _uses_storage_helper(spec: Mapping[str, Any]) -> bool:
    """Whether ModelMesh's puller stands before the adapter."""
    return not spec.get("builtInAdapter") and not (spec.get("storageHelper") or {}).get("disabled")


def _mm(spec: Mapping[str, Any]) -> dict[str, Any]:
    """ModelMesh itself."""
    data = {"INTERNAL_SERVING_GRPC_PORT": _port(spec, "grpcDataEndpoint")} if spec.get("grpcDataEndpoint") else {}
    control = PULLER_PORT if _uses_storage_helper(spec) else _port(spec, "grpcEndpoint")
    return {
        "name": "mm",
        "image": "kserve/modelmesh:v0.12.0",
        "env": _env(**data, INTERNAL_GRPC_PORT=control),
        "ports": [{"name": "grpc", "containerPort": 8033}, {"name": "prometheus", "containerPort": 2112}],
        "resources": {"requests": {"cpu": "300m", "memory": "448Mi"}, "limits": {"cpu": "3", "memory": "448Mi"}},
        "volumeMounts": [
            {"name": "tc-config", "mountPath": "/etc/watson/mmesh/config"},
            {"name": "etcd-config", "mountPath": "/opt/kserve/mmesh/etcd", "readOnly": True},
        ],
        "securityContext": DROP_ALL,
    }


def _puller(spec: Mapping[str, Any], claims: Sequence[str], image: str) -> dict[str, Any]:
    """The storage helper: it pulls, and calls the adapter with paths."""
    return {
        "name": "puller",
        "image": image,
        "command": ["/opt/app/puller"],
        "env": _env(MODEL_SERVER_ENDPOINT=f"port:{_port(spec, 'grpcEndpoint')}", STORAGE_CONFIG_DIR="/storage-config"),
        "ports": [{"name": "grpc", "containerPort": PULLER_PORT}],
        "resources": HELPER,
        "volumeMounts": [MODELS, SECRET, *_mounts(claims)],
    }


def _built_in_adapter(spec: Mapping[str, Any], annotations: Mapping[str, str], claims: Sequence[str], image: str) -> dict[str, Any]:
    """A container from the image of the storage helper; `builtInAdapter.env` beats what the controller sets."""
    adapter = spec["builtInAdapter"]
    name, port = adapter["serverType"], adapter.get("runtimeManagementPort", 0)
    (server_image,) = [container["image"] for container in spec["containers"] if container["name"] == name]
    env = _env(
        ADAPTER_PORT=_port(spec, "grpcEndpoint", "port:8085"),
        RUNTIME_PORT=port,
        RUNTIME_DATA_ENDPOINT=spec.get("grpcDataEndpoint") or f"port:{port}",
    )
    env += [{"name": "CONTAINER_MEM_REQ_BYTES", "valueFrom": {"resourceFieldRef": {"containerName": name, "resource": "requests.memory"}}}]
    env += _env(
        MEM_BUFFER_BYTES=adapter.get("memBufferBytes", 0),
        LOADTIME_TIMEOUT=adapter.get("modelLoadingTimeoutMillis", 0),
        USE_EMBEDDED_PULLER="true",
        RUNTIME_VERSION=server_image.partition(":")[2],
    )
    names = {"LOADING_CONCURRENCY": "maxLoadingConcurrency", "LIMIT_PER_MODEL_CONCURRENCY": "perModelConcurrencyLimit"}
    env += _env(**{name: annotations[annotation] for name, annotation in names.items() if annotation in annotations})
    made = {entry["name"]: entry for entry in (*env, *(adapter.get("env") or ()))}
    return {
        "name": f"{name}-adapter",
        "image": image,
        "command": [f"/opt/app/{name}-adapter"],
        "env": list(made.values()),
        "resources": HELPER,
        "volumeMounts": [MODELS, *_mounts(claims), SECRET],
        "securityContext": DROP_ALL,
    }


def _port(spec: Mapping[str, Any], name: str, default: str = "") -> str:
    """The number of an endpoint, which must be a port here: of what is none the controller makes the path of a socket."""
    found = re.fullmatch(r"port:([0-9]+)", spec.get(name) or default)
    if found is None:
        raise AssemblyError(f"{name} {spec.get(name)!r} is no port:N")
    return found[1]


def _mounts(claims: Sequence[str]) -> list[dict[str, Any]]:
    """Every claim of the storage secret, in every container that sees models."""
    return [{"name": claim, "mountPath": f"/pvc_mounts/{claim}", "readOnly": True} for claim in claims]


def _env(**values: object) -> list[dict[str, Any]]:
    return [{"name": name, "value": str(value)} for name, value in values.items()]
