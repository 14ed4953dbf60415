"""Each rule is shown to break, by a runtime that lies in just that way; an honest one passes them all."""

from __future__ import annotations

import asyncio
import random
from contextlib import nullcontext
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

    session = Session(mesh=a_mesh(runtime), cases=cases, seconds=120, rate=5)

    assert await session.run(), session.mesh.watch.broken
    assert session.mesh.watch.figures.counts["evictions"] > 20
    assert session.mesh.watch.figures.ok["index"] > 100
    assert runtime.holding == {}


async def test_a_model_that_stays_after_its_unload() -> None:
    runtime = a_runtime(m=Script(stays=True))
    async with await loaded(a_mesh(runtime, "m"), "m") as mesh:
        look = Invariants(mesh).look
        mesh.unregister("m")
        await look()
        assert rules(mesh) == [], "the unload is under way"
        await asyncio.sleep(1)
        await look()

    assert rules(mesh) == ["what was unloaded is gone"]
    assert "unloadModel answered" in str(mesh.watch.broken[0])


async def test_a_session_ends_at_a_broken_rule() -> None:
    runtime = a_runtime(**{f"m{n}": Script(stays=True, predicted=40 * MIB, told=40 * MIB) for n in range(5)})
    cases = [Case(Model(f"m{n}", "", "", "{}"), REQUEST) for n in range(5)]

    session = Session(mesh=a_mesh(runtime), cases=cases, seconds=1000, rate=5)

    assert not await session.run()
    assert session.mesh.watch.now() - session.mesh.watch.began < 60


async def test_an_index_that_was_never_to_be_had_lets_no_rule_hold() -> None:
    runtime = a_runtime()
    runtime.is_away = True
    session = Session(mesh=a_mesh(runtime), cases=[Case(Model("m", "", "", "{}"), REQUEST)], seconds=10, rate=5)

    assert not await session.run()
    assert "Triton's index cannot be had: UNAVAILABLE: connection refused" in str(session.mesh.watch.broken[0])


async def test_a_model_that_nobody_loaded() -> None:
    runtime = a_runtime()
    async with await loaded(a_mesh(runtime)) as mesh:
        runtime.holding["ghost"] = "LOADING"
        await Invariants(mesh).look()

    assert rules(mesh) == ["accounted ≥ held"]


async def test_a_model_that_comes_back_after_its_unload() -> None:
    """As a restore would bring it that was not told of the unload."""
    runtime = a_runtime(m=Script())
    async with await loaded(a_mesh(runtime, "m"), "m") as mesh:
        mesh.unregister("m")
        await asyncio.sleep(100)
        runtime.holding["m"] = "READY"
        await Invariants(mesh).look()

    assert rules(mesh) == ["what was unloaded is gone"]
    assert "99" in mesh.watch.broken[0].words


async def test_a_runtime_that_is_ready_before_it_is_empty() -> None:
    runtime = a_runtime(m=Script())
    async with await loaded(a_mesh(runtime, "m"), "m") as mesh:
        await mesh.start()
        runtime.holding["m"] = "UNLOADING"
        await Invariants(mesh).look()

    assert rules(mesh) == ["accounted ≥ held"]


async def test_a_model_larger_than_what_is_told_of_it() -> None:
    runtime = a_runtime(m=Script(predicted=2 * MIB, told=2 * MIB))
    async with await loaded(a_mesh(runtime, "m"), "m") as mesh:
        await Invariants(mesh, memory_bytes={"m": 3 * MIB}).look()

    assert rules(mesh) == ["accounted ≥ held"]


@pytest.mark.parametrize("told", [CallError("INTERNAL", ""), MIB], ids=["no prediction", "the default"])
async def test_a_default_size_is_a_guess_until_the_load_is_answered(told: int | CallError) -> None:
    runtime = a_runtime(m=Script(predicted=told, told=4 * MIB, load_seconds=5))
    async with await loaded(a_mesh(runtime, "m")) as mesh:
        load = asyncio.create_task(mesh.ensure_loaded("m"))
        await asyncio.sleep(1)
        look = Invariants(mesh, memory_bytes={"m": 3 * MIB}).look
        await look()
        await load
        await look()

    assert rules(mesh) == []


async def test_files_that_stay_in_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "_triton_models" / "m"
    runtime = a_runtime(m=Script())
    async with await loaded(a_mesh(runtime, "m"), "m") as mesh:
        folder.mkdir(parents=True)
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
    runtime = a_runtime(m=Script())

    class Slow(ScriptedRuntime):
        async def index(self) -> dict[str, str]:
            found = dict(self.holding)
            await asyncio.sleep(5)
            return found

    slow = Slow(runtime.now, runtime.scripts)
    async with await loaded(a_mesh(slow, "m"), "m") as mesh:
        mesh.unregister("m")
        assert await Invariants(mesh).look()
        assert mesh.accounted() == set()

    assert rules(mesh) == []


