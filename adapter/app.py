"""
Puts everything together, runs it, and ends it: the only place that builds and connects objects.

Order of start: the volume (a second adapter ends here), HTTP health, storage clients, Triton, the
SPI. A background task that ends by itself takes the process with it. SIGTERM drains; the end of the
grace period, or a second signal, is `os._exit`: a thread that hangs in a socket must not keep the
pod.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any

import structlog

from adapter.errors import ListenError
from adapter.lifecycle.lifecycle import RuntimeLifecycle
from adapter.settings import Settings
from adapter.spi.listen import listen
from adapter.spi.servicer import ModelRuntime
from adapter.storage.store import Store
from adapter.telemetry import logs, metrics
from adapter.telemetry.http import Heartbeat, TelemetryServer
from adapter.triton.client import TritonClient
from adapter.triton.repository import Repository
from adapter.triton.server import TritonServer
from adapter.volume import Volume, VolumeError

SETTLED, UNSETTLED = 0, 1
CANNOT_START = 1
PREPARE_SECONDS = 5.0
"""Longest wait for storage clients; a default credential chain may ask the network for its keys."""
ANSWER_SECONDS = 0.5
"""For the last answers on their way out, after everything has settled."""

log = structlog.stdlib.get_logger(__name__)


def serve(settings: Settings) -> int:
    """Run the sidecar until a signal ends it; returns only when it could not start (1)."""
    logs.configure(settings.telemetry)
    try:
        code = asyncio.run(_serve(settings))
    except (VolumeError, ListenError) as error:
        log.error("start.failed", cause=str(error))  # noqa: TRY400 - one sentence, not a traceback
        return CANNOT_START
    return _leave(code)


async def _serve(settings: Settings) -> int:
    asked = _on_signals()
    async with AsyncExitStack() as stack:
        volume = Volume(settings.volume.repository_dir, settings.volume.cache_dir)
        volume.claim()
        stack.callback(volume.close)
        heartbeat = Heartbeat()
        repository = Repository(volume)
        server = TritonServer(
            client=TritonClient(settings.triton.target),
            repository=repository,
            max_loading=settings.capacity.max_loading,
            unload_timeout_seconds=settings.triton.unload_timeout_seconds,
        )
        store = Store(settings=settings.pull, root=settings.volume.root, volume=volume, max_loading=settings.capacity.max_loading)
        lifecycle = RuntimeLifecycle(
            store=store,
            repository=repository,
            server=server,
            capacity=settings.capacity,
            unload_timeout_seconds=settings.triton.unload_timeout_seconds,
        )
        metrics.CAPACITY_BYTES.set(settings.capacity.capacity_bytes)
        if settings.telemetry.metrics_port:
            http = TelemetryServer(port=settings.telemetry.metrics_port, heartbeat=heartbeat, readiness=lifecycle.readiness)
            stack.callback(http.close)
        root_tasks = [_root_task("heartbeat", heartbeat.run()), _root_task("watch of Triton", server.watch())]
        await _prepare(store)
        lifecycle.start()
        spi = await listen(
            endpoint=settings.spi.listen,
            runtime=ModelRuntime(lifecycle=lifecycle, capacity=settings.capacity),
            readiness=lifecycle.readiness,
            reflection=settings.spi.reflection,
        )
        log.info("adapter.started", listens=spi.addresses, triton=settings.triton.target, **_arithmetic(settings))
        is_asked = await _until_asked_to_stop(asked, root_tasks)
        has_settled = await lifecycle.drain(settings.lifetime.grace_seconds)
        await spi.stop(ANSWER_SECONDS)
        log.info("adapter.stopped", settled=has_settled)
        if is_asked and has_settled:
            return SETTLED
        _leave(UNSETTLED)
    return UNSETTLED


async def _prepare(store: Store) -> None:
    """Storage clients are slow to make, and stop the loop: before the first READY, unless a credential chain hangs."""
    preparing = asyncio.create_task(store.prepare(), name="storage clients")
    await asyncio.wait({preparing}, timeout=PREPARE_SECONDS)
    if not preparing.done():
        log.warning("storage.preparing", seconds=PREPARE_SECONDS)
    elif failure := preparing.exception():
        log.error("storage.not_prepared", exc_info=failure)


def _root_task(name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    return asyncio.create_task(work, name=name)


def _on_signals() -> asyncio.Event:
    """Set by the first SIGTERM or SIGINT; a second one ends the process. Before anything else: as process 1 we get no default."""
    asked = asyncio.Event()

    def on_signal(number: int) -> None:
        if asked.is_set():
            log.warning("adapter.killed", signal=signal.Signals(number).name)
            _leave(128 + number)
        log.info("adapter.draining", signal=signal.Signals(number).name)
        asked.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    return asked


async def _until_asked_to_stop(asked: asyncio.Event, root_tasks: list[asyncio.Task[None]]) -> bool:
    """True after a signal; False when a root task has ended, which none ever should."""
    stopped = asyncio.create_task(asked.wait(), name="signals")
    done, _ = await asyncio.wait({stopped, *root_tasks}, return_when=asyncio.FIRST_COMPLETED)
    for task in done - {stopped}:
        log.error("task.ended", task=task.get_name(), exc_info=task.exception())
    return stopped in done


def _arithmetic(settings: Settings) -> dict[str, int]:
    """What the capacity is made of: users ask."""
    capacity = settings.capacity
    return {
        "memory_bytes": capacity.container_memory_bytes,
        "buffer_bytes": capacity.buffer_bytes,
        "capacity_bytes": capacity.capacity_bytes,
        "usable_bytes": capacity.usable_bytes,
    }


def _leave(code: int) -> int:
    """End the process now, whatever its threads do."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
