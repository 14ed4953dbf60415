"""Triton has come back empty and its models are restored one by one. What ModelMesh asks in the middle of that is done, and holds."""

from __future__ import annotations

import shutil

import aiohttp
import grpc
import pytest

from adapter._pb import model_runtime_pb2 as spi
from adapter.memory.watch import NOT_TOLD
from tests.fakes.s3_proxy import Fault
from tests.fault.conftest import System, code_of, until_ready
from tests.fault.restores import NAMES, Restores, content, load
from tests.real.ports import free_ports

Code = grpc.StatusCode
STARTING = spi.RuntimeStatusResponse.STARTING


@pytest.fixture
def settings() -> dict[str, str]:
    """One load at a time, so that the order of loads is known."""
    return {"LOADING_CONCURRENCY": "1", "METRICS_PORT": str(free_ports(1)[0])}


@pytest.fixture
async def restores(system: System) -> Restores:
    sizes = {}
    for name in NAMES:
        system.put(f"restored-{name}", model=content(name))
        sizes[name] = (await load(system, name)).sizeInBytes
    return Restores(system, sizes)


async def test_an_unload_of_a_model_whose_restore_waits_is_answered_and_holds(restores: Restores) -> None:
    await restores.begin()

    await restores.system.unload("m0")

    assert not restores.is_placed("m0")
    restores.release()
    await restores.ended("m1", "m2", "m3")
    assert restores.loads == ["m3", "m2", "m1"]
    assert await code_of(restores.system.runtime.modelSize(spi.ModelSizeRequest(modelId="m0"))) is Code.NOT_FOUND


async def test_an_unload_of_a_model_that_triton_restores_waits_for_that_load_and_holds(restores: Restores) -> None:
    """No unload is sent during a load: that ends some Tritons."""
    await restores.begin()
    unload = restores.system.unload("m3")
    await restores.seen()
    assert restores.asked("m3") == ["load"]
    assert not unload.done()
    restores.release()

    await unload

    assert "m3" not in restores.system.triton.in_memory
    assert not restores.is_placed("m3")
    await restores.ended("m0", "m1", "m2")
    assert restores.asked("m3")[:2] == ["load", "unload"]
    assert restores.loads.count("m3") == 1


async def test_an_equal_load_shares_the_restore_that_triton_has(restores: Restores) -> None:
    """A caller that leaves does not end it."""
    await restores.begin()
    leaves, stays = load(restores.system, "m3"), load(restores.system, "m3")
    await restores.seen()
    leaves.cancel()
    await restores.seen()
    restores.release()

    assert (await stays).sizeInBytes == restores.sizes["m3"]
    await restores.ended(*NAMES)
    assert restores.asked("m3") == ["load"]
    assert restores.pulled_bytes == 0


async def test_an_equal_load_of_a_model_whose_restore_waits_is_next_and_pulls_nothing(restores: Restores) -> None:
    await restores.begin()
    call = load(restores.system, "m0")
    await restores.waits("m0", "queue")
    restores.release()

    assert (await call).sizeInBytes == restores.sizes["m0"]
    await restores.ended(*NAMES)
    assert restores.loads == ["m3", "m0", "m2", "m1"]
    assert restores.pulled_bytes == 0


async def test_a_load_of_another_model_is_before_the_restores_that_wait(restores: Restores) -> None:
    restores.system.put("restored-new", model=content("new"))
    await restores.begin()
    call = load(restores.system, "new")
    await restores.waits("new", "queue")
    restores.release()

    await call
    await restores.ended(*NAMES, "new")
    assert restores.loads == ["m3", "new", "m2", "m1", "m0"]


@pytest.mark.parametrize(("name", "asked"), [("m3", ["load", "unload", "load"]), ("m0", ["unload", "load"])], ids=["sent", "waiting"])
async def test_a_load_of_changed_content_takes_the_place_of_the_restore(restores: Restores, name: str, asked: list[str]) -> None:
    """The restored copy is unloaded before the new one is loaded; the old files are never loaded after that."""
    await restores.begin()
    restores.system.put(f"restored-{name}", model=content(name, 2))
    call = load(restores.system, name)
    await (restores.seen() if name == "m3" else restores.waits(name, "queue"))
    restores.release()

    await call

    assert restores.files(name) == content(name, 2)
    await restores.ended(*NAMES)
    assert restores.asked(name) == asked
    assert restores.pulled_bytes == len(content(name, 2))


@pytest.mark.parametrize("name", ["m3", "m0"], ids=["sent", "waiting"])
async def test_modelmeshs_answer_to_a_lost_model_ends_with_the_model_loaded(restores: Restores, name: str) -> None:
    """ModelMesh meets NOT_FOUND at an inference: it unloads the model and loads it again before the unload is answered."""
    await restores.begin()
    unload = restores.system.unload(name)
    await restores.seen()
    again = load(restores.system, name)
    restores.release()

    await unload
    assert (await again).sizeInBytes == restores.sizes[name]
    await restores.ended(*NAMES)


async def test_a_caller_that_shares_a_restore_is_told_of_the_unload_that_ends_it(restores: Restores) -> None:
    await restores.begin()
    call = load(restores.system, "m3")
    await restores.seen()
    unload = restores.system.unload("m3")
    await restores.seen()
    restores.release()

    assert await code_of(call) is Code.ABORTED
    await unload
    await restores.ended("m0", "m1", "m2")


