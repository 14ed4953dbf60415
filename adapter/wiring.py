"""
Builds and connects the objects of a running adapter, or of a REST proxy, and takes them apart: the only place that does.

Order of start: the volume (a second adapter ends here), storage, Triton, the lifecycle, HTTP health,
the SPI. Whatever ends the context, also a start that fails half way, closes in reverse what was made.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog

from adapter.journal import NAME as JOURNAL
from adapter.journal import Journal
from adapter.lifecycle.lifecycle import RuntimeLifecycle
from adapter.memory.report import beside
from adapter.memory.watch import Watch
from adapter.ports import Ports
from adapter.serving import KnownModel
from adapter.settings import ProxySettings, Settings
from adapter.settings.fronts import RestProxySettings
from adapter.spi.listen import SpiServer, listen
from adapter.spi.servicer import ModelRuntime
from adapter.storage.store import Store
from adapter.storage.stores.clients import Buckets
from adapter.telemetry import metrics
from adapter.telemetry.http import TelemetryServer
from adapter.triton.client import TritonClient
from adapter.triton.companion import Companion
from adapter.triton.loads import Limits
from adapter.triton.repository import Repository
from adapter.triton.server import TritonServer
from adapter.units import Endpoint
from adapter.volume.space import Space
from adapter.volume.volume import Volume
from adapter.waits import end, set_within
from adapter.workers import retrieve

if TYPE_CHECKING:
    from adapter.fronts.edge import Listeners
    from adapter.triton.inference.client import MeshInference

READ_SECONDS = 5.0
"""Longest wait for what an earlier process has left in the cache; it is read on in the background, and a load waits for it in any case."""
FIRST_ANSWER_SECONDS = 0.5
"""Longest wait for ModelMesh's first question; it may not come: an adapter that restarts alone is not asked."""
END_SECONDS = 1.0
"""Longest wait for what is closed or cancelled: a thread that hangs in the volume must not keep the pod."""

log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True)
class Adapter:
    """A started adapter."""

    volume: Volume
    space: Space
    lifecycle: RuntimeLifecycle
    spi: SpiServer | None
    """None: ModelMesh has no part in it."""
    companion: Companion | None
    """Triton, where it is our child."""
    fronts: Sequence[Listeners]
    """None, or those of all HTTP fronts that are on."""
    root_tasks: Sequence[asyncio.Task[None]]
    """Run for as long as the adapter does; when one ends, something is broken."""


@asynccontextmanager
async def build(
    settings: Settings, *, clients: Buckets | None = None, jitter: Callable[[], float] = random.random
) -> AsyncIterator[Adapter]:
    """
    Start an adapter, and end it with the context.

    Args:
        settings: of the whole adapter.
        clients: how to reach a bucket; tests have their own.
        jitter: a number from 0 to 1 for each pause between tries of storage.

    Raises:
        StartError: it cannot start; what had been started has ended.
    """
    async with AsyncExitStack() as stack:
        volume = stack.enter_context(closing(Volume(settings.volume.repository_dir, settings.volume.cache_dir)))
        volume.claim()
        companion = None
        if (command := settings.companion.command) is not None:  # as soon as its repository folder is there: it is slow to start
            reporter = beside(settings.volume.memory_path, settings.volume.repository_dir)
            companion = Companion(command, settings.companion.exit_seconds, reporter, volume.umask)
            stack.push_async_callback(companion.end)
        journal = stack.enter_context(closing(Journal(volume.cache_dir / JOURNAL, discard=volume.discard)))
        space = Space(volume.cache_dir, settings.disk_budget_bytes, refuses=bool(settings.volume.max_bytes))
        space.counted_by("trash", volume.left_bytes)
        space.show_metrics()
        store = Store(
            settings=settings.pull,
            root=settings.volume.root,
            volume=volume,
            space=space,
            digests=journal.digests,
            clients=clients,
            jitter=jitter,
        )
        stack.callback(store.close)
        own = journal.records if settings.v2.has_repository else None
        repository = stack.enter_context(closing(Repository(volume, space, own=own)))
        seconds = settings.capacity.load_timeout_ms / 1000
        metrics.LOAD_TIMEOUT_SECONDS.set(seconds)
        limits = Limits(settings.loads_at_once, settings.triton.load_threads, seconds, settings.triton.silent_seconds)
        server = TritonServer(TritonClient(settings.triton.reach.target, settings.triton.call_headers), repository, limits)
        stack.push_async_callback(_close, server)
        memory = Watch(settings.volume.memory_path, settings.triton.metrics_endpoint, settings.capacity, journal)
        lifecycle = RuntimeLifecycle(
            ports=Ports(store, repository, server, journal, memory),
            capacity=settings.capacity,
            unload_timeout_seconds=settings.triton.unload_timeout_seconds,
            reserved_ids=settings.volume.reserved_ids,
        )
        stack.push_async_callback(_close, lifecycle)
        root_tasks = [_task(stack, server.watch(), "watch of Triton"), _task(stack, memory.run(), "watch of memory")]
        if settings.telemetry.metrics_port:
            http = TelemetryServer(
                port=settings.telemetry.metrics_port,
                readiness=lifecycle.readiness if settings.has_modelmesh else lambda: lifecycle.obstacle,
                notice=lifecycle.notice,
                triton=server.health,
            )
            stack.callback(http.close)
            root_tasks.append(_task(stack, http.beat(), "heartbeat"))
        if companion is not None:
            root_tasks.append(_task(stack, companion.ended(), "Triton's process"))
        reading = _task(stack, store.ready(), "cache")
        reading.add_done_callback(retrieve)  # `prepare` tells of a failure
        await asyncio.wait({reading}, timeout=READ_SECONDS)
        lifecycle.start()
        runtime = ModelRuntime(lifecycle, lambda: memory.in_force(settings.capacity), settings.volume.reserved_ids)
        spi = None
        if (endpoint := settings.spi.listen) is not None:
            spi = await listen(endpoint=endpoint, runtime=runtime, readiness=lifecycle.readiness, reflection=settings.spi.reflection)
            stack.push_async_callback(spi.stop, 0)
        _task(stack, _prepared(store, runtime.has_told), "storage clients")
        fronts = [await _fronts(stack, settings, lifecycle, server, repository)] if settings.has_fronts else []
        yield Adapter(volume=volume, space=space, lifecycle=lifecycle, spi=spi, companion=companion, fronts=fronts, root_tasks=root_tasks)


