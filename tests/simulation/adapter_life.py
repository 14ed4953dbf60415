"""One life of the adapter: the real parts over the virtual Triton, the virtual stores and the real folder, as `wiring` connects them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from adapter.journal import NAME as JOURNAL
from adapter.journal import Journal
from adapter.lifecycle.lifecycle import RuntimeLifecycle
from adapter.model import RESERVED_IDS
from adapter.ports import Ports
from adapter.settings.capacity import CapacitySettings
from adapter.storage.store import Store
from adapter.triton.loads import Limits
from adapter.triton.repository import Repository
from adapter.triton.server import TritonServer
from adapter.volume.space import Space
from adapter.volume.volume import Volume
from adapter.workers import retrieve
from tests.fakes.memory import UntoldMemory
from tests.simulation.client import Client
from tests.simulation.loop import Life
from tests.simulation.store import Clients
from tests.unit.storage.rigs import pull_settings

UNLOAD_SECONDS = 170.0
READ_SECONDS = 5.0
ROOT_TASK = "watch of Triton"
"""Name of the task that runs as long as the adapter does."""
SILENT_SECONDS = 60.0
PART_BYTES = 16 * 1024


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What all lives of one history share."""

    root: Path
    capacity: CapacitySettings
    load_threads: int
    max_bytes: int
    refuses: bool
    decide: random.Random


@dataclass(eq=False)
class Adapter:
    """A started adapter."""

    life: Life
    volume: Volume
    journal: Journal
    space: Space
    store: Store
    repository: Repository
    server: TritonServer
    client: Client
    lifecycle: RuntimeLifecycle


def assembled(setup: Setup, life: Life, volume: Volume, client: Client, clients: Clients) -> Adapter:
    """Everything but the volume, which comes first; as `adapter.wiring.build`. Blocks."""
    journal = Journal(volume.cache_dir / JOURNAL, discard=volume.discard)
    space = Space(volume.cache_dir, setup.max_bytes, refuses=setup.refuses)
    space.counted_by("trash", volume.left_bytes)
    store = Store(
        settings=pull_settings(setup.root, threads=16, unpack_max_bytes=1 << 30),
        root=setup.root / "models",
        volume=volume,
        space=space,
        digests=journal.digests,
        clients=clients.bucket,
        part_bytes=PART_BYTES,
        jitter=setup.decide.random,
    )
    repository = Repository(volume, space)
    server = TritonServer(
        client,  # type: ignore[arg-type] # has the methods that are called
        repository,
        Limits(setup.capacity.max_loading, setup.load_threads, setup.capacity.load_timeout_ms / 1000, SILENT_SECONDS),
    )
    lifecycle = RuntimeLifecycle(
        ports=Ports(store, repository, server, journal, UntoldMemory()),
        capacity=setup.capacity,
        unload_timeout_seconds=UNLOAD_SECONDS,
        reserved_ids=RESERVED_IDS,
    )
    return Adapter(life, volume, journal, space, store, repository, server, client, lifecycle)


async def begin(adapter: Adapter, listen: Callable[[], None]) -> None:
    """What runs as long as the adapter does; ModelMesh is listened to last."""
    watch = asyncio.create_task(adapter.server.watch(), name=ROOT_TASK)
    reading = asyncio.create_task(adapter.store.ready(), name="cache")
    reading.add_done_callback(retrieve)
    await asyncio.wait({reading}, timeout=READ_SECONDS)
    adapter.lifecycle.start()
    listen()
    preparing = asyncio.create_task(adapter.store.prepare(), name="storage clients")
    preparing.add_done_callback(lambda done: done.cancelled() or done.exception())
    await watch
