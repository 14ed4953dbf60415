"""Clients: requests at a bounded rate, some models far more popular than others."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from tests.mesh.ground import REMOVED, Copy, LoadError
from tests.mesh.inference import InferenceError
from tests.mesh.mesh import Mesh
from tests.mesh.population import Case

EXPONENT = 1.3
"""Of Zipf's law."""
ANEW_SHARE = 0.01
"""Of the choices: the model is unregistered and registered anew, whatever it does at the time."""
MOST_IN_FLIGHT = 200
PROBE_SECONDS = 10.0
PROBE_PAUSE = 0.1
HEALTHY = frozenset({"good", "slow"})


@dataclass
class Traffic:
    """Clients of one ModelMesh."""

    mesh: Mesh
    cases: Sequence[Case]
    rng: random.Random
    rate: float
    """Requests a second."""
    running: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        order = list(self.cases)
        self.rng.shuffle(order)
        self._ranked = order
        self._weights = list(itertools.accumulate(1 / rank**EXPONENT for rank in range(1, len(order) + 1)))
        self._by_id = {case.model.model_id: case for case in self.cases}
        for case in self.cases:
            self.mesh.register(case.model)
            if case.kind in HEALTHY:
                self.mesh.watch.healthy.add(case.model.model_id)

    async def run(self) -> None:
        """For ever. Beyond 200 requests in flight nothing is sent: the rate is a bound, not a promise."""
        while True:
            if len(self.running) < MOST_IN_FLIGHT:
                case = self.rng.choices(self._ranked, cum_weights=self._weights)[0]
                is_anew = self.rng.random() < ANEW_SHARE
                task = asyncio.create_task(self.register_anew(case) if is_anew else self.request(case))
                self.running.add(task)
                task.add_done_callback(self.running.discard)
            await asyncio.sleep(self.rng.expovariate(self.rate))

    async def request(self, case: Case) -> None:
        """One request, judged."""
        watch, model_id = self.mesh.watch, case.model.model_id
        began = watch.now()
        try:
            answer = await self.mesh.infer(model_id, case.request)
        except (LoadError, InferenceError) as error:
            watch.figures.failed("infer", str(error))
        else:
            watch.figures.took("infer", watch.now() - began)
            if wrong := case.wrong(answer):
                watch.tell("answers are right", f"{model_id} {wrong}", model_id)

    async def register_anew(self, case: Case) -> None:
        """With `loadNow`: no request has used it, so it is the first to be evicted."""
        self.mesh.unregister(case.model.model_id)
        self.mesh.register(case.model)
        with suppress(LoadError):
            await self.mesh.ensure_loaded(case.model.model_id, used=False)

    async def answers(self, copy: Copy, seconds: float) -> bool | None:
        """Whether a model that is called loaded answers, or heals, within this time; None: ModelMesh has removed it meanwhile."""
        case = self._by_id[copy.model_id]
        end = self.mesh.watch.now() + seconds
        while True:
            if not copy.is_lost and self.mesh.loaded().get(copy.model_id) is not copy:
                return None
            try:
                answer = await self.mesh.infer(copy.model_id, case.request, seconds=PROBE_SECONDS)
                return case.wrong(answer) is None
            except (LoadError, InferenceError) as error:
                if str(error) == REMOVED:
                    return None
                if self.mesh.watch.now() > end:
                    return False
            await asyncio.sleep(PROBE_PAUSE)

    async def survivors(self, copies: Sequence[Copy], seconds: float) -> tuple[int, int, float]:
        """Of these loaded models: how many were not unloaded, how many of those answer, and the seconds to the last answer."""
        began = self.mesh.watch.now()
        found = await asyncio.gather(*(self.answers(copy, seconds) for copy in copies))
        for copy, answers in zip(copies, found, strict=True):
            if answers is False:
                words = f"{copy.model_id} does not answer within {seconds:g} s"
                self.mesh.watch.tell("what is called loaded answers", words, copy.model_id)
        return sum(answers is not None for answers in found), sum(answers is True for answers in found), self.mesh.watch.now() - began

    async def end(self) -> None:
        """The requests in flight are given up."""
        for task in self.running:
            task.cancel()
        await asyncio.gather(*self.running, return_exceptions=True)
