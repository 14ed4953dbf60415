"""The chart's README, which helm-docs makes of README.md.gotmpl and the comments in values.yaml: `python -m tests.chart.readme`."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.chart import install, render


def path() -> Path:
    """Where it is."""
    return render.CHART / "README.md"


def made() -> str:
    """As it should be: a row for each value, in the order of the file; a value without a comment is an error."""
    words = ["--chart-search-root", str(render.CHART), "--sort-values-order", "file", "--log-level", "warning", "--dry-run"]
    done = subprocess.run([install.helm_docs(), *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    return done.stdout.rstrip("\n") + "\n"


if __name__ == "__main__":
    path().write_text(made())
