"""`deploy/manifests`: what the chart renders now, and what the real kustomize makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart import install, kustomize, manifests
from tests.chart.manifests import FOLDERS, MANIFESTS, OF_HELM, Folder
from tests.chart.valid import problems
from tests.real import parts

each_folder = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)


def in_order(resources: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(resources, key=lambda each: (each["kind"], each["metadata"]["name"]))


@pytest.fixture(scope="module")
def real_kustomize() -> None:
    parts.or_skip(install.kustomize)


def test_the_files_are_those_that_the_chart_renders_now() -> None:
    """Else: scripts/render."""
    wanted = manifests.files()

    assert {str(path) for path, text in wanted.items() if not path.exists() or path.read_text() != text} == set()
    assert manifests.stale(wanted) == []


@pytest.mark.usefixtures("real_kustomize")
@each_folder
def test_kustomize_gives_the_objects_that_helm_renders(folder: Folder) -> None:
    built = kustomize.build(MANIFESTS / folder.name)

    assert in_order(built) == in_order(folder.resources())
    assert [f"{each['kind']}: {problem}" for each in built for problem in problems(each)] == []


@pytest.mark.usefixtures("real_kustomize")
def test_a_kustomization_of_a_user_names_namespace_and_image(tmp_path: Path) -> None:
    """As the page shows it."""
    page = (MANIFESTS / "README.md").read_text()
    (tmp_path / "kustomization.yaml").write_text(
        page.partition("```yaml\n")[2].partition("```")[0].replace("deploy/manifests", "manifests")
    )
    (tmp_path / "manifests").symlink_to(MANIFESTS)

    built = {each["kind"]: each for each in kustomize.build(tmp_path)}

    runtime = built["ServingRuntime"]
    assert {each["metadata"]["namespace"] for each in built.values()} == {"models"}
    assert [each["image"] for each in runtime["spec"]["containers"] if each["name"] == "triton-adapter"] == [
        "registry.example.com/modelmesh-triton-adapter:0.1.0"
    ]


def test_nothing_of_helm_is_left() -> None:
    """Nor a namespace: that is the user's to name."""
    found = [each for path in MANIFESTS.rglob("*.yaml") for each in yaml.safe_load_all(path.read_text()) if "metadata" in each]
    metadata = [each["metadata"] for each in found]

    assert len(metadata) > len(FOLDERS)
    assert [each["name"] for each in metadata if "namespace" in each or set(OF_HELM) & set(each["labels"])] == []
    assert [path.name for path in MANIFESTS.rglob("*.yaml") if "helm.sh/" in path.read_text()] == []


def test_each_folder_stands_in_the_page() -> None:
    page = (MANIFESTS / "README.md").read_text()

    assert [folder.name for folder in FOLDERS if f"[{folder.name}/]({folder.name})" not in page] == []
