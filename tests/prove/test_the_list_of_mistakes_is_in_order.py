"""Each planted mistake fits today's code; each package has some."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.prove.net.mistakes import MISTAKES, TOP, Mistake
from tests.simulation.mistakes import MISTAKES as OF_SIMULATION

NO_RULES_OF_THEIR_OWN = {"_pb"}


@pytest.mark.parametrize("mistake", (*MISTAKES, *OF_SIMULATION.values()), ids=lambda mistake: mistake.name)
def test_a_mistake_fits_todays_code(mistake: Mistake) -> None:
    path = TOP / mistake.file
    changed = mistake.applied(path.read_text())

    if path.suffix == ".py":
        compile(changed, mistake.file, "exec")
    assert [name for name in mistake.first if not (TOP / "tests" / name).is_file()] == []


def test_every_package_has_some() -> None:
    packages = {path.parent.name for path in (TOP / "adapter").glob("*/__init__.py")} - NO_RULES_OF_THEIR_OWN

    assert packages - {mistake.package for mistake in MISTAKES} == set()
    assert len(MISTAKES) >= 60
    assert [name for name, count in Counter(mistake.name for mistake in MISTAKES).items() if count > 1] == []
