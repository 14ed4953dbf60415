"""The half of a load that storage and the volume do: compare with storage, list, plan, pull, place. Triton is not asked here."""

from __future__ import annotations

import asyncio
from typing import Literal

import structlog

from adapter.errors import AdapterError, SourceChanged, SourceNotFound, SourceUnavailable
from adapter.lifecycle.crashes import CrashCounts
from adapter.lifecycle.operation import Operation
from adapter.lifecycle.planning import Planning
from adapter.lifecycle.sizes import Sizes
from adapter.model import Layout, ModelSpec
from adapter.ports import Ports

PULL_ATTEMPTS = 3
PAUSE_BEFORE_NEW_LISTING_SECONDS = 0.5
LOOK_SECONDS = 5.0
"""
Longest look into storage for a model that serves already, and never more than a third of the budget.
A store that hangs must leave time for the answer; most listings take well below a second.
"""

log = structlog.stdlib.get_logger(__name__)


class Fetching:
    """Brings the files of models to where Triton sees them."""

    def __init__(self, *, ports: Ports, sizes: Sizes, planning: Planning, crashes: CrashCounts, budget_seconds: float) -> None:
        self._store = ports.store
        self._repository = ports.repository
        self._digests = ports.journal.digests
        self._sizes = sizes
        self._planning = planning
        self._crashes = crashes
        self._look_seconds = min(LOOK_SECONDS, budget_seconds / 3)

    async def compared(self, operation: Operation, spec: ModelSpec) -> Literal["equal", "other", "away", "unknown"]:
        """
        Whether the model is what is asked for: same type, path and key, and one listing shows the same content.

        Without versions no listing does. `away`: storage does not answer now. `unknown`: it, or its configuration, refuses.
        """
        content = operation.model.content
        if content is None or content.spec != self._digests.of_spec(spec):
            return "other"
        try:
            async with asyncio.timeout(self._look_seconds):
                stored = await self._store.open(spec, operation.waits)
        except SourceNotFound:
            return "other"
        except (AdapterError, TimeoutError) as error:
            cause = str(error) or f"storage has not listed the model within {self._look_seconds:g} s"
            log.warning("listing.skipped", model_id=spec.model_id, cause=cause)
            is_away = isinstance(error, TimeoutError) or (isinstance(error, SourceUnavailable) and error.can_pass)
            return "away" if is_away else "unknown"
        is_equal = stored.listing.is_versioned and await self._planning.content(spec, stored.listing, self._digests) == content
        return "equal" if is_equal else "other"

    async def fetch(self, operation: Operation, spec: ModelSpec) -> Layout:
        """
        List, plan, book, pull and place. What changes during the pull is listed anew.

        Raises:
            AdapterError: the model stays PULLING, and what is placed is to be removed.
        """
        for _ in range(PULL_ATTEMPTS - 1):
            try:
                return await self._fetch_once(operation, spec)
            except SourceChanged as error:
                log.info("pull.restarted", model_id=spec.model_id, cause=error.text)
            with operation.step("list"):
                await asyncio.sleep(PAUSE_BEFORE_NEW_LISTING_SECONDS)
        return await self._fetch_once(operation, spec)

    async def _fetch_once(self, operation: Operation, spec: ModelSpec) -> Layout:
        model = operation.model
        with operation.step("list"):
            stored = await self._store.open(spec, operation.waits)
            layout = await self._planning.layout(spec, stored)
        content = await self._planning.content(spec, stored.listing, self._digests)
        self._crashes.check(content)
        self._sizes.admit(model, spec, layout.size_bytes, content)
        model.spec, model.content = spec, content
        with operation.step("pull"):
            model.artifact = await stored.fetch(layout.files)
        with operation.step("place"):
            layout = await self._planning.finished(layout, stored, model.artifact)
            with operation.waits.on("the volume to take the model's files"):
                model.placed = await self._repository.place(model.model_id, layout, model.artifact)
        return layout
