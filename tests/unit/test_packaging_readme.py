"""The README's tables and diagram are made from the code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

GENERATE = Path(__file__).parents[2] / "scripts" / "generate.py"


def generate(readme: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the script over another README."""
    source = f"import sys, pathlib; sys.path.insert(0, {str(GENERATE.parent)!r}); import generate; "
    source += f"generate.README = pathlib.Path({str(readme)!r}); generate.main()"
    return subprocess.run([sys.executable, "-B", "-c", source, *arguments], capture_output=True, text=True, check=False)


def test_the_readme_is_current() -> None:
    """Otherwise: `scripts/fix`."""
    result = subprocess.run([sys.executable, "-B", str(GENERATE), "--check"], capture_output=True, text=True, check=False)

    assert (result.returncode, result.stderr) == (0, "")


def test_blocks_are_written_and_the_rest_is_kept(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    names = ("settings", "errors", "metrics", "states")
    readme.write_text("# Title\n" + "".join(f"before {name}\n<!-- generated: {name} -->\nold\n<!-- end -->\n" for name in names) + "last\n")

    stale = generate(readme, "--check")
    written = generate(readme)
    current = generate(readme, "--check")
    text = readme.read_text()

    assert (stale.returncode, written.returncode, current.returncode) == (1, 0, 0)
    assert "scripts/fix" in stale.stderr
    assert text.startswith("# Title\nbefore settings\n") and text.endswith("last\n") and "\nold\n" not in text
    assert "`ADAPTER_PORT`" in text and "`INVALID_ARGUMENT`" in text and "`triton_adapter_models`" in text and "ABSENT --> PULLING" in text


def test_a_block_that_is_unknown_or_missing_is_named(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("<!-- generated: weather -->\n<!-- end -->\n")

    result = generate(readme)

    assert result.returncode == 1
    assert "weather" in result.stderr and "settings" in result.stderr
