"""The tables and the diagram of the documents are made from the code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

GENERATE = Path(__file__).parents[2] / "scripts" / "generate.py"
BLOCKS = {
    "README.md": ("states",),
    "deploy/docs/models.md": ("parameters",),
    "deploy/docs/settings.md": ("settings",),
    "deploy/docs/calls.md": ("errors", "metrics"),
    "deploy/docs/observability.md": ("alerts",),
    "tests/README.md": ("minutes",),
    "tests/prove/net/README.md": ("mistakes",),
    "deploy/docs/performance.md": ("machine", "figures"),
}


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    """All files with blocks, none of them current."""
    for name, blocks in BLOCKS.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("# Title\n" + "".join(f"before\n<!-- generated: {block} -->\nold\n<!-- end -->\n" for block in blocks) + "last\n")
    return tmp_path


def generate(top: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the script over other documents."""
    source = (
        f"import sys, pathlib; sys.path.insert(0, {str(GENERATE.parent)!r}); import generate; generate.main(pathlib.Path({str(top)!r}))"
    )
    return subprocess.run([sys.executable, "-B", "-c", source, *arguments], capture_output=True, text=True, check=False)


def test_the_documents_are_current() -> None:
    """Otherwise: `scripts/fix`."""
    result = subprocess.run([sys.executable, "-B", str(GENERATE), "--check"], capture_output=True, text=True, check=False)

    assert (result.returncode, result.stderr) == (0, "")


def test_blocks_are_written_and_the_rest_is_kept(documents: Path) -> None:
    stale = generate(documents, "--check")
    written = generate(documents)
    current = generate(documents, "--check")
    texts = {name: (documents / name).read_text() for name in BLOCKS}

    assert (stale.returncode, written.returncode, current.returncode) == (1, 0, 0)
    assert all(text.startswith("# Title\nbefore\n") and text.endswith("last\n") and "\nold\n" not in text for text in texts.values())
    assert "ABSENT --> PULLING" in texts["README.md"]
    assert "`adapter.topModel`" in texts["deploy/docs/models.md"]
    assert "`ADAPTER_PORT`" in texts["deploy/docs/settings.md"]
    assert "`INVALID_ARGUMENT`" in texts["deploy/docs/calls.md"] and "`triton_adapter_models`" in texts["deploy/docs/calls.md"]
