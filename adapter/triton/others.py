"""
Models in Triton that somebody else has put where Triton finds them, or that came with a request: loaded and unloaded by name.

They share Triton's load threads and its index with the adapter's own models, so the same rooms ask for them.
"""

from __future__ import annotations

from adapter.model import Overrides
from adapter.triton.loads import Loads
from adapter.triton.unloads import Unloads


class OthersInTriton:
    """As `ports.OtherModels`."""

    def __init__(self, loads: Loads, unloads: Unloads) -> None:
        self._loads = loads
        self._unloads = unloads

    async def load(self, name: str, overrides: Overrides) -> None:
        """As `OtherModels`."""
        await self._loads.load(name, _nothing, overrides=overrides)

    async def unload(self, name: str, *, has_dependents: bool) -> None:
        """As `OtherModels`."""
        await self._unloads.free_of_others(name, has_dependents=has_dependents)


def _nothing() -> None:
    """Nobody keeps a book of them."""
