"""Helm for the tests of the chart."""

from __future__ import annotations

import pytest

from tests.chart import install
from tests.real import parts


@pytest.fixture(scope="session", autouse=True)
def helm() -> None:
    """A machine that has no Helm and cannot build it skips these tests."""
    parts.or_skip(install.helm)
