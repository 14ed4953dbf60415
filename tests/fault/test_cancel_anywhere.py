"""A load that is cancelled at any point, followed by an unload, leaves nothing: not in Triton, on disk, or in our table."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable
from typing import Any, Protocol

import pytest

from tests.fakes.s3_proxy import Fault
from tests.fault.conftest import MODEL, PART_BYTES, Hold, System, until

Patch = pytest.MonkeyPatch


class Held(Protocol):
    """A load of `m` that stays where it is."""

    async def reached(self) -> None: ...

    def release(self) -> None: ...


def storage(having: str) -> Callable[[System, Patch], Held]:
    """S3 has a request of this kind, and has not answered."""

    def hold(system: System, patch: Patch) -> Held:
        point = Hold()
        system.proxy.next(Fault(first=point), having=having)
        return point

    return hold


def volume(method: str, *, call: int = 1, is_done: bool) -> Callable[[System, Patch], Held]:
    """A thread is about to do this with the volume for the first or second time, or has just done it."""

    def hold(system: System, patch: Patch) -> Held:
        point, calls, original = Hold(), itertools.count(1), getattr(system.volume, method)

        def held(*arguments: Any) -> Any:
            is_it = next(calls) == call
            if is_it and not is_done:
                point()
            result = original(*arguments)
            if is_it and is_done:
                point()
            return result

        patch.setattr(system.volume, method, held)
        return point

    return hold


class TritonLoads:
    """Triton has the load, and cannot cancel it."""

    def __init__(self, system: System, _patch: Patch) -> None:
        self._system = system
        self._is_held = True
        system.triton.behaviour("m").is_held = lambda step: step == "load" and self._is_held

    async def reached(self) -> None:
        await self._system.triton.arrival("load", "m")

    def release(self) -> None:
        self._is_held = False


class TritonIsMeasured(TritonLoads):
    """The model is loaded; Triton does not say how large it is."""

    async def reached(self) -> None:
        await super().reached()
        self._system.triton.freeze()
        super().release()
        await until(lambda: "measure" in self._system.phases("m"), "the last step of the load")

    def release(self) -> None:
        self._system.triton.thaw()


POINTS: dict[str, Callable[[System, Patch], Held]] = {
    "the store lists": storage("list-type"),
    "the store gives the config": storage("config.pbtxt"),
    "the store gives a part": storage("weights.bin"),
    "staging is not made": volume("new_staging", is_done=False),
    "staging is made": volume("new_staging", is_done=True),
    "the artifact is not published": volume("publish", is_done=False),
    "the artifact is published": volume("publish", is_done=True),
    "the model is not placed": volume("new_staging", call=2, is_done=False),
    "the model is about to be built": volume("new_staging", call=2, is_done=True),
    "Triton loads": TritonLoads,
    "Triton is measured": TritonIsMeasured,
}


@pytest.mark.parametrize("with_unload", [True, False], ids=["then unload", "and nothing else"])
@pytest.mark.parametrize("point", POINTS)
async def test_at_any_point(system: System, monkeypatch: pytest.MonkeyPatch, point: str, with_unload: bool) -> None:
    """The same id is loaded for real afterwards."""
    system.put("m", model=MODEL, weights=b"w" * 3 * PART_BYTES, config=b'backend: "python"')
    held = POINTS[point](system, monkeypatch)
    load = system.load("m", "m")
    await held.reached()
    load.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await load
    await system.deserted()
    unload = asyncio.ensure_future(system.unload("m")) if with_unload else None
    held.release()
    if unload is not None:
        await unload
    await system.settled()

    assert system.leftovers() == []
    assert (await system.load("m", "m")).sizeInBytes > 8192
    await system.unload("m")
    assert system.leftovers() == []


@pytest.mark.parametrize("after_bytes", [-1, 0, 100_000], ids=["before the headers", "before the body", "in the body"])
@pytest.mark.parametrize("request_of", ["list-type", "weights.bin"], ids=["listing", "object"])
async def test_a_store_that_hangs_is_left_at_once(system: System, request_of: str, after_bytes: int) -> None:
    """The socket is cut: the unload need not wait for the read timeout of 10 s."""
    system.put("m", model=MODEL, weights=b"w" * 3 * PART_BYTES)
    system.proxy.next(Fault(hang_after_bytes=min(after_bytes, 50) if request_of == "list-type" else after_bytes), having=request_of)
    load = system.load("m", "m")
    assert await asyncio.to_thread(system.proxy.hanging.wait, 10)
    load.cancel()
    loop = asyncio.get_running_loop()
    started = loop.time()
    await system.unload("m")

    assert loop.time() - started < 9.5
    assert system.leftovers() == []


async def test_while_it_waits_for_a_loading_slot(system: System) -> None:
    """A queued load never reaches Triton."""
    system.put("m", model=MODEL)
    is_free = asyncio.Event()
    for name in ("a", "b"):
        system.triton.behaviour(name).is_held = lambda step: step == "load" and not is_free.is_set()
    running = [system.load(name, "m") for name in ("a", "b")]
    for name in ("a", "b"):
        await system.triton.arrival("load", name)
    queued = system.load("c", "m")
    await until(lambda: "queue" in system.phases("c"), "a load that waits for a slot")
    queued.cancel()
    await system.unload("c")
    is_free.set()

    assert "c" not in system.triton.in_memory
    await asyncio.gather(*running)
    await asyncio.gather(system.unload("a"), system.unload("b"))
    assert system.leftovers() == []
