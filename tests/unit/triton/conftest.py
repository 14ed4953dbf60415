"""A scripted Triton for the tests of this folder that run in virtual time."""

from __future__ import annotations

import pytest

from tests.unit.triton.scripted import ScriptedRepository, ScriptedTriton


@pytest.fixture
def triton() -> ScriptedTriton:
    return ScriptedTriton(ScriptedRepository())
