"""
The plain manifests of `deploy/manifests`, rendered from the chart: `python -m tests.chart.manifests` writes them.

A folder is a set of values. What belongs to Helm alone (its labels, its tests, the release's namespace) is left out.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator, Mapping
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


FOLDERS: Mapping[str, Mapping[str, object]] = {
    "base": {},
    "built-in-adapter": {"runtime.mode": "builtInAdapter"},
    "gpu": {
        "capacity": {"memory": "81559Mi", "buffer": "2Gi"},
        "triton.resources": {
            "requests": {"cpu": "4", "memory": "32Gi"},
            "limits": {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "1"},
        },
    },
}
"""Each a kustomization, and its values."""


def resources(folder: str) -> list[Resource]:
    """What the chart renders with the folder's values, without what is Helm's."""
    rendered = render(sets={**ALWAYS, **FOLDERS[folder]})
    kept = [each for each in rendered if HOOK not in each["metadata"].get("annotations", {}) and each["kind"] not in OF_TESTS]
    return [without_helm(each) for each in kept]


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
    return {MANIFESTS / folder / name: text for folder in FOLDERS for name, text in _files_of(folder)}


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


def _files_of(folder: str) -> Iterator[tuple[str, str]]:
    values = ", ".join(
        f"{name}={yaml.safe_dump(value, default_flow_style=True, width=1000).splitlines()[0]}" for name, value in FOLDERS[folder].items()
    )
    made = {f"{each['kind'].lower()}.yaml": each for each in resources(folder)}
    kustomization: Resource = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": list(made)}
    for name, each in (made | {"kustomization.yaml": kustomization}).items():
        yield name, f"{HEADER.format(values=values or 'its default values')}\n{readable(each, width=1000)}"


if __name__ == "__main__":
    sys.exit(main())
