"""
Whether a model that should be loaded is still what a load asks for, and whether Triton serves it.

One listing and one question to Triton; nothing is pulled, and nothing is changed.
"""

from __future__ import annotations

import asyncio
from enum import Enum

import structlog

from adapter.errors import AdapterError, SourceNotFound, SourceUnavailable
from adapter.inventory import is_untouched
from adapter.lifecycle.operation import Model, Operation
from adapter.lifecycle.planning import Planning
from adapter.lifecycle.states import State
from adapter.model import ModelSpec
from adapter.ports import Neighbours
from adapter.settings import CapacitySettings

LOOK_SECONDS = 5.0
"""
Longest look into storage for a model that serves already, and never more than a third of the budget.
A store that hangs must leave time for the answer; most listings take well below a second.
"""

log = structlog.stdlib.get_logger(__name__)


class Standing(Enum):
    """How a model stands to what is asked for."""

    SERVES = "Triton serves what is asked for"
    PLACED = "what is asked for is placed, but this Triton never had it"
    OTHER = "it is something else, or nobody can tell"


class Checking:
    """Asks storage and Triton."""

    def __init__(self, *, neighbours: Neighbours, capacity: CapacitySettings, planning: Planning) -> None:
        self._store = neighbours.store
        self._repository = neighbours.repository
        self._server = neighbours.server
        self._digests = neighbours.journal.digests
        self._planning = planning
        self._look_seconds = min(LOOK_SECONDS, capacity.budget_seconds / 3)

    async def standing(self, operation: Operation, spec: ModelSpec) -> Standing:
        """
        Of a model that is LOADED or LOST. Equal is: same type, path and key, and one listing shows the same content.

        Without versions no listing does. Storage or its configuration that cannot be asked, or does not answer, is no reason to
        stop serving; for what Triton has lost, only a storage that is away is none. Triton is asked last: its answer is the one
        that grows old.
        """
        model = operation.model
        if model.content is None or model.content.spec != self._digests.of_spec(spec):
            return Standing.OTHER
        failure: AdapterError | TimeoutError | None = None
        try:
            async with asyncio.timeout(self._look_seconds):
                stored = await self._store.open(spec, operation.waits)
            if not stored.listing.is_versioned or await self._planning.content(spec, stored.listing, self._digests) != model.content:
                return Standing.OTHER
        except SourceNotFound:
            return Standing.OTHER
        except (AdapterError, TimeoutError) as error:
            failure = error
        standing = await self._in_triton(model)
        if failure is not None:
            if standing is Standing.PLACED and not _is_away(failure):
                return Standing.OTHER
            cause = str(failure) or f"storage has not listed the model within {self._look_seconds:g} s"
            log.warning("listing.skipped", model_id=spec.model_id, cause=cause)
        return standing

    async def _in_triton(self, model: Model) -> Standing:
        """What can be sent again was compared by whoever found it LOST; of a LOADED model it is compared here."""
        if model.state is State.LOST:
            return Standing.PLACED
        if await self._server.is_ready(model.model_id):
            return Standing.SERVES
        if not is_untouched(await self._server.index((model.model_id,))):
            return Standing.OTHER
        found = await self._repository.identities((model.model_id,))
        return Standing.PLACED if model.placed is not None and found.get(model.model_id) == model.placed else Standing.OTHER


def _is_away(failure: AdapterError | TimeoutError) -> bool:
    return isinstance(failure, TimeoutError) or (isinstance(failure, SourceUnavailable) and failure.can_pass)
