"""The "restricted" Pod Security Standard: rules for what a runtime brings into its pod."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

VOLUMES = frozenset({"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"})


def restricted(runtime: Mapping[str, Any]) -> list[str]:
    """What the "restricted" Pod Security Standard says against the containers and volumes of a runtime."""
    spec = runtime["spec"]
    found = [f"the volume {volume['name']} is not restricted" for volume in spec.get("volumes") or () if not volume.keys() & VOLUMES]
    for container in spec["containers"]:
        context = container.get("securityContext") or {}
        capabilities = context.get("capabilities") or {}
        rules = {
            "runAsNonRoot": context.get("runAsNonRoot") is True,
            "runAsUser": context.get("runAsUser") != 0,
            "allowPrivilegeEscalation": context.get("allowPrivilegeEscalation") is False,
            "privileged": not context.get("privileged"),
            "capabilities.drop": "ALL" in (capabilities.get("drop") or ()),
            "capabilities.add": not set(capabilities.get("add") or ()) - {"NET_BIND_SERVICE"},
            "seccompProfile": (context.get("seccompProfile") or {}).get("type") in ("RuntimeDefault", "Localhost"),
            "procMount": context.get("procMount", "Default") == "Default",
            "hostPort": not any(port.get("hostPort") for port in container.get("ports") or ()),
        }
        found += [f"{container['name']}: {rule} is not restricted" for rule, holds in rules.items() if not holds]
    return found
