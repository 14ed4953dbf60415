"""What no call asks for: models that are left half done, folders that were deleted, files of the user; and READY beside busy fronts."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import aiohttp
import pytest

from tests.fakes.triton import FakeTriton
from tests.fault.conftest import MODEL, System, until, until_ready
from tests.real.models import write
from tests.real.ports import free_ports

SECONDS = 12.0
"""What is right takes a fraction of it."""


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, str]:
    """Two HTTP fronts; a small capacity."""
    sagemaker, v2 = free_ports(2)
    return {
        "SAGEMAKER_PORT": str(sagemaker),
        "SAGEMAKER_MODEL_ROOTS": str(tmp_path),
        "V2_REST_PORT": str(v2),
        "V2_REPOSITORY_API": "true",
        "HTTP_ADDRESS": "127.0.0.1",
        "UNLOAD_TIMEOUT_SECONDS": "2",
        "CONTAINER_MEM_REQ_BYTES": "512MiB",
    }


def folder_of(tmp_path: Path, name: str, weights_mib: int = 0) -> Path:
    """A python model as the platform has unpacked it."""
    folder = tmp_path / "opt" / name
    write({"config.pbtxt": b'backend: "python"\n', "1/model.py": MODEL}, folder)
    if weights_mib:
        with (folder / "1" / "weights.bin").open("wb") as file:
            file.truncate(weights_mib * 2**20)
    return folder


async def load(session: aiohttp.ClientSession, settings: dict[str, str], name: str, folder: Path) -> int:
    url = f"http://127.0.0.1:{settings['SAGEMAKER_PORT']}/models"
    async with session.post(url, json={"model_name": name, "url": str(folder)}) as answer:
        return answer.status


async def unload(session: aiohttp.ClientSession, settings: dict[str, str], name: str) -> int:
    async with session.delete(f"http://127.0.0.1:{settings['SAGEMAKER_PORT']}/models/{name}") as answer:
        return answer.status


async def test_what_a_restart_has_freed_is_free(system: System, settings: dict[str, str], tmp_path: Path) -> None:
    large = folder_of(tmp_path, "large", 120)
    await until_ready(system.runtime, SECONDS)
    async with aiohttp.ClientSession() as session:
        assert await load(session, settings, "a", large) == 200
        system.triton.behaviour("a").unload_seconds = 60.0
        assert await unload(session, settings, "a") >= 500
        await system.triton.restart()
        system.triton.behaviour("a").unload_seconds = 0.0
        status, tries = 0, 0
        while (status := await load(session, settings, "b", large)) != 200 and tries < SECONDS / 0.2:
            tries += 1
            await asyncio.sleep(0.2)
        assert status == 200
    assert not (system.volume.repository_dir / "a").exists()


async def test_loads_of_a_front_do_not_withhold_ready(system: System, settings: dict[str, str], tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "m")
    system.triton.default.unload_seconds = 2.5

    async def keep_loading(session: aiohttp.ClientSession) -> None:
        number = 0
        while True:
            number += 1
            if await load(session, settings, f"m{number}", folder) != 200:
                await asyncio.sleep(0.05)

    async with aiohttp.ClientSession() as session:
        loads = asyncio.create_task(keep_loading(session))
        try:
            await until(lambda: len(system.triton.in_memory) > 3, "models of the front")
            await until_ready(system.runtime, SECONDS, pause_seconds=1)
        finally:
            loads.cancel()
            await asyncio.wait({loads})


async def test_a_purge_keeps_a_directory_of_the_user_under_a_former_name(system: System, settings: dict[str, str], tmp_path: Path) -> None:
    system.put("m", model=MODEL)
    await system.load("mine", "m")
    await system.unload("mine")
    theirs = system.volume.repository_dir / "mine"
    shutil.copytree(folder_of(tmp_path, "theirs"), theirs)
    async with aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{settings['V2_REST_PORT']}/v2/repository/models/mine/load"
        async with session.post(url, json={}) as answer:
            assert answer.status == 200, await answer.text()

    await until_ready(system.runtime, SECONDS)

    assert system.triton.in_memory == {}
    assert (theirs / "1" / "model.py").read_bytes() == MODEL


async def test_nothing_is_remembered_of_names_that_a_client_makes_up(system: System, settings: dict[str, str]) -> None:
    await until_ready(system.runtime, SECONDS)
    async with aiohttp.ClientSession() as session:
        for number in range(5):
            url = f"http://127.0.0.1:{settings['V2_REST_PORT']}/v2/repository/models/no{number}/load"
            async with session.post(url, json={}) as answer:
                assert 400 <= answer.status < 500, await answer.text()

    assert system.lifecycle._ports.server._loads.answered == set()


async def test_a_dead_backend_is_no_dead_triton(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    system.put("m", model=MODEL)
    monkeypatch.setattr(FakeTriton, "_ready", lambda self, name: [])  # listed as READY; not ready, and without statistics
    texts = []
    for _ in range(4):
        texts.append(str((await system.failure("a", "m")).details()))
        await system.settled()

    assert system.triton.starts == 1
    assert not [text for text in texts if "has died" in text], texts
