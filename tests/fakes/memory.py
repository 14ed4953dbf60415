"""Memory of which nothing is told, as without a reporter beside Triton."""

from __future__ import annotations

from collections.abc import Callable

from adapter.records import Measure
from adapter.settings.capacity import CapacitySettings


class UntoldMemory:
    """As `ports.Memory`."""

    notice: str | None = None

    def follow(
        self, on_measured: Callable[[str, Measure], None], booked_bytes: Callable[[], int | None], on_look: Callable[[], None]
    ) -> None:
        """Nothing comes."""

    def moved(self, model_id: str, state: str, size_bytes: int) -> None:
        """Nothing is seen."""

    def is_unsettled(self, model_id: str) -> bool:
        """No."""
        return False

    async def settled(self, model_id: str | None = None) -> None:
        """At once."""

    def check(self, size_bytes: int = 0, gpus: int = 0) -> None:
        """There is enough."""

    def in_force(self, configured: CapacitySettings) -> CapacitySettings:
        """As configured."""
        return configured