async def test_a_look_across_a_restart_of_modelmesh_or_without_triton_compares_nothing() -> None:
    runtime = a_runtime(m=Script())
    async with await loaded(a_mesh(runtime, "m"), "m") as mesh:
        runtime.is_away = True
        assert not await Invariants(mesh).look()
        runtime.is_away = False
        await mesh.crash()
        assert not await Invariants(mesh).look()


async def test_a_model_called_loaded_that_triton_does_not_have() -> None:
    runtime = a_runtime(m=Script())
    async with await loaded(a_mesh(runtime, "m"), "m") as mesh:
        runtime.holding.clear()
        await mesh.infer("m", REQUEST)

    assert rules(mesh) == ["what is called loaded answers"]


async def test_a_model_lost_in_a_fault_heals_and_is_no_lie() -> None:
    runtime = a_runtime(m=Script())
    async with await loaded(a_mesh(runtime, "m"), "m") as mesh:
        with mesh.watch.fault("Triton dies"):
            runtime.holding.clear()
            await asyncio.sleep(1)
        await mesh.infer("m", REQUEST)

    assert rules(mesh) == []
    assert mesh.watch.figures.counts["heals"] == 1


async def test_a_model_that_never_heals() -> None:
    runtime = a_runtime(m=Script(infer_fails=[NOT_FOUND] * 8))
    async with await loaded(a_mesh(runtime, "m"), "m") as mesh:
        mesh.watch.knows_faults = False
        with pytest.raises(InferenceError, match="8 times"):
            await mesh.infer("m", REQUEST)

    assert rules(mesh) == ["what is called loaded answers"]
    assert runtime.calls["load"] == 8, "the next request begins with the ninth"


async def test_a_model_called_loaded_that_fails_for_longer_than_its_bound() -> None:
    runtime = a_runtime(m=Script(infer_fails=[CallError("UNAVAILABLE", "connection refused")] * 20))
    async with await loaded(a_mesh(runtime, "m"), "m") as mesh:
        for _ in range(10):
            with pytest.raises(InferenceError):
                await mesh.infer("m", REQUEST)
            await asyncio.sleep(6)
        assert rules(mesh) == []
        await asyncio.sleep(3)
        with pytest.raises(InferenceError):
            await mesh.infer("m", REQUEST)

    assert rules(mesh) == ["what is called loaded answers"]


async def test_survivors_are_counted_and_the_lost_are_told() -> None:
    names = ("good", "lost", "gone")
    runtime = a_runtime(lost=Script(infer_fails=[CallError("UNAVAILABLE", "dead")] * 10_000))
    mesh = a_mesh(runtime)
    cases = [Case(Model(name, "", "", "{}"), REQUEST) for name in names]
    traffic = Traffic(mesh, cases, random.Random(1), 1)
    async with await loaded(mesh, *names):
        before = list(mesh.loaded().values())
        mesh.unregister("gone")
        tried, survived, _ = await traffic.survivors(before, 20)

    assert (tried, survived) == (2, 1)
    assert rules(mesh) == ["what is called loaded answers"]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (Script(unload_seconds=200), "unloadModel of m took 200.0 s"),
        (Script(load_seconds=40), "loadModel of m is not answered 30.0 s after the call"),
    ],
    ids=["unload", "load"],
)
async def test_a_call_that_takes_longer_than_its_bound(script: Script, words: str) -> None:
    runtime = a_runtime(m=script)
    async with a_mesh(runtime, "m") as mesh:
        await mesh.start()
        if script.load_seconds:
            with pytest.raises(LoadError):
                await mesh.ensure_loaded("m")
        else:
            await mesh.ensure_loaded("m")
            mesh.unregister("m")
            await asyncio.sleep(300)

    assert rules(mesh) == ["each call is answered within its bound"]
    assert words in mesh.watch.broken[0].words


@pytest.mark.parametrize("predicted", [0, 8192, 100 * MIB])
async def test_a_prediction_that_leaves_a_model_no_chance(predicted: int) -> None:
    runtime = a_runtime(m=Script(predicted=predicted))
    async with a_mesh(runtime, "m") as mesh:
        await mesh.start()
        with pytest.raises(LoadError) if predicted != 8192 else nullcontext():
            await mesh.ensure_loaded("m")
        assert runtime.calls["load"] == (predicted == 8192)

    assert rules(mesh) == ["a prediction leaves the model a chance"]


async def test_a_text_that_would_be_lost_on_the_wire() -> None:
    runtime = a_runtime(m=Script(load_fails=CallError("INTERNAL", "x" * 9000)))
    async with a_mesh(runtime, "m") as mesh:
        await mesh.start()
        with pytest.raises(LoadError):
            await mesh.ensure_loaded("m")

    assert rules(mesh) == ["a text arrives"]


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


async def test_a_defect_of_the_simulator_is_told_as_one() -> None:
    class Odd(ScriptedRuntime):
        async def load(self, model: Model) -> int:
            raise KeyError("odd")

    runtime = Odd(asyncio.get_running_loop().time)
    async with a_mesh(runtime, "m") as mesh:
        await mesh.start()
        with pytest.raises(InferenceError, match="DEADLINE"):
            await mesh.infer("m", REQUEST, seconds=1)

    assert rules(mesh) == ["the simulator itself is sound"]
