"""
The half of a load that storage, layout and volume do: compare with storage, list, plan, pull, place. Triton is not asked here.

A layout is planned before anything is pulled, of names and small files. What depends on the content of large files is decided when
they are pulled, before they are placed: storage reads both ends of each such file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import structlog

from adapter.errors import AdapterError, SourceChanged, SourceNotFound, SourceUnavailable
from adapter.layout import rules
from adapter.lifecycle.facts import CrashCounts, Sizes
from adapter.lifecycle.operation import Operation
from adapter.model import Artifact, Content, Layout, Listing, ModelSpec, SourceFile
from adapter.ports import Ports, StoredModel
from adapter.workers import Workers

PULL_ATTEMPTS = 3
PAUSE_BEFORE_NEW_LISTING_SECONDS = 0.5
LOOK_SECONDS = 5.0
"""
Longest look into storage for a model that serves already, and never more than a third of the budget.
A store that hangs must leave time for the answer; most listings take well below a second.
"""
BYTES_OF_AN_ITEM = 40
"""Of config and schema, that take as long as one file: a plan of 8 KiB takes some milliseconds at most."""
THREADS = 2
"""For large models. Nothing is read in them, so no volume can hold them."""

log = structlog.stdlib.get_logger(__name__)


def effort(listing: Listing, contents: Mapping[SourceFile, bytes] | None = None) -> int:
    """Of a plan, or of a digest, in items of `Workers.run_large`."""
    return len(listing.files) + sum(map(len, (contents or {}).values())) // BYTES_OF_AN_ITEM


@dataclass(eq=False)
class Fetching:
    """Brings the files of models to where Triton sees them."""

    ports: Ports
    sizes: Sizes
    crashes: CrashCounts
    budget_seconds: float
    workers: Workers = field(default_factory=lambda: Workers("planning", THREADS))

    async def compared(self, operation: Operation, spec: ModelSpec) -> Literal["equal", "other", "away", "unknown"]:
        """
        Whether the model is what is asked for: same type, path and key, and one listing shows the same content.

        Without versions no listing does. `away`: storage does not answer now. `unknown`: it, or its configuration, refuses.
        """
        content = operation.model.content
        if content is None or content.spec != self.ports.journal.digests.of_spec(spec):
            return "other"
        look_seconds = min(LOOK_SECONDS, self.budget_seconds / 3)
        try:
            async with asyncio.timeout(look_seconds):
                stored = await self.ports.store.open(spec, operation.waits)
        except SourceNotFound:
            return "other"
        except (AdapterError, TimeoutError) as error:
            cause = str(error) or f"storage has not listed the model within {look_seconds:g} s"
            log.warning("listing.skipped", model_id=spec.model_id, cause=cause)
            is_away = isinstance(error, TimeoutError) or (isinstance(error, SourceUnavailable) and error.can_pass)
            return "away" if is_away else "unknown"
        is_equal = stored.listing.is_versioned and await self._content(spec, stored.listing) == content
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
            operation.enter("list")
            await asyncio.sleep(PAUSE_BEFORE_NEW_LISTING_SECONDS)
        return await self._fetch_once(operation, spec)

    async def _fetch_once(self, operation: Operation, spec: ModelSpec) -> Layout:
        model = operation.model
        operation.enter("list")
        stored = await self.ports.store.open(spec, operation.waits)
        layout = await self.planned(spec, stored)
        content = await self._content(spec, stored.listing)
        self.crashes.check(content)
        self.sizes.admit(model, spec, layout.size_bytes, content)
        model.asked, model.content = spec, content
        operation.enter("pull")
        model.artifact = await stored.fetch(layout.files)
        operation.enter("place")
        layout = await self.finished(layout, stored, model.artifact)
        with operation.waits.on("the volume to take the model's files"):
            model.placed = await self.ports.repository.place(model.model_id, layout, model.artifact)
        return layout

    async def planned(self, spec: ModelSpec, stored: StoredModel) -> Layout:
        """How the model will look to Triton. Raises InvalidModel, SourceError."""
        listing = stored.listing
        wanted = await self.workers.run_large(lambda: rules.wanted(listing, spec), effort(listing))
        contents = {file: await stored.read(file) for file in wanted}

        def plan() -> Layout:
            layout = rules.plan(spec, listing, contents)
            _ = layout.size_bytes  # which it keeps, with its files: 100,000 numbers are not added on the loop
            return layout

        return await self.workers.run_large(plan, effort(listing, contents))

    async def finished(self, layout: Layout, stored: StoredModel, artifact: Artifact) -> Layout:
        """
        The layout as it is placed: what the pulled files say decides the rest.

        Raises:
            InvalidModel: Triton could not serve such content.
            AdapterError: a file cannot be read.
        """
        asked = rules.asked(layout)
        if not asked:
            return layout
        answers = await stored.ends(artifact, asked)
        return await self.workers.run(lambda _: rules.finished(layout, answers))

    async def _content(self, spec: ModelSpec, listing: Listing) -> Content:
        """What a model is loaded from."""
        of = self.ports.journal.digests
        return await self.workers.run_large(
            lambda: Content(of.of_spec(spec), of.of_listing(listing), of.of_crash(spec, listing)), effort(listing)
        )
