"""Histories of a kind of their own: a crowd of models, and models beside a neighbour that hangs."""

from __future__ import annotations

import asyncio
from functools import partial

from adapter.model import ModelSpec
from tests.simulation.calls import Calls
from tests.simulation.loop import until
from tests.simulation.world import CLAIM, Call, Part, World

NEIGHBOUR_SECONDS = 15.0
"""Far more than any call needs of a Triton and a store that are well."""


class Scenes(Part):
    """What such a history begins with."""

    def __init__(self, world: World, calls: Calls) -> None:
        super().__init__(world)
        self._calls = calls

    async def crowd(self) -> None:
        """Many models are loaded, and ModelMesh may restart."""
        self._triton.unload_call_seconds = self._random.choice((0.0, 0.5))
        await asyncio.sleep(10)
        for model_id in self._world.ids:
            self._calls.load(ModelSpec(model_id=model_id, model_type="onnx", path="models/x", storage_key="east"))
            await asyncio.sleep(0.5)
        if self._random.random() < 0.7:
            if self._random.random() < 0.5:
                self._triton.before_unload = self._hang_once
            self._calls.status()

    def _hang_once(self) -> None:
        """Triton hangs when the first unload of a purge is on its way."""
        self._triton.before_unload = lambda: None
        self._triton.hang(3.0)

    async def neighbours(self) -> None:
        """Some loads or a store hang, and no other load notices."""
        await asyncio.sleep(20)
        if has_loads := self._random.random() < 0.6:
            self._world.kinds["west/models/y#0"] = "endless"
            for number in range(self._random.randint(1, self._world.setup.load_threads - 1)):
                spec = ModelSpec(model_id=f"hung{number}", model_type="onnx", path="models/y", storage_key="west")
                self._world.ids.append(spec.model_id)
                call = self._calls.load(spec)
                assert call is not None
                await until(partial(self._has_arrived, call))
                self._calls.check(call, not call.is_over(), f"{call.outcome}, for others hang")
                await asyncio.sleep(self._random.choice((0.0, 1.0, 30.0)))
                call.cancel()
                self._world.meet("a load hangs beside others")
        if has_claim := self._random.random() < 0.5:
            self._hang_claim()
        if not (has_loads or has_claim) or self._random.random() < 0.3:
            self._world.meet("a store hangs beside others")
            self._world.endpoints["west"].turn("silent", self._loop.time())
            for number in range(20):
                spec = ModelSpec(model_id=f"far{number}", model_type="onnx", path="models/x", storage_key="west")
                self._world.ids.append(spec.model_id)
                self._calls.load(spec)
                self._calls.predict(spec)
        await asyncio.sleep(self._random.choice((1.0, 20.0)))
        for _ in range(12):
            call = self._ask_near(f"m{self._random.randrange(5)}")
            assert call is not None
            await until(call.is_over)
            self._calls.check(call, call.outcome == "done", f"{call.outcome}, though only others are in trouble")
            took = call.ended_at - call.began_at
            self._calls.check(call, took < NEIGHBOUR_SECONDS, f"answered after {took:.1f} s, for others are in trouble")

        if has_claim:
            await self._heal_claim()

    def _hang_claim(self) -> None:
        self._world.meet("a claim hangs beside others")
        self._world.claim.hang()
        for number in range(20):
            spec = self._mounted(f"mounted{number}")
            self._calls.load(spec)
            if number % 5 == 0:
                self._calls.predict(spec)

    async def _heal_claim(self) -> None:
        """From that moment on it is of use."""
        self._world.claim.heal()
        await asyncio.sleep(1)
        call = self._calls.load(self._mounted("mounted"))
        assert call is not None
        await until(call.is_over)
        self._calls.check(call, call.outcome == "done", f"{call.outcome}, though the claim is well again")

    def _mounted(self, model_id: str) -> ModelSpec:
        self._world.ids.append(model_id)
        return ModelSpec(model_id=model_id, model_type="onnx", path="models/x", storage_key=CLAIM)

    def _has_arrived(self, call: Call) -> bool:
        """In Triton, or nowhere any more."""
        return call.model_id in self._triton.held or call.is_over()

    def _ask_near(self, model_id: str) -> Call | None:
        spec = ModelSpec(model_id=model_id, model_type="onnx", path=self._random.choice(("models/x", "models/y")), storage_key="east")
        what = self._random.choice(("load", "load", "unload", "predict"))
        return self._calls.unload(model_id) if what == "unload" else self._calls.load(spec) if what == "load" else self._calls.predict(spec)
