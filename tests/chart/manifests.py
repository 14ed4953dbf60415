"""
The plain manifests of `deploy/manifests`, rendered from the chart: `python -m tests.chart.manifests` writes them.

A folder is a set of values. What belongs to Helm alone (its labels, its tests, the release's namespace) is left out. An overlay
holds what differs from its base, as a JSON patch.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.chart.render import readable, render

MANIFESTS = Path(__file__).parents[2] / "deploy" / "manifests"
NAME = "modelmesh-triton-adapter"
OF_HELM = ("helm.sh/chart", "app.kubernetes.io/managed-by", "app.kubernetes.io/instance")
HOOK = "helm.sh/hook"
OF_TESTS = ("Service", "ServiceAccount", "Role", "RoleBinding")
"""The headless Service and the rights of `helm test`."""
ALWAYS: Mapping[str, object] = {"fullnameOverride": NAME}
HEADER = "# Rendered from the chart with {values}; scripts/render writes this file."
Resource = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Folder:
    """One kustomization."""

    name: str
    values: Mapping[str, object] = field(default_factory=dict)
    base: str = ""
    """An overlay: the folder that it changes."""

    def resources(self) -> list[Resource]:
        """What the chart renders with these values, without what is Helm's."""
        rendered = render(sets={**ALWAYS, **self.values})
        kept = [each for each in rendered if HOOK not in each["metadata"].get("annotations", {}) and each["kind"] not in OF_TESTS]
        return [without_helm(each) for each in kept]


FOLDERS = (
    Folder(name="base"),
    Folder(name="built-in-adapter", values={"runtime.mode": "builtInAdapter"}),
    Folder(
        name="gpu",
        base="base",
        values={
            "capacity": {"memory": "81559Mi", "buffer": "2Gi"},
            "triton.resources": {
                "requests": {"cpu": "4", "memory": "32Gi"},
                "limits": {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "1"},
            },
        },
    ),
)


def main() -> int:
    """Write every file that is not as it should be, and delete files that no folder has."""
    wanted = files()
    for path, text in wanted.items():
        if not path.exists() or path.read_text() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            print(f"manifests: {path.relative_to(MANIFESTS)}")
    for path in stale(wanted):
        path.unlink()
        print(f"manifests: {path.relative_to(MANIFESTS)} is gone")
    return 0


def files() -> dict[Path, str]:
    """Path → text, of all of them."""
    return {MANIFESTS / folder.name / name: text for folder in FOLDERS for name, text in _files_of(folder)}


def stale(wanted: Mapping[Path, str]) -> list[Path]:
    """Files of the manifests that nothing writes."""
    return [path for path in MANIFESTS.rglob("*.yaml") if path not in wanted]


def without_helm(resource: Resource) -> Resource:
    """An object as it is without a release: its namespace is the user's to name."""
    bare = copy.deepcopy(resource)
    metadata = bare["metadata"]
    metadata.pop("namespace", None)
    for label in OF_HELM:
        metadata.get("labels", {}).pop(label, None)
    return bare


def operations(old: object, new: object, path: str = "") -> Iterator[dict[str, Any]]:
    """A JSON patch (RFC 6902) from one to the other. Lists of one length are compared item by item."""
    if isinstance(old, dict) and isinstance(new, dict):
        yield from ({"op": "remove", "path": _below(path, name)} for name in old if name not in new)
        for name, value in new.items():
            if name in old:
                yield from operations(old[name], value, _below(path, name))
            else:
                yield {"op": "add", "path": _below(path, name), "value": value}
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from operations(before, after, _below(path, str(number)))
    elif old != new:
        yield {"op": "replace", "path": path, "value": new}


def _files_of(folder: Folder) -> Iterator[tuple[str, str]]:
    header = HEADER.format(values=_told(folder.values) or "its default values")
    resources = folder.resources()
    kustomization: Resource = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
    if folder.base:
        kustomization["resources"] = [f"../{folder.base}"]
        kustomization["patches"] = list(_patches(folder, resources))
    else:
        kustomization["resources"] = [_file_name(each) for each in resources]
        yield from ((_file_name(each), yaml_of(header, each)) for each in resources)
    yield "kustomization.yaml", yaml_of(header, kustomization)


def _patches(folder: Folder, resources: Sequence[Resource]) -> Iterator[Resource]:
    (base,) = (each for each in FOLDERS if each.name == folder.base)
    for before, after in zip(base.resources(), resources, strict=True):
        target = {"kind": before["kind"], "name": before["metadata"]["name"]}
        if found := list(operations(before, after)):
            yield {"target": target, "patch": yaml.safe_dump(found, sort_keys=False, width=1000)}


def _file_name(resource: Resource) -> str:
    return f"{resource['kind'].lower()}.yaml"


def _told(values: Mapping[str, object]) -> str:
    return ", ".join(
        f"{name}={yaml.safe_dump(value, default_flow_style=True, width=1000).splitlines()[0]}" for name, value in values.items()
    )


def _below(path: str, name: str) -> str:
    return f"{path}/{name.replace('~', '~0').replace('/', '~1')}"


def yaml_of(header: str, resource: Resource) -> str:
    """One file."""
    return f"{header}\n{readable(resource, width=1000)}"


if __name__ == "__main__":
    sys.exit(main())
