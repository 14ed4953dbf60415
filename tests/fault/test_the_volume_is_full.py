"""A full volume, or a budget that is reached, seen from ModelMesh: the error names it, nothing is left, and work goes on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from adapter.triton.repository import Repository
from tests.fault.conftest import MODEL, System
from tests.real.small_disk import small_disk

MIB = 1024 * 1024


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """The system's volume: 8 MiB and 200 inodes."""
    with small_disk(tmp_path / "volume") as folder:
        yield folder


@pytest.fixture
def settings(disk: Path) -> dict[str, str]:
    """The volume is there before the adapter is."""
    assert disk.is_mount()
    return {}


class Filler:
    """Files of another program, which take all that is left."""

    def __init__(self, disk: Path) -> None:
        self._folder = disk / "foreign"
        self._folder.mkdir()

    def take_bytes(self) -> None:
        with (self._folder / "large").open("wb", buffering=0) as file:
            for size_bytes in (MIB, 4096):
                try:
                    while True:
                        file.write(bytes(size_bytes))
                except OSError:
                    continue

    def take_names(self) -> None:
        try:
            for number in range(1000):
                (self._folder / str(number)).touch()
        except OSError:
            return
        raise AssertionError("the volume has no bound of names")

    def give_back(self) -> None:
        for path in self._folder.iterdir():
            path.unlink()


@pytest.fixture
def filler(disk: Path) -> Filler:
    return Filler(disk)


async def test_a_model_larger_than_the_volume_is_refused_with_both_numbers(system: System) -> None:
    """Before the first byte. A smaller one loads."""
    system.put("large", model=MODEL, weights=bytes(9 * MIB))
    system.put("small", model=MODEL, weights=bytes(3 * MIB))

    failure = await system.failure("m", "large")

    assert failure.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert failure.details().startswith("the volume has no room: the files need 9 MiB (9437213 bytes), free are 8 MiB")
    assert system.leftovers() == []
    await system.load("m", "small")
    await system.unload("m")
    assert system.leftovers() == []


@pytest.mark.parametrize("settings", [{"CACHE_MAX_BYTES": "2MiB"}])
async def test_a_model_larger_than_the_budget_is_refused_with_the_setting(system: System) -> None:
    """The volume has enough space. A smaller model loads."""
    system.put("large", model=MODEL, weights=bytes(3 * MIB))
    system.put("small", model=MODEL, weights=bytes(MIB))

    failure = await system.failure("m", "large")

    assert failure.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert failure.details().startswith(
        "CACHE_MAX_BYTES is reached: the files need 3 MiB (3145757 bytes), and of the 2 MiB (2097152 bytes) that it allows"
    )
    assert system.leftovers() == []
    await system.load("m", "small")


@pytest.mark.parametrize("what", ["take_bytes", "take_names"])
async def test_a_volume_that_fills_up_before_the_placing(
    system: System, filler: Filler, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """The pull had enough space. Nothing is left of it, and with enough space the next load works."""
    system.put("m", model=MODEL, config=b'backend: "python"')
    built = Repository._built

    def filled(*arguments: object) -> str:
        getattr(filler, what)()
        return built(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Repository, "_built", filled)
        failure = await system.failure("m", "m")
    filler.give_back()

    assert failure.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert failure.details().startswith("the volume has no room (No space left on device)")
    assert system.leftovers() == []
    await system.load("m", "m")


@pytest.mark.parametrize("what", ["take_bytes", "take_names"])
async def test_an_unload_needs_no_space(system: System, filler: Filler, what: str) -> None:
    """Also of a model that was never there: its directory cannot be made."""
    system.put("m", model=MODEL)
    await system.load("m", "m")
    getattr(filler, what)()

    await system.unload("m")
    await system.unload("absent")

    assert system.triton.in_memory == {} and os.listdir(system.volume.repository_dir) == []
    filler.give_back()
    assert system.leftovers() == []
