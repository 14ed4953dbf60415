"""The containers that the controller adds: `mm`, the REST proxy, the puller of its storage helper, and the built-in adapter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.chart import endpoints

PULLER_PORT = 8086
MODELS = {"name": "models-dir", "mountPath": "/models"}
SECRET = {"name": "storage-config", "mountPath": "/storage-config", "readOnly": True}
DROP_ALL = {"capabilities": {"drop": ["ALL"]}}
PRE_STOP = {"preStop": {"httpGet": {"path": "/prestop", "port": 8090}}}


@dataclass(frozen=True, kw_only=True)
class ControllerConfig:
    """The ConfigMap `model-serving-config`, as far as pods depend on it, with its defaults."""

    service_name: str = "modelmesh-serving"
    service_port: int = 8033
    model_mesh_image: str = "kserve/modelmesh:v0.12.0"
    storage_helper_image: str = "kserve/modelmesh-runtime-adapter:v0.12.0"
    storage_secret: str = "storage-config"
    etcd_secret: str = "model-serving-etcd"
    rest_proxy: bool = True
    rest_proxy_image: str = "kserve/rest-proxy:v0.12.0"
    rest_proxy_port: int = 8008
    metrics: bool = True
    metrics_port: int = 2112
    metrics_scheme: str = "https"
    max_message_bytes: int = 16 << 20
    architectures: tuple[str, ...] = ("amd64", "arm64", "s390x")


def uses_storage_helper(spec: Mapping[str, Any]) -> bool:
    """Whether ModelMesh's puller stands before the adapter."""
    return not spec.get("builtInAdapter") and not (spec.get("storageHelper") or {}).get("disabled")


def mm(name: str, spec: Mapping[str, Any], config: ControllerConfig) -> dict[str, Any]:
    """ModelMesh itself, the only one with a readiness probe."""
    env = _env(MM_SERVICE_NAME=config.service_name, MM_SVC_GRPC_PORT=config.service_port)
    env += _fields(WKUBE_POD_NAME="metadata.name", WKUBE_POD_IPADDR="status.podIP", MM_LOCATION="status.hostIP")
    env += _env(
        KV_STORE="etcd:/opt/kserve/mmesh/etcd/etcd_connection",
        MM_METRICS=f"prometheus:port={config.metrics_port};scheme={config.metrics_scheme}" if config.metrics else "disabled",
        SHUTDOWN_TIMEOUT_MS=90000,
    )
    if spec.get("grpcDataEndpoint"):
        env += _env(INTERNAL_SERVING_GRPC_PORT=endpoints.port(spec, "grpcDataEndpoint"))
    env += _env(
        INTERNAL_GRPC_PORT=PULLER_PORT if uses_storage_helper(spec) else endpoints.port(spec, "grpcEndpoint"),
        MM_SVC_GRPC_MAX_MSG_SIZE=config.max_message_bytes,
        MM_KVSTORE_PREFIX="mm",
        MM_DEFAULT_VMODEL_OWNER="ksp",
        MM_LABELS=",".join(labels_of_models(name, spec, config)),
        MM_TYPE_CONSTRAINTS_PATH="/etc/watson/mmesh/config/type_constraints",
        MM_DATAPLANE_CONFIG_PATH="/etc/watson/mmesh/config/dataplane_api_config",
    )
    mounts: list[dict[str, Any]] = [{"name": "tc-config", "mountPath": "/etc/watson/mmesh/config"}]
    mounts += [{"name": "etcd-config", "mountPath": "/opt/kserve/mmesh/etcd", "readOnly": True}]
    ports = [{"name": "grpc", "containerPort": config.service_port}]
    ports += [{"name": "prometheus", "containerPort": config.metrics_port}] if config.metrics else []
    return {
        "name": "mm",
        "image": config.model_mesh_image,
        "env": env,
        "ports": ports,
        "resources": {"requests": {"cpu": "300m", "memory": "448Mi"}, "limits": {"cpu": "3", "memory": "448Mi"}},
        "volumeMounts": mounts,
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8089}, "initialDelaySeconds": 5, "periodSeconds": 5, "timeoutSeconds": 1},
        "livenessProbe": {
            "httpGet": {"path": "/live", "port": 8089},
            "initialDelaySeconds": 90,
            "periodSeconds": 30,
            "timeoutSeconds": 5,
            "failureThreshold": 2,
        },
        "lifecycle": {"preStop": {"exec": {"command": ["/opt/kserve/mmesh/stop.sh", "wait"]}}},
        "securityContext": DROP_ALL,
    }


