"""Each values file of the tests: every object passes the strict look of a real API server, and so do the pods that follow."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chart.admin import operator
from tests.chart.admin.admin import CHART, Admin
from tests.chart.render import VALUES

FILES = sorted(VALUES.glob("**/*.yaml"))


@pytest.mark.parametrize("values", FILES, ids=lambda path: path.stem)
def test_the_objects_and_their_pods_are_accepted(admin: Admin, values: Path) -> None:
    """kubectl refuses unknown fields, where Helm would warn and lose them."""
    said = admin.says(f"""
        helm template triton-adapter {CHART} --namespace "$NAMESPACE" --values {values} --no-hooks \\
          --api-versions monitoring.coreos.com/v1 |
        kubectl apply --namespace "$NAMESPACE" --validate=strict --filename -
    """)

    assert "created" in said
    for deployment in operator.turn(admin.api, admin.namespace).values():
        assert deployment["spec"]["template"]["spec"]["containers"]