async def test_a_second_crash_in_a_restore_costs_the_model_that_was_loading_and_no_other(restores: Restores) -> None:
    """It may be what killed Triton: it is not sent again without a call. What was back is restored a second time."""
    await restores.begin(held="m2")
    assert "m3" in restores.system.triton.in_memory
    call = load(restores.system, "m2")
    await restores.seen()
    await restores.system.triton.restart(0.1)

    assert await code_of(call) is Code.UNAVAILABLE
    await restores.ended("m0", "m1", "m3")

    assert restores.asked("m2").count("load") == 1, "it was sent before the crash"
    assert not restores.is_placed("m2")
    assert await code_of(restores.system.runtime.modelSize(spi.ModelSizeRequest(modelId="m2"))) is Code.NOT_FOUND
    assert restores.pulled_bytes == 0
    restores.release()
    await load(restores.system, "m2")
    await restores.ended(*NAMES)


@pytest.mark.parametrize("moment", ["sent", "one is back"])
async def test_runtime_status_in_the_middle_of_restores_purges_all_and_nothing_comes_back(restores: Restores, moment: str) -> None:
    await restores.begin("m3" if moment == "sent" else "m2")
    system = restores.system
    assert (await system.runtime.runtimeStatus(spi.RuntimeStatusRequest())).status == STARTING, "Triton still loads"
    restores.release()
    await until_ready(system.runtime)

    assert system.leftovers() == []
    system.put("restored-new", model=content("new"))
    await load(system, "new")
    await restores.ended("new")
    assert restores.loads == (["m3", "new"] if moment == "sent" else ["m3", "m2", "new"])


async def test_a_restore_that_triton_refuses_costs_that_model_alone(restores: Restores) -> None:
    restores.system.triton.behaviour("m3").refuse = "no GPU"
    await restores.begin()
    restores.release()

    await restores.ended("m0", "m1", "m2")

    assert not restores.is_placed("m3")
    assert await code_of(restores.system.runtime.modelSize(spi.ModelSizeRequest(modelId="m3"))) is Code.NOT_FOUND


async def test_a_caller_of_a_restore_that_is_refused_has_the_model_pulled_anew(restores: Restores) -> None:
    """The placed files may be damaged."""
    behaviour = restores.system.triton.behaviour("m3")
    behaviour.refuse = "damaged"
    await restores.begin()
    call = load(restores.system, "m3")
    await restores.seen()
    behaviour.is_held = lambda _: heal()

    def heal() -> bool:
        if restores.asked("m3").count("load") > 1:
            behaviour.refuse = None
        return False

    assert (await call).sizeInBytes == restores.sizes["m3"]
    await restores.ended(*NAMES)
    assert restores.pulled_bytes == len(content("m3"))


async def test_a_directory_that_was_replaced_meanwhile_is_not_loaded(restores: Restores) -> None:
    def replace() -> None:
        folder = restores.system.volume.repository_dir / "m0"
        shutil.copytree(folder, folder.with_name("other"))
        shutil.rmtree(folder)
        folder.with_name("other").rename(folder)

    await restores.begin(while_away=replace)
    restores.release()

    await restores.ended("m1", "m2", "m3")
    assert restores.asked("m0").count("load") == 0
    assert await code_of(restores.system.runtime.modelSize(spi.ModelSizeRequest(modelId="m0"))) is Code.NOT_FOUND


async def test_a_lost_model_is_loaded_for_a_caller_while_storage_is_away(restores: Restores) -> None:
    await restores.begin()
    restores.system.proxy.next(Fault(status=503), times=1000)
    call = load(restores.system, "m0")
    await restores.waits("m0", "queue")
    restores.release()

    assert (await call).sizeInBytes == restores.sizes["m0"]
    restores.system.proxy.heal()
    await restores.ended(*NAMES)


async def test_a_lost_model_is_not_loaded_for_a_caller_that_storage_denies(restores: Restores) -> None:
    await restores.begin()
    restores.system.proxy.next(Fault(status=403, code="AccessDenied"), times=1000)

    assert await code_of(load(restores.system, "m0")) is Code.PERMISSION_DENIED

    restores.system.proxy.heal()
    restores.release()
    await restores.ended("m1", "m2", "m3")
    assert not restores.is_placed("m0")


async def test_sizes_and_readyz_are_told_in_the_middle_of_restores(restores: Restores, settings: dict[str, str]) -> None:
    url = f"http://127.0.0.1:{settings['METRICS_PORT']}/readyz"
    await restores.begin("m2")
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        assert (answer.status, await answer.text()) == (200, f"ready; restoring 1 of 4; {NOT_TOLD}\n")

    assert {name: await restores.size(name) for name in NAMES} == restores.sizes
    restores.release()
    await restores.ended(*NAMES)
    assert {name: await restores.size(name) for name in NAMES} == restores.sizes
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        assert (answer.status, await answer.text()) == (200, f"ready; {NOT_TOLD}\n")


async def test_a_listing_that_fails_after_the_restart_is_asked_again(restores: Restores) -> None:
    restores.system.triton.failing_listings = 3
    await restores.begin()
    restores.release()

    await restores.ended(*NAMES)
