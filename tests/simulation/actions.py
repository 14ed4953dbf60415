"""What goes wrong, and everything else that happens: one at a time, as the seed decides."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from adapter.model import ModelSpec, Named
from tests.simulation.calls import Calls
from tests.simulation.lives import Lives
from tests.simulation.world import CLAIM, FRONT_BYTES, Part, World


class Actions(Part):
    """The dice of a history."""

    def __init__(self, world: World, calls: Calls, lives: Lives) -> None:
        super().__init__(world)
        self._calls = calls
        self._lives = lives

    def act(self, *, is_ending: bool = False) -> None:
        """One thing that happens."""
        if self._world.front_ids and self._random.random() < 0.5:
            self._of_front()
            return
        model_id = self._random.choice(self._world.mesh_ids)
        path = self._random.choices(("models/x", "models/y", "models/missing"), (14, 6, 1) if self._world.is_quiet else (6, 3, 1))[0]
        key = self._random.choices(("east", "west", CLAIM), (13, 5, 2))[0]
        spec = ModelSpec(model_id=model_id, model_type="onnx", path=path, storage_key=key)
        quiet, deaths = (1, 3) if self._world.is_quiet else (12, 2)
        endpoint = self._world.endpoints["west" if key == CLAIM else key]
        actions: list[tuple[int, Callable[[], object]]] = [
            (90 if self._world.is_crowded else 40, lambda: self._calls.load(spec)),
            (quiet + 3, lambda: self._calls.unload(model_id)),
            (quiet, self._calls.cancel_one),
            (3, lambda: self._calls.predict(spec)),
            (3, lambda: self._calls.size(model_id)),
            (5, lambda: self._world.change(endpoint, self._random.choice(("models/x", "models/y")))),
            (deaths, lambda: self._triton.kill(self._random.choice((0.0, self._triton.back_after_seconds)))),
            (deaths, self.stop_triton),
            (2, self.trouble_store),
            (2, self.slow_index),
            (1, self.hang_claim),
            (1, self.foreign_entry),
            (0 if is_ending else 1 + quiet // 3, self._calls.status),
            (0 if is_ending else 1 if self._world.is_quiet else 3, self.kill_soon),
        ]
        self._random.choices([action for _, action in actions], [weight for weight, _ in actions])[0]()

    def _of_front(self) -> None:
        """A front's caller loads or unloads a model, or asks for the list."""
        name = self._random.choice(self._world.front_ids)
        path = self._random.choices(("models/x", "models/y", "models/missing"), (6, 3, 1))[0]
        asked = ModelSpec(
            model_id=name,
            model_type="onnx",
            path=path,
            storage_key=self._random.choice(("east", "west")),
            size_hint_bytes=FRONT_BYTES,
            named=Named(f"name of {name}", f"/{path}"),
        )
        choice = self._random.random()
        if choice < 0.6:
            self._calls.load_new(asked)
        elif choice < 0.9:
            self._calls.unload(name)
        else:
            self._calls.known()

    def trouble_store(self) -> None:
        """A store is away, silent, slow or unreliable for a time."""
        endpoint = self._random.choice(list(self._world.endpoints.values()))
        state = self._random.choice(("away", "silent", "slow", "flaky"))
        endpoint.turn(state, self._loop.time())
        self._world.meet(f"store {state}")
        self._loop.call_later(self._random.choice((1.0, 10.0, 60.0, 400.0)), lambda: endpoint.turn("well", self._loop.time()))

    def stop_triton(self) -> None:
        """Dead for a time, silent, or its connection is cut."""
        choice = self._random.random()
        if choice < 0.4:
            self._triton.kill(self._random.choice((0.1, 1.0, 10.0, 60.0)))
        elif choice < 0.7:
            self._triton.hang(self._random.choice((0.1, 1.0, 10.0, 60.0, 300.0)))
        elif choice < 0.8:
            self._world.meet("wrong Triton")
            self._triton.wrong_rate = 0.3
            self._loop.call_later(self._random.choice((1.0, 10.0)), setattr, self._triton, "wrong_rate", 0.0)
        elif self._triton.is_open:
            self._world.meet("connection cut")
            self._triton.cut()

    def hang_claim(self) -> None:
        """The claim hangs for a time."""
        self._world.meet("claim hung")
        self._world.claim.hang()
        self._loop.call_later(self._random.choice((1.0, 30.0, 400.0)), self._world.claim.heal)

    def slow_index(self) -> None:
        """The index takes long for a time."""
        self._triton.index_seconds = self._random.choice((0.5, 3.0, 8.0, 30.0))
        self._loop.call_later(self._random.choice((5.0, 60.0)), setattr, self._triton, "index_seconds", self._triton.usual_index_seconds)

    def foreign_entry(self) -> None:
        """Another process writes into Triton's folder."""
        path = self._world.repository_dir / f"foreign-{next(self._world.numbers)}"
        if self._world.repository_dir.is_dir():
            self._world.meet("foreign entry")
            if self._random.random() < 0.5:
                path.symlink_to("/nowhere")
            else:
                path.write_bytes(b"?")

    def kill_soon(self) -> None:
        """The adapter dies now, or in the middle of a write."""
        if self._world.adapter is None:
            return
        if self._random.random() < 0.5:
            self._lives.kill(
                self._world.adapter.life, how="at rest" if not self._world.adapter.lifecycle.registry.operations() else "at work"
            )
        else:
            self._world.adapter.life.kill_after = self._random.randint(0, 30)

    async def pause(self) -> None:
        """Some ticks of the loop, or some tenths of a second, or long."""
        choice = self._random.random()
        if choice < self._world.slow_rate:
            await asyncio.sleep(self._random.choice((5.0, 30.0, 100.0, 300.0)))
        elif choice < 0.4:
            for _ in range(self._random.randint(0, 6)):
                await asyncio.sleep(0)
        elif choice < 0.7:
            await asyncio.sleep(self._random.choice((0.001, 0.005, 0.02)))
        else:
            await asyncio.sleep(self._random.choice((0.1, 0.2, 0.3, 0.5, 1.0)))
