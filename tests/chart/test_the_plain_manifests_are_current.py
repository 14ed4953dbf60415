"""`deploy/manifests`: what the chart renders now."""

from __future__ import annotations

from tests.chart import manifests
from tests.chart.manifests import FOLDERS, MANIFESTS


def test_the_files_are_those_that_the_chart_renders_now() -> None:
    """Else: scripts/render."""
    wanted = manifests.files()

    assert {str(path) for path, text in wanted.items() if not path.exists() or path.read_text() != text} == set()
    assert manifests.stale(wanted) == []


def test_each_folder_stands_in_the_page() -> None:
    page = (MANIFESTS / "README.md").read_text()

    assert [folder for folder in FOLDERS if f"[{folder}/]({folder})" not in page] == []
