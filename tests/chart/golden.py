"""
Renders of all values files, as they are committed in `golden/`: `python -m tests.chart.golden` writes them again.

That of the default values is whole; of the others there is what differs from it. So a reader sees what a
value does, and a change of the chart as what it changes in the objects. The texts of the dashboard, of
the alerts and of the test are left out: they are in the chart's `files/`, and have tests of their own.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

from tests.chart import matrix, render

GOLDEN = Path(__file__).with_name("golden")
WHOLE = "default"
ELSEWHERE = "left out: it is in files/"


def path(case: matrix.Case) -> Path:
    """Where its render is kept."""
    return GOLDEN / (f"{WHOLE}.yaml" if case.name == WHOLE else f"{case.name}.diff")


def rendered(case: matrix.Case) -> str:
    """As it should be there: the objects in Helm's order, keys in the order of the templates."""
    if case.name == WHOLE:
        return _objects(case)
    whole, own = (_objects(found).splitlines() for found in (matrix.case(WHOLE), case))
    changes = difflib.unified_diff(whole, own, f"{WHOLE}.yaml", f"{case.name}.yaml", lineterm="", n=2)
    return "".join(f"{'@@' if line.startswith('@@') else line}\n" for line in changes)


def write() -> None:
    """Write all, and remove what belongs to no values file."""
    GOLDEN.mkdir(exist_ok=True)
    for case in matrix.values():
        path(case).write_text(rendered(case))
    for stale in set(GOLDEN.iterdir()) - {path(case) for case in matrix.values()}:
        stale.unlink()


def _objects(case: matrix.Case) -> str:
    return render.readable(*map(_short, case.objects()), width=140)


def _short(found: dict[str, Any]) -> dict[str, Any]:
    if found["kind"] == "PrometheusRule":
        groups = [{"name": group["name"], "rules": [rule["alert"] for rule in group["rules"]]} for group in found["spec"]["groups"]]
        return found | {"spec": {"groups": groups}}
    if found["kind"] == "Pod":
        found["spec"]["containers"][0]["args"][0] = ELSEWHERE
    if found["metadata"]["name"].endswith("-dashboard"):
        return found | {"data": dict.fromkeys(found["data"], ELSEWHERE)}
    return found


if __name__ == "__main__":
    write()
