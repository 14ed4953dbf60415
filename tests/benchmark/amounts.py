"""How much of each, and where."""

from __future__ import annotations

from dataclasses import dataclass

from tests.benchmark.over_spi import GO
from tests.benchmark.rig import PEERS, Client, Place

ALTERNATIVES = (*PEERS, GO)


@dataclass(frozen=True)
class Amounts:
    """Of a whole run."""

    place: Place
    rounds: int = 3
    size: str = "2GiB"
    """Of the large object."""
    files: int = 1000
    """Of 64 KiB."""
    known: tuple[int, ...] = (10, 5000)
    """Models, for the own time of a load."""
    light_models: int = 1000
    """On the real Triton."""
    clients: tuple[str, ...] = ()
    """Alternatives; empty for all."""

    @property
    def peers(self) -> list[Client]:
        """Those that are wanted."""
        return [peer for peer in ALTERNATIVES if not self.clients or peer.name in self.clients]
