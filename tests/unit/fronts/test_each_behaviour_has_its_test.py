"""The table of what the fronts do names tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "fronts"
_NAMED = re.compile(r"\| `(test_\w+\.py)::(test_\w+)` \|$")


def test_the_table_names_tests_that_exist() -> None:
    rows = [line for line in (FOLDER / "README.md").read_text().splitlines() if line.startswith("| ") and "shown by" not in line]
    named = [_NAMED.search(row) for row in rows]
    assert len(rows) > 30
    assert [row for row, found in zip(rows, named, strict=True) if found is None] == []
    for found in filter(None, named):
        tree = ast.parse((FOLDER / found[1]).read_text())
        assert found[2] in {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}, found[0]
