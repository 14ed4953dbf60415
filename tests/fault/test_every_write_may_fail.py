"""
Every writing call below the volume fails once, and from there on, with each word that a file system has for it.

The whole adapter runs in this process. For each step of a model's life the first call fails, then the second, until the step
meets no failure any more. After each: what Triton can see is whole, the error says what the disk said, an unload is answered, and
with the disk mended the same calls work without a restart, and nothing is left.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import json
import os
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest

from adapter import journal as journal_module
from adapter._pb import model_runtime_pb2 as spi
from adapter.errors import StartError
from adapter.volume import volume as volume_module
from adapter.volume.trees import own_bytes
from adapter.wiring import Adapter
from tests.builders import load_request, tar_of
from tests.fakes.failing_disk import FAULTS, FailingDisk, Fault
from tests.fakes.triton import FakeTriton
from tests.fault.conftest import BUCKET, MODEL, OWN_FILES, PART_BYTES, READY, environ_of, running, until
from tests.real.s3 import S3Server

PATH = "written"
"""In the bucket that all tests of this folder share."""
CONFIG = b'backend: "python"\n'
STRIDE = 4
"""Without `--every-write`, each fourth call fails, with one fault or another."""
CLEAN_SECONDS = 5
"""For threads without a caller."""
MOST_CALLS = 300
"""A step has fewer writing calls."""
WORDS = {
    errno.ENOSPC: (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        r"the volume has no room \(No space left on device\): (the files need .*, )?free are ",
    ),
    errno.EDQUOT: (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        r"the volume has no room \(Disk quota exceeded\): (the files need .*, )?free are ",
    ),
    errno.EROFS: (grpc.StatusCode.UNAVAILABLE, r"the volume is read-only: "),
    errno.EIO: (grpc.StatusCode.UNAVAILABLE, r"the model volume cannot be written: Input/output error"),
    errno.EMFILE: (grpc.StatusCode.UNAVAILABLE, r".*Too many open files"),
}


@dataclass
class Rig:
    """An adapter that can be started again over one volume, one Triton and one store."""

    root: Path
    disk: FailingDisk
    triton: FakeTriton
    s3: S3Server
    environ: dict[str, str]
    adapter: Adapter | None = None
    runtime: Any = None
    puts: int = 0
    has_archive: bool = False
    versions: list[bytes] = field(default_factory=list)
    """Weights that a whole model may have: the last two that were put."""
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def start(self) -> None:
        """Raises StartError."""
        self.adapter, self.runtime = await self._stack.enter_async_context(running(self.environ))

    async def stop(self) -> None:
        await self._stack.aclose()

    def put(self) -> None:
        """Another version of the model, as files and, where the scene needs one, as an archive."""
        self.puts += 1
        weights = self.puts.to_bytes(4, "big") * (PART_BYTES // 4 + 5)
        self.versions = [*self.versions[-1:], weights]
        files = {"config.pbtxt": CONFIG, "1/model.py": MODEL, "1/deep/weights.bin": weights}
        self.s3.put_folder(BUCKET, PATH, files)
        if not self.has_archive:
            return
        self.s3.put(BUCKET, "packed/m.tar", tar_of(files.items(), "w"))

    async def load(self) -> None:
        await self.runtime.loadModel(load_request("m", "python", PATH))

    async def load_packed(self) -> None:
        await self.runtime.loadModel(load_request("m", "python", "packed/m.tar", storage_params={"unpack": "true"}))

    async def unload(self) -> None:
        await self.runtime.unloadModel(spi.UnloadModelRequest(modelId="m"))

    async def is_ready(self) -> bool:
        """What ModelMesh is told; the first question begins a purge."""
        answer = await self.runtime.runtimeStatus(spi.RuntimeStatusRequest())
        return bool(answer.status == READY)

    def check_visible(self) -> None:
        """Nothing in Triton's folder is half a model."""
        for model in (self.root / "_triton_models").iterdir():
            found = {str(path.relative_to(model)): path.read_bytes() for path in model.rglob("*") if path.is_file()}
            if found:
                assert set(found) == {"config.pbtxt", "1/model.py", "1/deep/weights.bin"}
                assert found["1/model.py"] == MODEL
                assert found["1/deep/weights.bin"] in self.versions

    async def settled(self) -> None:
        assert self.adapter is not None
        registry = self.adapter.lifecycle.registry
        await until(lambda: not registry.operations(), "nothing under way")

    async def emptied(self, where: str, *, with_kept: bool, but: Sequence[str] = ()) -> None:
        """Wait, for a time, until nothing is left."""
        deadline = asyncio.get_running_loop().time() + CLEAN_SECONDS
        while left := [name for name in self.left(with_kept=with_kept) if name not in but]:
            assert asyncio.get_running_loop().time() < deadline, f"{where}: {left}"
            gc.collect()  # what a failed load has opened goes with its objects
            await asyncio.sleep(0.01)

    def left(self, *, with_kept: bool) -> list[str]:
        """Files and folders that no model and no kept artifact needs."""
        folders = ["_triton_models", "_adapter/staging", "_adapter/trash"] + ([] if with_kept else ["_adapter/artifacts"])
        found = [f"{folder}/{name}" for folder in folders for name in os.listdir(self.root / folder)]
        return found + [name for name in os.listdir(self.root / "_adapter") if name not in (*OWN_FILES, "staging", "trash", "artifacts")]

    def miscounted_bytes(self) -> int:
        """What the budget counts, without what lies there."""
        assert self.adapter is not None
        lies = own_bytes(self.root / name for name in ("_triton_models", "_adapter/staging", "_adapter/trash", "_adapter/artifacts"))
        return self.adapter.space.held_bytes() - lies


