"""Each rule is shown to break, by a runtime that lies in just that way; an honest one keeps them all."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mesh.ground import LoadError
from tests.mesh.inference import InferenceError
from tests.mesh.invariants import Invariants
from tests.mesh.mesh import Mesh
from tests.mesh.population import Case
from tests.mesh.runtime import CallError, Model
from tests.mesh.scripted import MIB, REQUEST, Script, ScriptedRuntime, a_mesh, a_runtime
from tests.mesh.session import Session
from tests.mesh.traffic import Traffic

pytestmark = pytest.mark.looptime
NOT_FOUND = CallError("NOT_FOUND", "Request for unknown model: 'm' is not found")
AWAY = CallError("UNAVAILABLE", "connection refused")


def rules(mesh: Mesh) -> list[str]:
    return [broken.rule for broken in mesh.watch.broken]


async def loaded(mesh: Mesh, *names: str) -> Mesh:
    await mesh.start()
    for name in names:
        await mesh.ensure_loaded(name)
    return mesh


async def test_an_honest_runtime_keeps_every_rule_under_traffic() -> None:
    scripts = {f"m{n}": Script(load_seconds=n % 3, unload_seconds=n % 2, predicted=8 * MIB, told=8 * MIB) for n in range(30)}
    runtime = a_runtime(**scripts)
    cases = [Case(Model(name, "", "", "{}"), REQUEST, memory_bytes=7 * MIB) for name in scripts]

    session = Session(mesh=a_mesh(runtime), cases=cases, seconds=60, rate=5)

    assert await session.run(), session.mesh.watch.broken
    assert session.mesh.watch.figures.counts["evictions"] > 10
    assert session.mesh.watch.figures.ok["index"] > 50
    assert runtime.holding == {}


async def test_a_session_ends_at_a_broken_rule() -> None:
    runtime = a_runtime(**{f"m{n}": Script(stays=True, predicted=40 * MIB, told=40 * MIB) for n in range(5)})
    cases = [Case(Model(f"m{n}", "", "", "{}"), REQUEST) for n in range(5)]

    session = Session(mesh=a_mesh(runtime), cases=cases, seconds=1000, rate=5)

    assert not await session.run()
    assert session.mesh.watch.now() - session.mesh.watch.began < 60


@pytest.mark.parametrize(
    ("seconds_later", "holding", "rule"),
    [
        (1, {"m": "READY"}, "what was unloaded is gone"),
        (100, {"m": "READY"}, "what was unloaded is gone"),  # as a restore would bring it that was not told of the unload
        (1, {"ghost": "LOADING"}, "accounted ≥ held"),
    ],
    ids=["stays", "comes back", "was never asked for"],
)
async def test_a_model_that_triton_should_not_have(seconds_later: float, holding: dict[str, str], rule: str) -> None:
    runtime = a_runtime()
    async with await loaded(a_mesh(runtime, "m"), "m") as mesh:
        look = Invariants(mesh).look
        mesh.unregister("m")
        await look()
        assert rules(mesh) == [], "the unload is under way"
        await asyncio.sleep(seconds_later)
        runtime.holding.update(holding)
        await look()

    assert rules(mesh) == [rule]


async def test_a_runtime_that_is_ready_before_it_is_empty() -> None:
    runtime = a_runtime()
    async with await loaded(a_mesh(runtime, "m"), "m") as mesh:
        await mesh.start()
        runtime.holding["m"] = "UNLOADING"
        await Invariants(mesh).look()

    assert rules(mesh) == ["accounted ≥ held"]


@pytest.mark.parametrize(("predicted", "told", "broken"), [(2 * MIB, 2 * MIB, ["accounted ≥ held"]), (MIB, 4 * MIB, [])])
async def test_a_model_larger_than_what_is_told_of_it(predicted: int, told: int, broken: list[str]) -> None:
    """The default size is a guess until the load is answered."""
    runtime = a_runtime(m=Script(predicted=predicted, told=told, load_seconds=5))
    async with await loaded(a_mesh(runtime, "m")) as mesh:
        load = asyncio.create_task(mesh.ensure_loaded("m"))
        await asyncio.sleep(1)
        look = Invariants(mesh, memory_bytes={"m": 3 * MIB}).look
        await look()
        await load
        await look()

    assert sorted(set(rules(mesh))) == broken


async def test_files_that_stay_in_the_folder(tmp_path: Path) -> None:
    async with await loaded(a_mesh(a_runtime(), "m"), "m") as mesh:
        (tmp_path / "_triton_models" / "m").mkdir(parents=True)
        (tmp_path / "_triton_models" / "adapter-probe-1f").mkdir()
        look = Invariants(mesh, volume=tmp_path).look
        await look()
        assert rules(mesh) == []
        mesh.unregister("m")
        await asyncio.sleep(1)
        await look()

    assert rules(mesh) == ["what was unloaded is gone"]


async def test_an_answer_of_the_index_that_was_overtaken_is_no_lie() -> None:
    """The index is a moment between question and answer: what was unloaded meanwhile may still be in it."""

    class Slow(ScriptedRuntime):
        async def index(self) -> dict[str, str]:
            found = dict(self.holding)
            await asyncio.sleep(5)
            return found

    async with await loaded(a_mesh(Slow(asyncio.get_running_loop().time), "m"), "m") as mesh:
        mesh.unregister("m")
        assert await Invariants(mesh).look()
        assert mesh.accounted() == set()

    assert rules(mesh) == []


@pytest.mark.parametrize("is_fault", [False, True])
async def test_a_model_called_loaded_that_triton_does_not_have(is_fault: bool) -> None:
    """Lost in a fault, it heals and is no lie."""
    runtime = a_runtime()
    async with await loaded(a_mesh(runtime, "m"), "m") as mesh:
        if is_fault:
            with mesh.watch.fault("Triton dies"):
                await asyncio.sleep(1)
        runtime.holding.clear()
        await mesh.infer("m", REQUEST)

    assert rules(mesh) == ([] if is_fault else ["what is called loaded answers"])
    assert mesh.watch.figures.counts["heals"] == 1


@pytest.mark.parametrize(("error", "knows_faults"), [(NOT_FOUND, False), (AWAY, True)], ids=["never heals", "fails for 60 s"])
async def test_a_model_called_loaded_that_does_not_answer(error: CallError, knows_faults: bool) -> None:
    runtime = a_runtime(m=Script(infer_fails=[error] * 100))
    async with await loaded(a_mesh(runtime, "m"), "m") as mesh:
        mesh.watch.knows_faults = knows_faults
        for _ in range(13):
            with suppress(InferenceError):
                await mesh.infer("m", REQUEST)
            if rules(mesh):
                break
            await asyncio.sleep(6)

    assert rules(mesh) == ["what is called loaded answers"]
    assert (mesh.watch.now() - mesh.watch.began > 60) == (error is AWAY)


async def test_survivors_are_counted_and_the_lost_are_told() -> None:
    names = ("good", "lost", "gone")
    mesh = a_mesh(a_runtime(lost=Script(infer_fails=[AWAY] * 10_000)))
    traffic = Traffic(mesh, [Case(Model(name, "", "", "{}"), REQUEST) for name in names], random.Random(1), 1)
    async with await loaded(mesh, *names):
        before = list(mesh.loaded().values())
        mesh.unregister("gone")
        tried, survived, _ = await traffic.survivors(before, 20)

    assert (tried, survived) == (2, 1)
    assert rules(mesh) == ["what is called loaded answers"]


@pytest.mark.parametrize(
    ("script", "rule", "words"),
    [
        (Script(unload_seconds=200), "each call is answered within its bound", "unloadModel of m took 200.0 s"),
        (Script(load_seconds=40), "each call is answered within its bound", "loadModel of m is not answered 30.0 s after the call"),
        (Script(predicted=0), "a prediction leaves the model a chance", ""),
        (Script(predicted=8192), "a prediction leaves the model a chance", ""),
        (Script(predicted=100 * MIB), "a prediction leaves the model a chance", ""),
        (Script(load_fails=CallError("INTERNAL", "x" * 9000)), "a text arrives", ""),
    ],
    ids=["unload", "load", "nothing", "one unit", "more than there is", "text"],
)
async def test_an_answer_that_comes_too_late_or_cannot_be_used(script: Script, rule: str, words: str) -> None:
    async with a_mesh(a_runtime(m=script), "m") as mesh:
        await mesh.start()
        with suppress(LoadError):
            await mesh.ensure_loaded("m")
        mesh.unregister("m")
        await asyncio.sleep(300)

    assert rules(mesh) == [rule]
    assert words in mesh.watch.broken[0].words


async def test_a_wrong_answer_and_a_healthy_model_that_fails() -> None:
    runtime = a_runtime(sick=Script(load_fails=CallError("INTERNAL", "no reason")))
    mesh = a_mesh(runtime)
    wrong = Case(Model("wrong", "", "", "{}"), REQUEST, lambda _: "answered 1 instead of 2")
    sick = Case(Model("sick", "", "", "{}"), REQUEST)
    broken = replace(sick, model=replace(sick.model, model_id="broken"), kind="broken")
    runtime.scripts["broken"] = runtime.scripts["sick"]
    traffic = Traffic(mesh, [wrong, sick, broken], random.Random(1), 1)
    async with mesh:
        await mesh.start()
        for case in (wrong, sick, broken):
            await traffic.request(case)

    assert rules(mesh) == ["answers are right", "a healthy model loads"]
