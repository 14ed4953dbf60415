"""What goes wrong with Triton, seen from ModelMesh."""

from __future__ import annotations

import asyncio
import shutil

import grpc
import pytest

from tests.fault.conftest import BUCKET, MODEL, System, until, until_ready

Code = grpc.StatusCode


async def test_a_triton_that_dies_in_a_load_ends_that_load(system: System) -> None:
    """Told at once and not repeated: the model may be what killed it."""
    system.put("m", model=MODEL)
    system.triton.behaviour("m").die = True

    failure = await system.failure("m", "m")

    assert failure.code() is Code.UNAVAILABLE
    assert "died" in failure.details()
    await system.triton.start()
    await system.unload("m")
    assert system.leftovers() == []


@pytest.mark.parametrize("settings", [{"UNLOAD_TIMEOUT_SECONDS": "2"}])
@pytest.mark.parametrize("mistake", ["another repository", "not explicit"])
async def test_a_triton_that_is_restarted_wrong_is_told_of_and_models_come_back_with_the_right_one(system: System, mistake: str) -> None:
    """Nothing is given up meanwhile: no model is sent to a Triton that cannot have it. Calls are told why they fail."""
    system.put("m", model=MODEL)
    names = ["m0", "m1", "m2"]
    await asyncio.gather(*(system.load(name, "m") for name in names))
    right = system.triton.repository
    await system.triton.stop()
    if mistake == "another repository":
        system.triton.repository = right.parent / "elsewhere"
        system.triton.repository.mkdir()
        words = f"Triton's --model-repository is not {right}"
    else:
        system.triton.explicit = False
        words = "without --model-control-mode=explicit"
    await system.triton.start()

    await until(lambda: words in (system.lifecycle.readiness() or ""), "/readyz tells of it")

    assert system.triton.journal.count(("load", "m0")) == 1
    with pytest.raises(grpc.aio.AioRpcError) as unfinished:
        await system.unload("m1")
    assert words in str(unfinished.value.details())
    assert words in str((await system.failure("new", "m")).details())
    await system.triton.stop()
    system.triton.repository, system.triton.explicit = right, True
    await system.triton.start()
    await until(lambda: system.triton.in_memory == {"m0": 1, "m2": 1}, "all are loaded but the one that was to go")
    await system.settled()
    assert system.lifecycle.readiness() is None


async def test_a_refused_model_has_tritons_reason_first(system: System) -> None:
    system.put("m", model=MODEL)
    system.triton.behaviour("m").refuse = "Internal: ModuleNotFoundError: No module named 'torch'"

    failure = await system.failure("m", "m")

    assert failure.code() is Code.INTERNAL
    assert "No module named 'torch'" in failure.details()[:120]
    assert "(model 'm'; " in failure.details()
    assert system.leftovers() == []


async def test_20_kb_of_reason_arrive_as_4_kb(system: System) -> None:
    """ModelMesh loses a status of more than 8 KB as a whole."""
    system.put("m", model=MODEL)
    system.triton.behaviour("m").refuse = "Internal: " + "é%" * 10_000

    failure = await system.failure("m", "m")

    assert failure.code() is Code.INTERNAL
    assert failure.details().endswith(")")
    assert len(failure.details()) > 800
    encoded = sum(1 if 0x20 <= byte <= 0x7E and byte != 0x25 else 3 for byte in failure.details().encode())
    assert encoded <= 4096


@pytest.mark.parametrize("count", [40])
async def test_a_storm_of_loads_never_exceeds_the_loading_slots(system: System, count: int) -> None:
    """`LOADING_CONCURRENCY` holds towards Triton, however many calls come."""
    system.put("m", model=MODEL)
    system.triton.default.load_seconds = 0.02
    await asyncio.gather(*(system.load(f"m{n}", "m") for n in range(count)))
    assert system.triton.max_parallel_loads <= 2

    await until_ready(system.runtime)
    assert system.leftovers() == []


async def test_content_that_killed_triton_three_times_is_not_sent_again(system: System) -> None:
    """The third death is told, the fourth call is refused at once, and a neighbour still loads."""
    system.put("m", model=MODEL)
    system.put("other", model=MODEL + b"  # another")
    system.triton.behaviour("a").die = True
    for code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.FAILED_PRECONDITION):
        assert (await system.failure("a", "m")).code() is code
        await system.triton.start()
        await until(lambda: system.lifecycle.readiness() is None or "does not answer" not in str(system.lifecycle.readiness()), "Triton")
        await system.settled()

    refused = await system.failure("a", "m")

    assert refused.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "has died 3 times" in (refused.details() or "")
    assert system.triton.journal.count(("load", "a")) == 3
    await system.load("b", "other")


async def test_what_was_confirmed_last_is_restored_first(system: System) -> None:
    system.put("m", model=MODEL)
    names = [f"m{number}" for number in range(5)]
    for name in names:
        await system.load(name, "m")
        system.triton.behaviour(name).load_seconds = 0.1
    await system.triton.stop()
    await until(lambda: "does not answer" in (system.lifecycle.readiness() or ""), "Triton is missed")
    before = len(system.triton.journal)
    await system.triton.start()
    await until(lambda: system.triton.in_memory == dict.fromkeys(names, 1), "all are loaded")

    order = [name for call, name in system.triton.journal[before:] if call == "load"]
    assert (set(order[:2]), order[-1]) == ({"m4", "m3"}, "m0"), order
    await system.settled()


async def test_a_ready_model_that_storage_does_not_have_any_more_is_not_found(system: System) -> None:
    system.put("gone", model=MODEL)
    await system.load("a", "gone")
    shutil.rmtree(system.s3.root / BUCKET / "gone")

    assert (await system.failure("a", "gone")).code() is grpc.StatusCode.NOT_FOUND
