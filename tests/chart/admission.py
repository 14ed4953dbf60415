"""
What ModelMesh Serving refuses of a runtime before it makes pods: the validator at the begin of each reconcile.

The rules are those of `controllers/servingruntime_validator.go`, kserve/modelmesh-serving v0.11 and v0.12; the words are ours,
and all refusals are told instead of the first one. The webhook, which looks at annotations of autoscaling, is left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

BUILT_IN_SERVER_TYPES = ("mlserver", "ovms", "torchserve", "triton")
CONTAINERS = frozenset({"mm", "puller", "rest-proxy"})
VOLUMES = frozenset({"domain-socket", "etcd-config", "models-dir", "storage-config", "tc-config"})
MOUNTS = VOLUMES - {"models-dir"}
PORT_NAMES = frozenset({"grpc", "http", "prometheus"})
PORTS = frozenset({8080, 8085, 8089, 8090, *range(11881, 11900)})


def validate(runtime: Mapping[str, Any]) -> list[str]:
    """All refusals; empty for a runtime that gets pods."""
    spec = runtime["spec"]
    return [*_adapter(spec), *_containers(spec), *_volumes(spec)]


def _adapter(spec: Mapping[str, Any]) -> Iterator[str]:
    if not (adapter := spec.get("builtInAdapter")):
        return
    name = adapter.get("serverType", "")
    if name not in BUILT_IN_SERVER_TYPES:
        yield f"builtInAdapter.serverType {name!r} is not one of {', '.join(BUILT_IN_SERVER_TYPES)}"
    elif name not in [container["name"] for container in spec["containers"]]:
        yield f"builtInAdapter.serverType {name} needs a container of that name"


def _containers(spec: Mapping[str, Any]) -> Iterator[str]:
    for container in spec["containers"]:
        place = f"container {container['name']}"
        if _is_reserved(container["name"], CONTAINERS):
            yield f"{place}: the name is reserved"
        for field in ("readinessProbe", "lifecycle"):
            if container.get(field) is not None:
                yield f"{place}: {field} belongs to ModelMesh"
        for mount in container.get("volumeMounts") or ():
            if _is_reserved(mount["name"], MOUNTS):
                yield f"{place}: the volume {mount['name']} may not be mounted"
        for port in container.get("ports") or ():
            if _is_reserved(port.get("name", ""), PORT_NAMES):
                yield f"{place}: the port name {port['name']} is reserved"
            if port["containerPort"] in PORTS:
                yield f"{place}: the port {port['containerPort']} is reserved"


def _volumes(spec: Mapping[str, Any]) -> Iterator[str]:
    for volume in spec.get("volumes") or ():
        if _is_reserved(volume["name"], VOLUMES):
            yield f"the volume name {volume['name']} is reserved"


def _is_reserved(name: str, names: Collection[str]) -> bool:
    return name in names or name.startswith("mm-")
