"""From the first request for a model to LOADED: predicted, given space, sent, measured."""

from __future__ import annotations

import asyncio

from tests.mesh.announced import UNIT_BYTES, units_of
from tests.mesh.ground import Copy, Ground, State
from tests.mesh.runtime import CallError
from tests.mesh.unloads import Unloads

GRACE_SECONDS = 5.0
"""After a fault its effects may show so long: gRPC connects again."""
LONGEST_TEXT = 8000
"""Bytes; a longer text is lost whole on gRPC's wire."""


class Loads:
    """The loader threads of one process, `maxLoadingConcurrency` of them."""

    def __init__(self, ground: Ground, unloads: Unloads) -> None:
        self._ground = ground
        self._unloads = unloads
        self._threads = asyncio.Semaphore(ground.announced.threads)
        self._is_predicting = True
        self.branded: set[str] = set()
        """Models of one unit whose load has failed: never tried again."""

    async def run(self, copy: Copy) -> None:
        """The whole way; a copy that is removed meanwhile has this task cancelled."""
        weight = await self._predicted(copy)
        if not weight:
            return self._drop(copy, "INTERNAL: predicted size is 0")
        self._ground.on_evicted(self._ground.accounts.request(copy.model_id, weight))
        if copy.state is State.REMOVED:
            return None
        copy.state = State.QUEUED
        self._ground.watch.note(copy.model_id, f"queued with {weight} units")
        async with self._threads:
            copy.state = State.WAITING
            if await self._has_space(copy):
                copy.state = State.LOADING
                await self._send(copy)
        return None

    async def _predicted(self, copy: Copy) -> int:
        """Units: of the prediction, or the default. 0: the runtime has said so, and the model cannot be used."""
        ground = self._ground
        ground.guessed.add(copy.model_id)
        if not self._is_predicting:
            return ground.announced.default_units
        began = ground.now()
        try:
            size_bytes = await ground.runtime.predict(copy.model, ground.times.predict)
        except CallError as error:
            self._is_predicting = error.code != "UNIMPLEMENTED"
            ground.watch.figures.failed("predict", str(error))
            ground.watch.note(copy.model_id, f"predictModelSize failed: {error}")
            return ground.announced.default_units
        ground.watch.figures.took("predict", ground.now() - began)
        ground.watch.note(copy.model_id, f"predicted {size_bytes} bytes")
        if size_bytes == ground.announced.default_bytes:
            ground.watch.figures.count("predictions of the default size")
        else:
            ground.guessed.discard(copy.model_id)
        self._judge_prediction(copy.model_id, size_bytes)
        return units_of(size_bytes) if size_bytes else 0

    def _judge_prediction(self, model_id: str, size_bytes: int) -> None:
        """Each of these makes a model unusable without a word to its users."""
        usable = self._ground.announced.usable_units * UNIT_BYTES
        rule = "a prediction leaves the model a chance"
        if size_bytes <= UNIT_BYTES:
            self._ground.watch.tell(rule, f"{model_id} is predicted {size_bytes} bytes: at most one unit", model_id)
        elif size_bytes > usable:
            self._ground.watch.tell(rule, f"{model_id} is predicted {size_bytes} bytes; usable are {usable}", model_id)

    async def _has_space(self, copy: Copy) -> bool:
        """Once the unloads have ended that free the space. A load that waits too long is dropped, without a failure record."""
        ground = self._ground
        try:
            async with asyncio.timeout(ground.times.space), ground.changed:
                while not ground.accounts.claim(copy.model_id):
                    await ground.changed.wait()
        except TimeoutError:
            ground.watch.figures.count("loads dropped while they waited for space")
            self._drop(copy, f"no space within {ground.times.space:g} s")
            return False
        return True

    def _drop(self, copy: Copy, text: str) -> None:
        """Out of the cache before anything was sent, without a failure record."""
        self._ground.accounts.remove(copy.model_id)
        del self._ground.copies[copy.model_id]
        copy.state = State.REMOVED
        copy.conclude(text)

    async def _send(self, copy: Copy) -> None:
        ground, announced = self._ground, self._ground.announced
        self._unloads.nudge()
        asked: float | None = None
        try:
            async with asyncio.timeout(announced.timeout_seconds):
                await self._unloads.end_of(copy.model_id)
                asked = ground.now()
                ground.watch.note(copy.model_id, "loadModel")
                size_bytes = await ground.runtime.load(copy.model)
        except TimeoutError:
            if asked is not None:
                words = f"loadModel of {copy.model_id} is not answered {ground.now() - asked:.1f} s after the call"
                ground.watch.tell("each call is answered within its bound", words, copy.model_id)
            self._fail(copy, f"timed out after {announced.timeout_seconds:g} s", ground.times.after_timeout, asked)
        except CallError as error:
            self._fail(copy, str(error), ground.times.after_failure, asked)
        else:
            ground.watch.figures.took("load", ground.now() - asked)
            await self._loaded(copy, size_bytes)

    def _fail(self, copy: Copy, text: str, delay: float, asked: float | None) -> None:
        """Remembered with one unit; the rest is unloaded soon. `asked`: when the runtime was."""
        ground = self._ground
        copy.state, copy.failed_at = State.FAILED, ground.now()
        ground.watch.figures.failed("load", text)
        ground.watch.note(copy.model_id, f"loadModel failed: {text}")
        if asked is not None and copy.model_id in ground.watch.healthy and ground.watch.was_calm(asked, grace=GRACE_SECONDS):
            ground.watch.tell("a healthy model loads", f"{copy.model_id}: {text}", copy.model_id)
        if len(text.encode()) > LONGEST_TEXT:
            ground.watch.tell("a text arrives", f"{copy.model_id}: {len(text.encode())} bytes", copy.model_id)
        weight, evicted = ground.accounts.fail(copy.model_id)
        if weight:
            self._unloads.begin(copy, weight, delay)
        else:
            self.branded.add(copy.model_id)
            ground.unaccounted_at[copy.model_id] = ground.now()
        ground.on_evicted(evicted)
        copy.conclude(text)

    async def _loaded(self, copy: Copy, size_bytes: int) -> None:
        """A size above 0 is final; else the model serves while its size is asked for."""
        ground = self._ground
        copy.state, copy.loaded_at = State.ACTIVE, ground.now()
        ground.watch.note(copy.model_id, f"loaded, {size_bytes} bytes")
        copy.conclude()
        units = units_of(size_bytes) if size_bytes else await self._measured(copy)
        if units is not None and copy.state is State.ACTIVE:
            ground.guessed.discard(copy.model_id)
            ground.on_evicted(ground.accounts.measure(copy.model_id, units))
            await ground.ring()

    async def _measured(self, copy: Copy) -> int | None:
        """Units; None keeps what was predicted."""
        ground = self._ground
        began = ground.now()
        try:
            size_bytes = await ground.runtime.size(copy.model_id, ground.times.size)
        except CallError as error:
            ground.watch.figures.failed("size", str(error))
            return None
        ground.watch.figures.took("size", ground.now() - began)
        return units_of(size_bytes)
