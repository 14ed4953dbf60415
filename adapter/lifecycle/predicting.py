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
from contextlib import suppress
from dataclasses import dataclass, field, replace

import structlog

from adapter.digests import Digests
from adapter.errors import AdapterError, InvalidModel, SourceUnavailable
from adapter.layout import rules
from adapter.lifecycle.fetching import effort
from adapter.lifecycle.sizes import Sizes
from adapter.model import Listing, ModelSpec, SourceFile, Survey
from adapter.ports import ModelStore
from adapter.workers import Workers

PREDICT_SECONDS = 0.3
"""For a whole prediction; ModelMesh waits 500 ms in all. Source: modelmesh `SidecarModelMesh.java` 118."""
SURVEY_SECONDS = 0.24
"""Of these, for storage; the rest is for digests and plans."""
THREADS = 2
"""For models with many files."""
PLANNED_FILES_PER_SECOND = 200_000
"""A plan of more files than the time allows is not begun: nothing can stop it, and it holds up the loop."""
MOST_LOOKS = 256
"""Predictions that ask storage or compute at once, those that were answered before their look had ended included."""

log = structlog.stdlib.get_logger(__name__)


@dataclass
class _Guess:
    """The best answer so far."""

    bytes: int
    end: float
    """When it is the answer, by the clock of the loop."""


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
        guess = _Guess(self.sizes.blind(spec) or self.sizes.default_bytes, _now() + PREDICT_SECONDS)
        if len(self._looks) >= MOST_LOOKS:
            return guess.bytes
        look = asyncio.create_task(self._look(spec, guess), name=f"prediction {spec.model_id}")
        self._looks.add(look)
        look.add_done_callback(self._ended)
        try:
            await asyncio.wait({look}, timeout=PREDICT_SECONDS)
        finally:
            look.cancel()  # it ends with its thread, or at once
        return guess.bytes

    def _ended(self, look: asyncio.Task[None]) -> None:
        self._looks.discard(look)
        if not look.cancelled() and (error := look.exception()) is not None:
            log.error("prediction.crashed", exc_info=error)

    async def _look(self, spec: ModelSpec, guess: _Guess) -> None:
        try:
            survey = await self.store.survey(spec, SURVEY_SECONDS, wanted)
            if survey.listing is not None:
                await self._from_whole(spec, survey, survey.listing, guess)
            elif survey.seen_bytes and self.sizes.blind(spec) is None:
                await self._from_part(spec, survey, guess)
        except SourceUnavailable as error:
            log.debug("prediction.blind", model_id=spec.model_id, cause=error.text)
        except AdapterError as error:  # the load will be refused with these words
            log.debug("prediction.defaulted", model_id=spec.model_id, cause=error.text)
            guess.bytes = self.sizes.default_bytes

    async def _from_whole(self, spec: ModelSpec, survey: Survey, listing: Listing, guess: _Guess) -> None:
        sizes = self.sizes
        if (remembered := sizes.remembered(spec)) is not None:
            content, size = remembered
            if content.crash == await self.workers.run_large(lambda: self.digests.of_crash(spec, listing), effort(listing)):
                guess.bytes = sizes.predicted(size, is_sure=content.listing is not None)  # without versions it may be another content
                return
        if spec.size_hint_bytes:
            return
        guess.bytes = sizes.predicted(sizes.from_files(survey.seen_bytes))
        if (served := await self._served(spec, listing, survey.contents, guess)) is not None:
            guess.bytes = sizes.predicted(sizes.from_files(served.bytes), is_sure=served.is_sure)

    async def _from_part(self, spec: ModelSpec, survey: Survey, guess: _Guess) -> None:
        """At least the default, or more where more was seen."""
        sizes = self.sizes
        guess.bytes = max(sizes.predicted(sizes.from_files(survey.seen_bytes)), sizes.default_bytes)
        part = Listing(origin="", name=spec.path.strip("/").rpartition("/")[2], is_single_file=False, files=survey.seen)
        with suppress(InvalidModel):  # half a model need not be one
            if (served := await self._served(spec, part, {}, guess)) is not None:
                guess.bytes = max(sizes.predicted(sizes.from_files(served.bytes)), sizes.default_bytes)

    async def _served(self, spec: ModelSpec, listing: Listing, contents: Mapping[SourceFile, bytes], guess: _Guess) -> Served | None:
        if len(listing.files) > (guess.end - _now()) * PLANNED_FILES_PER_SECOND:
            return None
        return await self.workers.run_large(lambda: served_bytes(spec, listing, contents), effort(listing, contents))


@dataclass(frozen=True)
class Served:
    """Bytes of the files that would be served."""

    bytes: int
    is_sure: bool
    """False: what decides it was not read."""


def wanted(listing: Listing) -> tuple[SourceFile, ...]:
    """The small files that decide what is served: of those that a plan needs, all but the schema. Raises InvalidModel."""
    return rules.wanted(replace(listing, schema=None))


def served_bytes(spec: ModelSpec, listing: Listing, contents: Mapping[SourceFile, bytes]) -> Served:
    """
    Which of the listed files would be served; where a config was not read, by the names alone.

    Raises:
        InvalidModel: none; the load will be refused.
    """
    spec, listing = replace(spec, schema_path=None), replace(listing, schema=None)
    missing = {file for file in wanted(listing) if file not in contents}
    if not missing:
        return Served(rules.plan(spec, listing, dict(contents)).size_bytes, is_sure=True)
    configs = {*missing, *contents}
    by_names = replace(listing, files=tuple(file for file in listing.files if file not in configs))
    try:
        return Served(rules.plan(spec, by_names, {}).size_bytes, is_sure=False)
    except InvalidModel:
        return Served(listing.size_bytes, is_sure=False)


def _now() -> float:
    return asyncio.get_running_loop().time()