@asynccontextmanager
async def build_proxy(settings: ProxySettings) -> AsyncIterator[Listeners]:
    """
    Open the V2 front before ModelMesh, in the place of a pod's REST proxy, and close it with the context. There is nothing else in it.

    Source of the variables: KServe's `rest-proxy`, `proxy/main.go`.

    Raises:
        StartError: it cannot start.
    """
    from adapter.fronts.edge import Listeners  # noqa: PLC0415 - an extra
    from adapter.fronts.v2 import routes as v2  # noqa: PLC0415

    async with AsyncExitStack() as stack:
        inference = _modelmesh(settings.v2.endpoint or settings.rest_proxy.endpoint, settings.rest_proxy)
        stack.push_async_callback(inference.close)
        listeners = Listeners(settings.http)
        stack.push_async_callback(listeners.close)
        variable = "V2_REST_PORT" if settings.v2.port != settings.rest_proxy.listen_port else "REST_PROXY_LISTEN_PORT"
        await listeners.open(v2.front(inference, inference), settings.v2.port, variable)
        yield listeners


def _task(stack: AsyncExitStack, running: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    """A task that ends with the stack, or is left behind after a time."""
    task = asyncio.create_task(running, name=name)
    stack.push_async_callback(end, task, seconds=END_SECONDS)
    return task


async def _fronts(
    stack: AsyncExitStack, settings: Settings, lifecycle: RuntimeLifecycle, server: TritonServer, repository: Repository
) -> Listeners:
    """The HTTP fronts that are on. Their libraries are imported here, so a pod without a front has none of them in memory."""
    from adapter.fronts import sagemaker  # noqa: PLC0415 - as the docstring says
    from adapter.fronts.edge import Listeners  # noqa: PLC0415
    from adapter.fronts.llm import routes as llm  # noqa: PLC0415
    from adapter.fronts.v2 import routes as v2  # noqa: PLC0415
    from adapter.triton.inference.client import TritonInference  # noqa: PLC0415

    inference = TritonInference(settings.triton.reach.target, settings.triton.call_headers)
    stack.push_async_callback(inference.close)

    async def beside(model: KnownModel, path: str, most_bytes: int) -> bytes | None:
        return await repository.small_file(model.model_id, model.placed, path, most_bytes)

    answering = llm.Answering(settings.llm, inference, beside)
    stack.push_async_callback(answering.close)
    listeners = Listeners(settings.http)
    stack.push_async_callback(listeners.close)
    if settings.sagemaker.port:
        front = sagemaker.front(settings.sagemaker, lifecycle, inference, answering)
        await listeners.open(front, settings.sagemaker.port, "SAGEMAKER_PORT")
    if settings.v2.port:
        there: TritonInference = inference
        if settings.v2.endpoint is not None:
            there = _modelmesh(settings.v2.endpoint, settings.rest_proxy)
            stack.push_async_callback(there.close)
        api = lifecycle.repository_calls if settings.v2.has_repository else None
        models = lifecycle if there is inference else None
        await listeners.open(v2.front(there, inference, models, api), settings.v2.port, "V2_REST_PORT")
    if settings.llm.port:
        await listeners.open(llm.front(settings.llm, lifecycle, inference, answering), settings.llm.port, "LMI_PORT")
    return listeners


def _modelmesh(endpoint: Endpoint, proxy: RestProxySettings) -> MeshInference:
    """
    A client of ModelMesh, or of whatever server V2_REST_ENDPOINT names.

    Raises:
        StartError: TLS is wanted and its files cannot be used.
    """
    from adapter.triton.inference.channels import pinned  # noqa: PLC0415
    from adapter.triton.inference.client import MeshInference  # noqa: PLC0415 - brings gRPC, in a process that has a front

    if not proxy.listen_port:
        return MeshInference(endpoint.target)
    tls = pinned(proxy.certificate, proxy.key) if proxy.uses_tls and proxy.certificate and proxy.key else None
    return MeshInference(endpoint.target, tls=tls, max_message_bytes=proxy.max_message_bytes)


async def _prepared(store: Store, has_told: asyncio.Event) -> None:
    """Once ModelMesh has had its first answer: storage clients are slow to make, and no load shall have to wait for all of that."""
    await set_within(has_told, FIRST_ANSWER_SECONDS)
    try:
        await store.prepare()
    except Exception:  # a load makes what is missing
        log.exception("storage.not_prepared")


async def _close(part: RuntimeLifecycle | TritonServer) -> None:
    await asyncio.wait({asyncio.create_task(part.close())}, timeout=END_SECONDS)
