"""The simulator drives the whole adapter in this process, over the fake Triton, while that one dies and hangs."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from adapter.settings import Settings
from adapter.wiring import build
from tests.fakes.triton import FakeTriton
from tests.mesh.faults import Fault, mesh_faults
from tests.mesh.mesh import Mesh
from tests.mesh.population import Case, populate
from tests.mesh.runtime import GrpcRuntime
from tests.mesh.session import Session
from tests.mesh.times import Times
from tests.mesh.watch import Watch
from tests.real.pod import BUCKET
from tests.real.s3 import S3Server

MODELS = 30
ENVIRONMENT = {
    "CONTAINER_MEM_REQ_BYTES": "24MiB", "MEM_BUFFER_BYTES": "8MiB", "CACHE_MAX_BYTES": "0", "LOADING_CONCURRENCY": "4",
    "LOADTIME_TIMEOUT": "30000", "METRICS_PORT": "0", "UNLOAD_TIMEOUT_SECONDS": "60",
}  # fmt: skip


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@asynccontextmanager
async def a_session(folder: Path, s3: S3Server, seconds: float) -> AsyncIterator[tuple[Session, FakeTriton]]:
    """Real store, real adapter, both gRPC faces; Triton echoes, so every answer is right."""
    cases = [replace(case, wrong=Case.wrong) for case in populate(MODELS, random.Random(3), partial(s3.put_folder, BUCKET))]
    (folder / "config").mkdir()
    (folder / "config" / "s3").write_text(json.dumps(s3.storage_config(BUCKET)))
    volume = folder / "volume"
    async with FakeTriton(volume / "_triton_models") as triton:
        for case in cases:
            behaviour = triton.behaviour(case.model.model_id)
            behaviour.load_seconds, behaviour.unload_seconds = 0.02, 0.05
            behaviour.refuse = "broken on purpose" if case.kind == "broken" else None
        settings = Settings.from_env(
            ENVIRONMENT
            | {"ROOT_MODEL_DIR": str(volume), "STORAGE_CONFIG_DIR": str(folder / "config"), "RUNTIME_ENDPOINT": triton.target}
            | {"ADAPTER_ENDPOINT": f"unix:{folder}/a.sock", "REQUEST_ENDPOINTS_DENIED": ""}
        )
        async with build(settings), GrpcRuntime(f"unix:{folder}/a.sock", triton.target) as runtime:
            mesh = Mesh(runtime, times=Times().hurried(200), watch=Watch(knows_faults=True), unload_bound_seconds=70)
            yield Session(mesh=mesh, cases=cases, seconds=seconds, rate=60, volume=volume, fault_pause=1), triton


async def test_every_rule_holds_while_models_come_and_go(tmp_path: Path, s3: S3Server) -> None:
    async with a_session(tmp_path, s3, 5) as (session, triton):
        held = await session.run()

        figures = session.mesh.watch.figures
        assert held, session.mesh.watch.broken
        assert figures.counts["evictions"] > 0
        assert figures.ok["load"] > 0
        assert figures.not_ok["load"] > 0, "some are broken on purpose, and one is too large"
        assert triton.in_memory == {}


@pytest.mark.long
async def test_every_rule_holds_while_triton_and_modelmesh_die_and_triton_hangs(tmp_path: Path, s3: S3Server) -> None:
    async with a_session(tmp_path, s3, 6) as (session, triton):

        async def hang() -> None:
            triton.freeze()
            await asyncio.sleep(2)
            triton.thaw()

        deaths: dict[str, Fault] = {"Triton dies": triton.restart, "Triton hangs": hang}
        session.faults = deaths | mesh_faults(session.mesh)
        held = await session.run()

        assert held, session.mesh.watch.broken
        rows = session.mesh.watch.figures.faults
        assert set(rows) <= set(session.faults)
        assert rows
        assert sum(row.lost for row in rows.values()) == 0


async def test_an_adapter_that_answers_an_unload_too_soon_is_found_out(
    tmp_path: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The defect of the Go adapter, planted: the memory is still held when the unload is answered."""
    async with a_session(tmp_path, s3, 30) as (session, triton):
        real = session.mesh.runtime.unload

        async def too_soon(model_id: str) -> None:
            unloads.append(asyncio.create_task(real(model_id)))

        unloads: list[asyncio.Task[None]] = []
        monkeypatch.setattr(session.mesh.runtime, "unload", too_soon)
        for case in session.cases:
            triton.behaviour(case.model.model_id).unload_seconds = 5
        assert not await session.run()
        await asyncio.gather(*unloads, return_exceptions=True)

    found = session.mesh.watch.broken[0].rule
    assert found in ("what was unloaded is gone", "accounted ≥ held", "a healthy model loads"), "the next load may be met by that unload"
