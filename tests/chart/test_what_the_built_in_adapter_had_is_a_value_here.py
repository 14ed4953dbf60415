"""The table of variables in `deploy/docs/migrating.md`: each value of the chart sets the variable beside it, and the defaults are these."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from adapter.units import parse_bytes
from tests.chart.controller import assemble
from tests.chart.render import CHART, render, the_runtime
from tests.chart.soundness import ADAPTER, PodView

PAGE = Path(__file__).parents[2] / "deploy" / "docs" / "migrating.md"
ROW = re.compile(r"\| .+? \| `([A-Z_]+)` \| `([\w.]+)` \| .*? \| (\S+) \|")
ROWS = [row for row in ROW.findall(PAGE.read_text()) if row[1] != "adapter.extraEnv"]
OTHERS = {
    "CONTAINER_MEM_REQ_BYTES": ("16Gi", str(16 * 2**30)),
    "MEM_BUFFER_BYTES": ("1Gi", str(2**30)),
    "LOADTIME_TIMEOUT": (45, "45000"),
    "CACHE_MAX_BYTES": ("10Gi", str(9 * 2**30)),
    "MODELSIZE_MULTIPLIER": (2, "2"),
    "LOADING_CONCURRENCY": (4, "4"),
}
"""Another value, and what the adapter is told then; of all others 12."""


def test_the_table_is_there() -> None:
    assert len(ROWS) > 5
    assert set(OTHERS) <= {variable for variable, _, _ in ROWS}


def test_the_values_set_the_variables() -> None:
    sets: dict[str, object] = {}
    for variable, value, _ in ROWS:
        sets[value], _ = OTHERS.get(variable, (12, "12"))
        if value.startswith("triton.resources"):
            sets["triton.resources.limits.memory"] = sets[value]

    env = PodView(assemble(the_runtime(render(sets=sets))), {}).env(ADAPTER)

    told = {variable: str(parse_bytes(env[variable])) if variable.endswith("_BYTES") else env[variable] for variable, _, _ in ROWS}
    assert told == {variable: OTHERS.get(variable, (12, "12"))[1] for variable, _, _ in ROWS}


@pytest.mark.parametrize(("variable", "value", "default"), ROWS)
def test_the_default_is_the_one_that_the_table_tells(variable: str, value: str, default: str) -> None:
    found = yaml.safe_load((CHART / "values.yaml").read_text())
    for name in value.split("."):
        found = found[name]

    assert str(found) == default
