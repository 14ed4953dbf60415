"""Whatever ends the adapter, also a start that fails at any stage: no thread, task, port, lock or socket file is left."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NoReturn

import pytest

from adapter import wiring
from adapter.errors import StartError
from adapter.settings import Settings
from adapter.storage.store import Store
from adapter.triton.server import TritonServer
from adapter.volume.volume import Volume
from adapter.workers import Workers
from tests.fault.conftest import Hold, until
from tests.real.ports import free_ports

STAGES = ["Store", "Repository", "TritonClient", "TritonServer", "RuntimeLifecycle", "TelemetryServer", "ModelRuntime", "listen"]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Triton is away: nothing here needs it."""
    return Settings.from_env(
        {
            "CONTAINER_MEM_REQ_BYTES": "2GiB", "ROOT_MODEL_DIR": f"{tmp_path}/volume", "METRICS_PORT": str(free_ports(1)[0]),
            "ADAPTER_ENDPOINT": f"unix:{tmp_path}/a.sock", "RUNTIME_ENDPOINT": f"unix:{tmp_path}/triton.sock",
        }
    )  # fmt: skip


@pytest.fixture(autouse=True)
async def nothing_is_left(settings: Settings) -> AsyncIterator[None]:
    """Checked after each test."""
    before = set(threading.enumerate())
    yield
    await until(lambda: not ours(before), f"threads that end: {ours(before)}")
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert settings.spi.listen.socket is not None and not os.path.lexists(settings.spi.listen.socket)
    with socket.socket(socket.AF_INET6) as port:
        port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        port.bind(("::", settings.telemetry.metrics_port))
    later = Volume(settings.volume.repository_dir, settings.volume.cache_dir)
    later.claim()
    later.close()


def is_grpcs(thread: threading.Thread) -> bool:
    """gRPC's poller serves the whole process."""
    return "_poll_wrapper" in thread.name


def ours(before: set[threading.Thread]) -> list[str]:
    """Names of new threads."""
    return [thread.name for thread in set(threading.enumerate()) - before if not is_grpcs(thread)]


def fail(*_: object, **__: object) -> NoReturn:
    raise StartError("this stage fails")


async def test_an_adapter_that_has_run(settings: Settings) -> None:
    async with wiring.build(settings) as adapter:
        assert adapter.spi.addresses == [f"unix:{settings.spi.listen.socket}"]
        assert not any(task.done() for task in adapter.root_tasks)


async def test_an_adapter_whose_work_fails(settings: Settings) -> None:
    with pytest.raises(ZeroDivisionError):
        async with wiring.build(settings):
            raise ZeroDivisionError


@pytest.mark.parametrize("stage", STAGES)
async def test_a_start_that_fails(settings: Settings, monkeypatch: pytest.MonkeyPatch, stage: str) -> None:
    """Everything that was made before the stage is closed."""
    monkeypatch.setattr(wiring, stage, fail)

    with pytest.raises(StartError, match="this stage fails"):
        async with wiring.build(settings):
            pytest.fail("the start went on")


async def test_a_start_without_enough_threads(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit of processes, met by each thread in turn: one sentence, until there are enough."""
    before = set(threading.enumerate())
    original = threading.Thread.start
    allowed, started = 0, 0

    def start(thread: threading.Thread) -> None:
        nonlocal started
        if is_grpcs(thread):  # without its poller gRPC ends the process by a segmentation fault
            return original(thread)
        if started == allowed:
            raise RuntimeError("can't start new thread")
        started += 1
        return original(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    while True:
        try:
            async with wiring.build(settings):
                break
        except StartError as error:
            assert "cannot start: can't start new thread" in str(error)
        await until(lambda: not ours(before), f"threads that end: {ours(before)}")
        allowed, started = allowed + 1, 0
    assert allowed > 40


@pytest.mark.parametrize("seconds", [0.01, 1000.0])
async def test_an_adapter_that_is_cancelled_while_storage_hangs(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """A credential chain that waits for the network, or is not asked yet since ModelMesh has not had its first answer; and a signal."""
    begun = asyncio.Event()

    async def prepare(_: Store) -> None:
        begun.set()
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(Store, "prepare", prepare)
    monkeypatch.setattr(wiring, "FIRST_ANSWER_SECONDS", seconds)
    is_up = asyncio.Event()

    async def run() -> None:
        async with wiring.build(settings):
            is_up.set()
            await asyncio.get_running_loop().create_future()

    running = asyncio.create_task(run())
    async with asyncio.timeout(60):
        await is_up.wait()
        if seconds < 1:
            await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert begun.is_set() == (seconds < 1)


async def test_an_end_while_the_volume_hangs(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The take-over is in a thread that nothing can wake: it is left behind, for it must not keep the pod."""
    hold, workers = Hold(), Workers("volume", 1)

    async def index(_: TritonServer) -> NoReturn:
        await workers.run(lambda _: hold())
        raise AssertionError("unreachable: the take-over was cancelled")

    monkeypatch.setattr(TritonServer, "index", index)

    async with asyncio.timeout(10):
        async with wiring.build(settings):
            await hold.reached()

    hold.release()
    workers.close()
    await until(lambda: len(asyncio.all_tasks()) == 1, "the take-over ends with its thread")