@dataclass(frozen=True)
class Scene:
    """A step, and what comes before."""

    before: tuple[str, ...]
    act: str
    keeps: bool
    """Whether the cache keeps what is idle."""


SCENES = {
    "load": Scene(("put",), "load", False),
    "load beside what is kept": Scene(("put",), "load", True),
    "equal load": Scene(("load",), "load", False),
    "changed content": Scene(("load", "put"), "load", True),
    "load of kept files": Scene(("load", "unload"), "load", True),
    "unload": Scene(("load",), "unload", False),
    "unload with a cache": Scene(("load",), "unload", True),
    "archive": Scene(("put",), "load_packed", False),
    "archive of which other files are kept": Scene(("load_packed", "put"), "load_packed", True),
}


@pytest.fixture
async def rig(tmp_path: Path, config: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    for module, name in (
        (journal_module, "FIRST_PAUSE_SECONDS"),
        (journal_module, "LONGEST_PAUSE_SECONDS"),
        (volume_module, "RETRY_SECONDS"),
    ):
        monkeypatch.setattr(module, name, 0.01)
    root = tmp_path / "volume"
    (config / "s3").write_text(json.dumps(s3.storage_config(BUCKET)))
    async with FakeTriton(root / "_triton_models") as triton:
        environ = environ_of(tmp_path, triton.target, REQUEST_ENDPOINTS_DENIED="")
        with FailingDisk(root).installed() as disk:
            rig = Rig(root, disk, triton, s3, environ)
            yield rig
            disk.mend()
            await rig.stop()


@pytest.mark.parametrize("fault", FAULTS, ids=str)
@pytest.mark.parametrize("name", SCENES)
async def test_every_write_of_a_step_may_fail(rig: Rig, request: pytest.FixtureRequest, name: str, fault: Fault) -> None:
    scene = SCENES[name]
    rig.environ["CACHE_MAX_BYTES"] = "1GiB" if scene.keeps else "0"
    rig.has_archive = scene.act == "load_packed"
    await rig.start()
    rig.put()
    for call in calls_to_fail(request, fault):
        for before in scene.before:
            await run(rig, before)
        rig.disk.break_at(call, fault)
        failure = await outcome(rig, scene.act)
        where = f"call {call}: {rig.disk.failed}"
        rig.check_visible()
        if scene.act == "unload":
            assert failure is None, f"{where}: {failure}"
            assert rig.triton.in_memory == {}, where
        elif failure is None:
            assert rig.triton.in_memory == {"m": 1}, where
        else:
            code, words = WORDS[fault.number]
            assert (failure.code(), bool(re.match(words, failure.details() or ""))) == (code, True), f"{where}: {failure.details()}"
        await rig.settled()
        failed = rig.disk.mend()
        await run(rig, scene.act)
        await run(rig, "load")
        rig.check_visible()
        assert rig.triton.in_memory == {"m": 1}, where
        assert rig.miscounted_bytes() == 0, where
        await run(rig, "unload")
        await rig.settled()
        await rig.emptied(where, with_kept=scene.keeps)
        assert rig.miscounted_bytes() == 0, where
        if not failed:
            return
    raise AssertionError("the step has more writing calls than a step can have")


@pytest.mark.parametrize("fault", FAULTS, ids=str)
async def test_every_write_of_a_start_may_fail(rig: Rig, request: pytest.FixtureRequest, fault: Fault) -> None:
    """It starts, or ends in a sentence; with the disk mended, a start finds the model that serves, and nothing else is left."""
    rig.environ["CACHE_MAX_BYTES"] = "1GiB"
    await rig.start()
    rig.put()
    await rig.load()
    for call in calls_to_fail(request, fault):
        await rig.stop()
        half = rig.root / "_adapter" / "staging" / "of-one-that-died"
        half.mkdir(parents=True, exist_ok=True)
        (half / "f").write_bytes(b"x")
        rig.disk.break_at(call, fault)
        try:
            await rig.start()
            await until(lambda: rig.triton.in_memory == {"m": 1}, "the model serves")
        except StartError as ended:
            assert os.strerror(fault.number) in str(ended), f"call {call}: {rig.disk.failed}"
        rig.check_visible()
        failed = rig.disk.mend()
        await rig.stop()
        await rig.start()
        await rig.load()
        assert rig.triton.in_memory == {"m": 1}
        await rig.emptied(f"call {call}: {failed}", but=["_triton_models/m"], with_kept=True)
        assert rig.miscounted_bytes() == 0, f"call {call}: {failed}"
        if not failed:
            return
    raise AssertionError("a start has more writing calls than a start can have")


@pytest.mark.parametrize("fault", FAULTS, ids=str)
async def test_every_write_of_a_purge_may_fail(rig: Rig, request: pytest.FixtureRequest, fault: Fault) -> None:
    """As ModelMesh begins: it asks until the answer is READY. Nothing is in memory then, and nothing is left when the disk is mended."""
    rig.environ["CACHE_MAX_BYTES"] = "0"
    await rig.start()
    rig.put()
    for call in calls_to_fail(request, fault):
        await rig.load()
        rig.disk.break_at(call, fault)
        is_ready = await rig.is_ready()
        where = f"call {call}: {rig.disk.failed}"
        rig.check_visible()
        assert not is_ready or rig.triton.in_memory == {}, where
        failed = rig.disk.mend()
        async with asyncio.timeout(20):
            while not is_ready:
                is_ready = await rig.is_ready()
        assert rig.triton.in_memory == {}, where
        await rig.load()
        await rig.unload()
        await rig.emptied(where, with_kept=False)
        assert rig.miscounted_bytes() == 0, where
        if not failed:
            return
    raise AssertionError("a purge has more writing calls than a purge can have")


def calls_to_fail(request: pytest.FixtureRequest, fault: Fault) -> range:
    """Their numbers; the step has fewer calls."""
    every = request.config.getoption("--every-write")
    return range(1, MOST_CALLS) if every else range(1 + STRIDE * FAULTS.index(fault), MOST_CALLS, STRIDE * len(FAULTS))


async def run(rig: Rig, step: str) -> None:
    """A step that must work."""
    done = getattr(rig, step)()
    if done is not None:
        await done


async def outcome(rig: Rig, step: str) -> grpc.aio.AioRpcError | None:
    """How a step fails."""
    try:
        await run(rig, step)
    except grpc.aio.AioRpcError as failure:
        return failure
    return None
