"""
One history: a world, one adapter after the other, what ModelMesh asks, what goes wrong; and the rules that hold all the time.

One seed decides everything. Delays are round numbers, so that what can happen at the same moment does.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from functools import partial
from pathlib import Path

from structlog.testing import capture_logs

from tests.simulation.actions import Actions
from tests.simulation.calls import Calls
from tests.simulation.ending import Ending
from tests.simulation.lives import Lives
from tests.simulation.loop import StuckError
from tests.simulation.rules import Rules
from tests.simulation.scenes import Scenes
from tests.simulation.store import UnforeseenError
from tests.simulation.virtual import virtual
from tests.simulation.world import World

DEFECTS = ("operation.crashed", "reconciler.crashed")
"""What the adapter logs when an unforeseen exception occurs."""
DRAIN_SECONDS = 25


class History:
    """From a seed to its problems."""

    def __init__(self, seed: int, *, is_traced: bool = False) -> None:
        folder = Path(tempfile.mkdtemp(prefix="simulation-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
        self.world = world = World(seed, folder, is_traced=is_traced)
        self._random = world.random
        self._rules = Rules(world)
        self._lives = Lives(world, self._rules)
        self._calls = Calls(world)
        self._actions = Actions(world, self._calls, self._lives)
        self._scenes = Scenes(world, self._calls)
        self._ending = Ending(world, self._rules, self._calls)
        world.triton.about_to_answer = self._nudged
        world.triton.before_load = self._rules.about_to_load
        world.files.on_change = self._rules.changing
        world.files.after_rename = self._rules.renamed
        world.files.kill = partial(self._lives.kill, how="in the middle of a write")
        world.loop.after_step = self._stepped
        self.seconds = 0.0
        """So long it has lasted, in virtual time."""

    def run(self) -> History:
        """Everything, to the end."""
        world = self.world
        with contextlib.ExitStack() as stack:
            stack.callback(shutil.rmtree, world.folder, ignore_errors=True)
            stack.callback(world.loop.close)
            logs = stack.enter_context(capture_logs())
            stack.enter_context(virtual(world.hub))
            stack.enter_context(world.files.patched())
            stack.enter_context(world.claim.patched())
            stack.callback(world.bury)
            began = world.loop.time()
            try:
                world.loop.run_until_complete(self._live())
            except StuckError as stuck:
                world.problem(f"everybody waits for ever: {stuck}; {world.waiting()}")
            self.seconds = world.loop.time() - began
            for entry in logs:
                if entry["event"] in DEFECTS and not self._is_foreseen(entry.get("exc_info")):
                    world.problems.append(f"a defect was logged: {entry}")
        return self

    async def _live(self) -> None:
        world = self.world
        self._lives.start()
        await asyncio.sleep(self._random.choice((0.0, 0.01, 1.0)))
        if world.is_crowded:
            await self._scenes.crowd()
        if world.has_neighbours:
            await self._scenes.neighbours()
        for _ in range(0 if world.has_neighbours else world.actions):
            self._actions.act()
            await self._actions.pause()
            world.files.rate = world.file_rate if self._random.random() < 0.5 else 0.0
            if world.is_quiet and self._random.random() < 0.4:
                await asyncio.sleep(self._random.choice((2.0, 5.0, 20.0)))
        if self._random.random() < 0.25 and world.adapter is not None and not world.has_neighbours:
            await self._drain()
        await self._ending.calm_down()

    def _is_foreseen(self, logged: object) -> bool:
        """Whether it is a defect that the history has made; one that is being handled is logged as True."""
        return isinstance(logged, UnforeseenError) or (logged is True and any(what.startswith("a defect") for what in self.world.met))

    async def _drain(self) -> None:
        """The adapter is told to end, and asked for more."""
        world, adapter = self.world, self.world.adapter
        assert adapter is not None
        world.meet("drain")
        world.drain = world.loop.create_task(
            adapter.lifecycle.drain(DRAIN_SECONDS), name="drain", context=world.loop.in_name_of(adapter.life)
        )
        for _ in range(world.actions // 4):
            self._actions.act(is_ending=True)
            await self._actions.pause()

    def _nudged(self, has_thread: bool) -> None:
        """A caller goes just when Triton has answered: some ticks later the answer reaches a caller that does not wait any more."""
        world = self.world
        if world.nudge_rate and not world.is_calm and self._random.random() < (0.5 if has_thread else 0.1):
            ticks = self._random.randint(1, 3) if has_thread else self._random.randint(0, 12)  # slots are handed on within three
            world.loop.create_task(self._calls.cancel_in(ticks), context=world.loop.in_name_of(None))

    def _stepped(self) -> None:
        world = self.world
        if world.loop.steps % 100 == 0:
            self._rules.check_space()
        if world.nudge_rate and not world.is_calm and self._random.random() < world.nudge_rate:
            world.met["cancel in any step"] += 1
            self._calls.cancel_one()
