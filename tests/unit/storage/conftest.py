"""A volume and a store over memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from adapter.volume.volume import Volume
from tests.unit.storage.rigs import StoreRig, make_rig


@pytest.fixture
def rig(tmp_path: Path, volume: Volume) -> Iterator[StoreRig]:
    """A store over an empty bucket in memory."""
    made = make_rig(tmp_path, volume)
    yield made
    made.store.close()
