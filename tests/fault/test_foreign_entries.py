"""Another process puts entries of any kind and name into our folders: starts, loads and unloads go on, and the entries stay."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import grpc
import pytest

from adapter.errors import StartError
from adapter.model import PROBE
from adapter.settings import Settings
from adapter.volume.volume import Volume
from adapter.wiring import build
from tests.fault.conftest import MODEL, System, environ_of, until, until_ready
from tests.real.small_disk import small_disk

FOLDERS = ("_triton_models", "_adapter", "_adapter/staging", "_adapter/artifacts", "_adapter/trash")
NAMES = (
    b"plain", b"\xff\xfe not utf-8", b"a\nb\t\x01", b"~inner~", b"m~inner~x", b".hidden", b"-rf", b"x" * 255,
    "\u202e\u00e9".encode(), b"%2F",
)  # fmt: skip


def litter(folder: Path, outside: Path) -> None:
    """Every kind of entry with every kind of name."""
    top = os.fsencode(folder)
    os.makedirs(top, exist_ok=True)
    for number, name in enumerate(NAMES):
        path = os.path.join(top, name[:250] + str(number).encode())
        kinds = [number % 6] if len(name) > 200 else range(6)
        for kind in kinds:
            place = path[: len(top) + 250] + b"-" + str(kind).encode()
            if kind == 0:
                Path(os.fsdecode(place)).write_bytes(b"foreign")
            elif kind == 1:
                os.symlink(b"/nowhere/at/all", place)
            elif kind == 2:
                os.symlink(os.fsencode(outside), place)
            elif kind == 3:
                os.mkfifo(place)
            elif kind == 4:
                with closing(socket.socket(socket.AF_UNIX)) as one:
                    descriptor = os.open(top, os.O_PATH)
                    one.bind(b"/proc/self/fd/%d/%s" % (descriptor, os.path.basename(place)[:60]))
                    os.close(descriptor)
            else:
                os.makedirs(place + b"/1/deep")
                Path(os.fsdecode(place), "1", "file").write_bytes(b"foreign")
                os.chmod(place, 0)


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A folder of another program, on the same volume."""
    folder = tmp_path / "volume" / "foreign"
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "model.py").write_bytes(b"precious")
    yield folder
    assert (folder / "1" / "model.py").read_bytes() == b"precious"


async def loads_and_leaves_nothing(system: System) -> None:
    system.put("m", model=MODEL, weights=b"x" * 3_000_000)
    await system.load("m", "m")
    assert system.triton.in_memory == {"m": 1}
    await system.unload("m")
    assert system.triton.in_memory == {}
    assert not (system.volume.repository_dir / "m").exists()


@pytest.fixture
def settings(tmp_path: Path, outside: Path, request: pytest.FixtureRequest) -> dict[str, str]:
    """Before the adapter starts, where the test wants it."""
    if getattr(request, "param", None):
        for folder in FOLDERS:
            litter(tmp_path / "volume" / folder, outside)
    return {}


@pytest.mark.parametrize("settings", [True], indirect=True, ids=["littered"])
async def test_a_start_goes_on_and_modelmesh_is_served(system: System) -> None:
    """Staging, trash and artifacts are ours alone, and emptied; what breaks Triton's index goes with the purge."""
    await until_ready(system.runtime)

    await loads_and_leaves_nothing(system)
    assert [name for folder in ("staging", "artifacts", "trash") for name in os.listdir(system.volume.cache_dir / folder)] == []
    assert os.listdir(system.volume.repository_dir) == []
    assert len(os.listdir(system.volume.cache_dir)) > len(NAMES)


@pytest.fixture
def left(tmp_path: Path) -> str:
    """What a process leaves that is killed while it looks whether Triton lists its folder."""
    name = f"{PROBE}{'a' * 16}"
    (tmp_path / "volume" / "_triton_models" / name).mkdir(parents=True)
    return name


async def test_the_directory_of_a_check_that_was_killed_is_swept_and_taken_for_no_model(left: str, system: System) -> None:
    await until(lambda: not os.listdir(system.volume.repository_dir), "the folder is swept")

    assert system.lifecycle.registry.is_complete
    assert len(system.lifecycle.registry) == 0
    assert left not in (system.volume.cache_dir / "journal.jsonl").read_text()
    await loads_and_leaves_nothing(system)


async def test_work_goes_on_beside_what_comes_meanwhile(system: System, outside: Path) -> None:
    """Loads and unloads of a running adapter."""
    await loads_and_leaves_nothing(system)
    for folder in FOLDERS:
        litter(system.volume.repository_dir.parent / folder, outside)

    await loads_and_leaves_nothing(system)


async def test_a_start_on_a_read_only_file_system_ends_in_words(tmp_path: Path) -> None:
    """A real one; when it can be written again, the adapter starts."""
    with small_disk(tmp_path / "volume") as disk:
        environ = environ_of(tmp_path, f"unix:{tmp_path}/t.sock")
        earlier = Volume(disk / "_triton_models", disk / "_adapter")
        earlier.claim()
        earlier.close()
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        with pytest.raises(StartError, match="Read-only file system"):
            async with build(Settings.from_env(environ)):
                raise AssertionError("it has started")
        subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
        async with build(Settings.from_env(environ)) as adapter, grpc.aio.insecure_channel(adapter.spi.addresses[0]) as channel:
            await channel.channel_ready()
