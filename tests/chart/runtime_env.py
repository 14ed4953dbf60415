"""What the containers of a rendered runtime are given, as the adapter's settings and as numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adapter.settings import Settings
from adapter.units import parse_bytes
from tests.chart.controller import assemble
from tests.chart.pod.env import Objects, environment

Resource = Mapping[str, Any]


def containers(runtime: Resource) -> dict[str, dict[str, Any]]:
    """Those that the runtime declares, by name."""
    return {container["name"]: container for container in runtime["spec"]["containers"]}


def adapter_env(runtime: Resource, secrets: Objects | None = None) -> dict[str, str]:
    """
    The adapter's variables as Kubernetes fills them in, whoever adds its container.

    Raises:
        AssemblyError: the controller would refuse the runtime.
        CannotStartError: a variable is of a Secret that is not there.
    """
    pod = assemble(runtime)["spec"]
    adapter = next(container for container in pod["containers"] if container["name"] == "triton-adapter")
    return environment(adapter, pod, secrets or {}, {})


def settings(runtime: Resource) -> Settings:
    """Raises what the adapter's start would."""
    return Settings.from_env(adapter_env(runtime))


def volume_bytes(runtime: Resource, mount_path: str, container: str = "triton-adapter") -> int:
    """The limit of the emptyDir that a container has at a path."""
    mounts = containers(runtime)[container]["volumeMounts"]
    name = next(mount["name"] for mount in mounts if mount["mountPath"] == mount_path)
    volume = next(volume for volume in runtime["spec"]["volumes"] if volume["name"] == name)
    return parse_bytes(volume["emptyDir"]["sizeLimit"])
