"""Each value of `values.yaml` is set by a values file here; that the schema knows it is in `test_the_chart_is_in_order.py`."""

from __future__ import annotations

from typing import Any

import yaml

from tests.chart import matrix, render

VALUES: dict[str, Any] = yaml.safe_load((render.CHART / "values.yaml").read_text())


def test_every_value_is_set_by_a_values_file() -> None:
    """Parts of a format and of a security context are, in one of them."""
    tried = {path for case in (*matrix.values(), *matrix.refused()) for path in matrix.leaves(yaml.safe_load(case.path.read_text()) or {})}
    wanted = {path for path in matrix.leaves(VALUES) if ".securityContext." not in path and not path.startswith("formats.")}
    wanted |= {"triton.securityContext", "adapter.securityContext"} | {f"formats.{name}" for name in VALUES["formats"]}

    assert sorted(path for path in wanted if not any(f"{each}.".startswith(f"{path}.") for each in tried)) == []
