"""Which cases of a table run with every change; the others carry the marker `long`, and run where there is time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def long_but(cases: Iterable[Any], *here: Any) -> list[Any]:
    """The cases, of which all but those named here take long. A name that is no case is a mistake."""
    known = list(cases)
    assert not [name for name in here if name not in known]
    rows = [case if isinstance(case, tuple) else (case,) for case in known]
    return [pytest.param(*row, marks=() if case in here else pytest.mark.long) for case, row in zip(known, rows, strict=True)]
