"""How many examples each fuzz test has: `--fuzz`. In continuous integration they are the same ones in each run."""

import pytest
from hypothesis import HealthCheck, settings

from tests.fuzz import fuzzing


def pytest_configure(config: pytest.Config) -> None:
    """Before the modules here are imported. With `--hypothesis-seed` the examples are those of that seed."""
    settings.register_profile(
        fuzzing.PROFILE,
        max_examples=config.getoption("--fuzz"),
        derandomize=config.getoption("--hypothesis-seed", None) is None,
        database=None,
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.large_base_example],
    )
