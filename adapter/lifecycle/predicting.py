"""
Predictions: how big a model will be, told within one deadline whatever storage does.

A look into storage, reads, digests and plans go on in a task and in threads of their own, and better the guess as they
come; when the time is up the best guess so far is the answer, and whatever hangs is left behind. What is left behind is
bounded: each look is one of `MOST_LOOKS`, and long computations share `THREADS`. That a model cannot fit is predicted only
of a whole listing, for the files that would be served.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import structlog

from adapter.digests import Digests
from adapter.errors import AdapterError, InvalidModel, SourceUnavailable
from adapter.layout import rules
from adapter.lifecycle.facts import Sizes
from adapter.lifecycle.fetching import effort
from adapter.model import Listing, ModelSpec, SourceFile, Survey
from adapter.ports import ModelStore
from adapter.workers import Workers

PREDICT_SECONDS = 0.3
"""For a whole prediction; ModelMesh waits 500 ms in all. Source: modelmesh `SidecarModelMesh.java` 118."""
SURVEY_SECONDS = 0.24
"""Of these, for storage; the rest is for digests and plans."""
THREADS = 2
"""For models with many files."""
MOST_PLANNED_FILES = 12_000
"""A plan of more is not begun: it takes longer than the time after the look into storage, and holds up the loop."""
MOST_LOOKS = 256
"""Predictions that ask storage or compute at once, those that were answered before their look had ended included."""

log = structlog.stdlib.get_logger(__name__)


@dataclass(eq=False)
class Predicting:
    """Predicts sizes."""

    store: ModelStore
    sizes: Sizes
    digests: Digests
    workers: Workers = field(default_factory=lambda: Workers("predicting", THREADS))
    """To be closed at the end."""
    _looks: set[asyncio.Task[None]] = field(default_factory=set)

    async def predict(self, spec: ModelSpec) -> int:
        """Best size that can be told within PREDICT_SECONDS, in bytes. Never raises."""
        given = self.sizes.given(spec)
        if given is not None:
            return given
        guesses = [self.sizes.blind(spec) or self.sizes.default_bytes]
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
        try:
            await self._guess(spec, await self.store.survey(spec, SURVEY_SECONDS, wanted), guesses)
        except SourceUnavailable as error:
            log.debug("prediction.blind", model_id=spec.model_id, cause=error.text)
        except AdapterError as error:  # the load will be refused with these words
            log.debug("prediction.defaulted", model_id=spec.model_id, cause=error.text)
            guesses.append(self.sizes.default_bytes)
        except Exception:
            log.exception("prediction.crashed", model_id=spec.model_id)

    async def _guess(self, spec: ModelSpec, survey: Survey, guesses: list[int]) -> None:
        """Of half a listing at least the default, or more where more was seen."""
        sizes, listing, is_whole = self.sizes, survey.listing, survey.listing is not None
        if listing is None:
            listing = Listing(origin="", name=spec.path.strip("/").rpartition("/")[2], is_single_file=False, files=survey.seen)
        elif (remembered := sizes.remembered(spec)) is not None:
            content, size = remembered
            if content.crash == await self.workers.run_large(lambda: self.digests.of_crash(spec, listing), effort(listing)):
                is_sure = content.listing is not None  # without versions it may be another content
                guesses.append(sizes.predicted(size, is_sure=is_sure))
                return
        if spec.size_hint_bytes or not (is_whole or (survey.seen_bytes and sizes.blind(spec) is None)):
            return
        least = 0 if is_whole else sizes.default_bytes
        guesses.append(max(sizes.predicted(sizes.from_files(survey.seen_bytes)), least))
        if len(listing.files) > MOST_PLANNED_FILES:
            return
        try:
            work, items = partial(served_bytes, spec, listing, survey.contents), effort(listing, survey.contents)
            served, is_sure = await self.workers.run_large(work, items)
        except InvalidModel:
            if is_whole:  # half a model need not be one
                raise
        else:
            guesses.append(max(sizes.predicted(sizes.from_files(served), is_sure=is_sure and is_whole), least))


def wanted(listing: Listing) -> tuple[SourceFile, ...]:
    """The small files that decide what is served: of those that a plan needs, all but the schema. Raises InvalidModel."""
    return rules.wanted(replace(listing, schema=None))


def served_bytes(spec: ModelSpec, listing: Listing, contents: Mapping[SourceFile, bytes]) -> tuple[int, bool]:
    """
    Bytes of those listed files that would be served, and whether that is sure: where a config was not read the names alone decide.

    Raises:
        InvalidModel: none; the load will be refused.
    """
    spec, listing = replace(spec, schema_path=None), replace(listing, schema=None)
    missing = {file for file in wanted(listing) if file not in contents}
    if not missing:
        return rules.plan(spec, listing, dict(contents)).size_bytes, True
    by_names = replace(listing, files=tuple(file for file in listing.files if file not in missing and file not in contents))
    try:
        return rules.plan(spec, by_names, {}).size_bytes, False
    except InvalidModel:
        return listing.size_bytes, False