def labels_of_models(name: str, spec: Mapping[str, Any], config: ControllerConfig) -> list[str]:
    """By these ModelMesh finds pods for a model."""
    chosen = [found for found in spec["supportedModelFormats"] if found.get("autoSelect")]
    found = {f"mt:{model['name']}" for model in chosen}
    found |= {f"mt:{model['name']}:{model['version']}" for model in chosen if "version" in model}
    protocols = spec.get("protocolVersions") or []
    found |= {f"pv:{protocol}" for protocol in protocols}
    found |= {"pv:v2"} if config.rest_proxy and "grpc-v2" in protocols else set()
    return sorted(found | {f"rt:{name}"})


def rest_proxy(config: ControllerConfig) -> dict[str, Any]:
    """It turns REST into gRPC."""
    return {
        "name": "rest-proxy",
        "image": config.rest_proxy_image,
        "env": _env(
            REST_PROXY_LISTEN_PORT=config.rest_proxy_port,
            REST_PROXY_GRPC_PORT=config.service_port,
            REST_PROXY_USE_TLS="false",
            REST_PROXY_GRPC_MAX_MSG_SIZE_BYTES=config.max_message_bytes,
            REST_PROXY_SKIP_VERIFY="false",
        ),
        "ports": [{"name": "http", "containerPort": config.rest_proxy_port}],
        "resources": {"requests": {"cpu": "50m", "memory": "96Mi"}, "limits": {"cpu": "1", "memory": "512Mi"}},
    }


def puller(spec: Mapping[str, Any], claims: Sequence[str], config: ControllerConfig) -> dict[str, Any]:
    """The storage helper: it pulls, and calls the adapter with paths."""
    return {
        "name": "puller",
        "image": config.storage_helper_image,
        "command": ["/opt/app/puller"],
        "env": _env(
            PORT=PULLER_PORT,
            MODEL_SERVER_ENDPOINT=f"port:{endpoints.port(spec, 'grpcEndpoint')}",
            ROOT_MODEL_DIR="/models",
            STORAGE_CONFIG_DIR="/storage-config",
            PVC_MOUNTS_DIR="/pvc_mounts",
        ),
        "ports": [{"name": "grpc", "containerPort": PULLER_PORT}],
        "resources": _helper_resources(),
        "volumeMounts": [MODELS, SECRET, *claim_mounts(claims)],
    }


def built_in_adapter(
    spec: Mapping[str, Any], annotations: Mapping[str, str], claims: Sequence[str], config: ControllerConfig
) -> dict[str, Any]:
    """A container from the image of the storage helper; `builtInAdapter.env` beats what the controller sets."""
    adapter = spec["builtInAdapter"]
    name, port = adapter["serverType"], adapter.get("runtimeManagementPort", 0)
    (image,) = [container["image"] for container in spec["containers"] if container["name"] == name]
    env = _env(
        ADAPTER_PORT=endpoints.port(spec, "grpcEndpoint", "port:8085"),
        RUNTIME_PORT=port,
        RUNTIME_DATA_ENDPOINT=spec.get("grpcDataEndpoint") or f"port:{port}",
    )
    env += [{"name": "CONTAINER_MEM_REQ_BYTES", "valueFrom": {"resourceFieldRef": {"containerName": name, "resource": "requests.memory"}}}]
    env += _env(
        MEM_BUFFER_BYTES=adapter.get("memBufferBytes", 0),
        LOADTIME_TIMEOUT=adapter.get("modelLoadingTimeoutMillis", 0),
        USE_EMBEDDED_PULLER="true",
        RUNTIME_VERSION=image.partition(":")[2],
    )
    names = {"LOADING_CONCURRENCY": "maxLoadingConcurrency", "LIMIT_PER_MODEL_CONCURRENCY": "perModelConcurrencyLimit"}
    env += _env(**{name: annotations[annotation] for name, annotation in names.items() if annotation in annotations})
    made = {entry["name"]: entry for entry in env} | {entry["name"]: entry for entry in adapter.get("env") or ()}
    return {
        "name": f"{name}-adapter",
        "image": config.storage_helper_image,
        "command": [f"/opt/app/{name}-adapter"],
        "env": list(made.values()),
        "resources": _helper_resources(),
        "volumeMounts": [MODELS, *claim_mounts(claims), SECRET],
        "lifecycle": PRE_STOP,
        "securityContext": DROP_ALL,
    }


def claim_mounts(claims: Sequence[str]) -> list[dict[str, Any]]:
    """Every claim of the storage secret, in every container that sees models."""
    return [{"name": claim, "mountPath": f"/pvc_mounts/{claim}", "readOnly": True} for claim in claims]


def _helper_resources() -> dict[str, Any]:
    return {"requests": {"cpu": "50m", "memory": "96Mi"}, "limits": {"cpu": "2", "memory": "512Mi"}}


def _env(**values: object) -> list[dict[str, Any]]:
    return [{"name": name, "value": str(value)} for name, value in values.items()]


def _fields(**paths: str) -> list[dict[str, Any]]:
    return [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in paths.items()]
