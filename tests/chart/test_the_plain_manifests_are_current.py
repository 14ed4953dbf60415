"""`deploy/manifests`: what the chart renders now, and what the real kustomize makes of it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chart import install, kustomize, manifests
from tests.chart.manifests import FOLDERS, MANIFESTS, Folder
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


def test_each_folder_stands_in_the_page() -> None:
    page = (MANIFESTS / "README.md").read_text()

    assert [folder.name for folder in FOLDERS if f"[{folder.name}/]({folder.name})" not in page] == []
