"""
The half of a load that storage, layout and volume do: compare with storage, list, plan, pull, place; and predictions of a size.

A layout is planned before anything is pulled, of names and small files. What depends on the content of large files is decided when
they are pulled, before they are placed: storage reads both ends of each such file. Triton is not asked here.

A prediction is told within one deadline whatever storage does. A look into storage, reads, digests and plans go on in a task and
in threads of their own, and better the guess as they come; when the time is up the best guess so far is the answer, and whatever
hangs is left behind. What is left behind is bounded: each look is one of `MOST_LOOKS`, and long computations share `THREADS`. That
a model cannot fit is predicted only of a whole listing, for the files that would be served.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial

import structlog

from adapter.errors import AdapterError, SourceChanged, SourceNotFound, SourceUnavailable
from adapter.layout import rules
from adapter.lifecycle.facts import Facts
from adapter.lifecycle.operation import Operation
from adapter.lifecycle.states import State
from adapter.model import FRONT_FILES, Artifact, Layout, Listing, ModelSpec, SourceFile
from adapter.ports import Ports, StoredModel
from adapter.records import Content
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
PREDICT_SECONDS = 0.3
"""For a whole prediction; ModelMesh waits 500 ms in all. Source: modelmesh `SidecarModelMesh.java` 118."""
SURVEY_SECONDS = 0.24
"""Of these, for storage; the rest is for digests and plans."""
MOST_PLANNED_FILES = 12_000
"""A plan of more is not begun: it takes longer than the time after the look into storage, and holds up the loop."""
MOST_LOOKS = 256
"""Predictions that ask storage or compute at once, those that were answered before their look had ended included."""
THREADS = 2
"""For large models. Nothing is read in them, so no volume can hold them."""

log = structlog.stdlib.get_logger(__name__)


def effort(listing: Listing, contents: Mapping[SourceFile, bytes] | None = None) -> int:
    """Of a plan, or of a digest, in items of `Workers.run_large`."""
    return len(listing.files) + sum(map(len, (contents or {}).values())) // BYTES_OF_AN_ITEM


@dataclass(eq=False)
class Fetching:
    """Brings the files of models to where Triton sees them, and predicts sizes."""

    ports: Ports
    facts: Facts
    budget_seconds: float
    workers: Workers = field(default_factory=lambda: Workers("planning", THREADS))
    _looks: set[asyncio.Task[None]] = field(default_factory=set)
    """Of predictions."""

    async def is_another(self, operation: Operation, spec: ModelSpec) -> bool:
        """
        Whether the model is not what is asked for: another type, path or key, or one listing shows another content.

        Without versions every listing does. Storage that cannot be compared with is no reason to stop serving; for what Triton has
        lost, only a storage that is away is none.
        """
        content = operation.model.content
        if content is None or content.spec != self.ports.journal.digests.of_spec(spec):
            return True
        look_seconds = min(LOOK_SECONDS, self.budget_seconds / 3)
        try:
            async with asyncio.timeout(look_seconds):
                stored = await self.ports.store.open(spec, operation.waits)
                stored.close()  # its listing is all that is wanted
        except SourceNotFound:
            return True
        except (AdapterError, TimeoutError) as error:
            cause = str(error) or f"storage has not listed the model within {look_seconds:g} s"
            log.warning("listing.skipped", model_id=spec.model_id, cause=cause)
            is_away = isinstance(error, TimeoutError) or (isinstance(error, SourceUnavailable) and error.can_pass)
            return operation.model.state is State.LOST and not is_away
        return not stored.listing.is_versioned or await self._content(spec, stored.listing) != content

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
        with closing(await self.ports.store.open(spec, operation.waits)) as stored:
            layout = await self.planned(spec, stored)
            content = await self._content(spec, stored.listing)
            self.facts.check_deaths(content)
            self.facts.admit(model, spec, layout.size_bytes, content, layout.gpus)
            model.asked, model.content, model.concurrency = spec, content, layout.concurrency
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
        The layout as it is placed: what the pulled files say decides the rest. Files that a front reads are written, so that nothing
        but our own volume is read when it asks for them.

        Raises:
            InvalidModel: Triton could not serve such content.
            AdapterError: a file cannot be read.
        """
        asked = rules.asked(layout)
        read = {path: file for path in FRONT_FILES if (file := layout.links.get(path)) is not None}
        if not asked and not read:
            return layout
        answers = await stored.ends(artifact, tuple(dict.fromkeys((*asked, *read.values()))))
        done = await self.workers.run(lambda _: rules.finished(layout, answers))
        whole = {path: ends.tail for path, file in read.items() if (ends := answers[file]).size_bytes == len(ends.tail)}
        links = {path: file for path, file in done.links.items() if path not in whole}
        return replace(done, links=links, written={**done.written, **whole})

    async def _content(self, spec: ModelSpec, listing: Listing) -> Content:
        """What a model is loaded from."""
        of = self.ports.journal.digests
        return await self.workers.run_large(
            lambda: Content(of.of_spec(spec), of.of_listing(listing), of.of_crash(spec, listing)), effort(listing)
        )

    # ---- predictions

    async def predict(self, spec: ModelSpec) -> int:
        """Best size that can be told within PREDICT_SECONDS, in bytes. Never raises."""
        given = self.facts.given(spec)
        if given is not None:
            return given
        guesses = [self.facts.blind(spec)]
        if len(self._looks) >= MOST_LOOKS:
            return guesses[-1]
        look = asyncio.create_task(self._look(spec, guesses), name=f"prediction {spec.model_id}")
        self._looks.add(look)
        look.add_done_callback(self._looks.discard)
        try:
            await asyncio.wait({look}, timeout=PREDICT_SECONDS)
        finally:
            look.cancel()  # it ends with its thread, or at once
        return guesses[-1]

    async def _look(self, spec: ModelSpec, guesses: list[int]) -> None:
        """Of half a listing, or of an archive, at least the default, or more where more was seen."""
        facts = self.facts
        try:
            survey = await self.ports.store.survey(spec, SURVEY_SECONDS, wanted)
            listing, remembered = survey.listing, facts.remembered(spec)
            if listing is None:
                if remembered is None and not spec.size_hint_bytes:
                    guesses.append(max(facts.predicted(facts.estimate(spec, survey.seen_bytes)), guesses[-1]))
            elif remembered is not None and remembered.content.crash == (await self._content(spec, listing)).crash:
                is_sure = remembered.content.listing is not None  # without versions it may be another content
                guesses.append(facts.predicted(remembered.size_bytes, is_sure=is_sure))
            elif not spec.size_hint_bytes:
                guesses.append(facts.predicted(facts.estimate(spec, survey.seen_bytes)))
                if len(listing.files) <= MOST_PLANNED_FILES:
                    items = effort(listing, survey.contents)
                    served, is_sure = await self.workers.run_large(partial(served_bytes, spec, listing, survey.contents), items)
                    guesses.append(facts.predicted(facts.estimate(spec, served), is_sure=is_sure))
        except AdapterError as error:
            if not isinstance(error, SourceUnavailable):  # the load will be refused
                guesses.append(facts.default_bytes())
        except Exception:
            log.exception("prediction.crashed", model_id=spec.model_id)


def wanted(listing: Listing) -> tuple[SourceFile, ...]:
    """The small files that decide what is served: of those that a plan needs, all but the schema. Raises InvalidModel."""
    return rules.wanted(replace(listing, schema=None))


def served_bytes(spec: ModelSpec, listing: Listing, contents: Mapping[SourceFile, bytes]) -> tuple[int, bool]:
    """
    Bytes of those listed files that would be served, and whether that is sure: it is not where a config was not read.

    Raises:
        InvalidModel: none; the load will be refused.
    """
    spec, listing = replace(spec, schema_path=None), replace(listing, schema=None)
    if any(file not in contents for file in wanted(listing)):
        return listing.size_bytes, False
    return rules.plan(spec, listing, dict(contents)).size_bytes, True
