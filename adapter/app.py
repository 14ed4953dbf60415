"""
Runs the adapter as a process: signals, supervision, drain, exit codes.

A background task that ends by itself takes the process with it. SIGTERM drains; the end of the grace
period, or a second signal, is `os._exit`: a thread that hangs in a socket must not keep the pod.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import NoReturn

import structlog

from adapter.errors import StartError
from adapter.settings import ProxySettings, Settings
from adapter.telemetry import logs
from adapter.wiring import build, build_proxy

SETTLED, UNSETTLED = 0, 1
CANNOT_START = 1
ANSWER_SECONDS = 0.5
"""For the last answers on their way out, after everything has settled."""

log = structlog.stdlib.get_logger(__name__)


def serve(settings: Settings | ProxySettings) -> int:
    """Run the sidecar, or a pod's REST proxy alone, until a signal ends it; returns only when it could not start (1)."""
    logs.configure(settings.telemetry)
    try:
        asyncio.run(_serve_proxy(settings) if isinstance(settings, ProxySettings) else _serve(settings))
    except StartError as error:
        log.error("start.failed", cause=str(error))  # noqa: TRY400 - one sentence, not a traceback
    except ModuleNotFoundError as error:
        cause = f"an HTTP front needs {error.name}, which is not installed: pip install 'modelmesh-triton-adapter[http]'"
        log.error("start.failed", cause=cause)  # noqa: TRY400
    return CANNOT_START


async def _serve_proxy(settings: ProxySettings) -> NoReturn:
    asked = _on_signals()
    async with build_proxy(settings) as listeners:
        gc.freeze()
        gc.enable()
        log.info("rest_proxy.started", port=settings.v2.port, modelmesh=str(settings.v2.endpoint))
        await asked.wait()
        await listeners.drained(settings.lifetime.grace_seconds)
        log.info("rest_proxy.stopped")
    _leave(SETTLED)


async def _serve(settings: Settings) -> NoReturn:
    asked = _on_signals()
    async with build(settings) as adapter:
        gc.freeze()  # what there is by now stays: no collection has to look through it
        gc.enable()
        capacity = settings.capacity
        log.info(
            "adapter.started",
            listens=adapter.spi.addresses if adapter.spi else [],
            triton=settings.triton.reach.target,
            memory_bytes=capacity.container_memory_bytes,  # users ask what the capacity is made of
            buffer_bytes=capacity.buffer_bytes,
            capacity_bytes=capacity.capacity_bytes,
            usable_bytes=capacity.usable_bytes,
        )
        if (threads := settings.triton.load_threads) <= (slots := capacity.max_loading):
            cause = f"TRITON_LOAD_THREADS ({threads}) is not more than LOADING_CONCURRENCY ({slots})"
            log.warning("triton.load_threads", cause=f"{cause}: a load that never ends keeps a loading slot")
        is_asked = await _until_asked_to_stop(asked, adapter.root_tasks)
        if adapter.companion is not None and adapter.companion.exit_code is not None:
            await asyncio.gather(*(front.drained(ANSWER_SECONDS) for front in adapter.fronts))
            _leave(adapter.companion.exit_code or UNSETTLED)  # 0 or not: it was not asked to end
        grace_seconds = settings.lifetime.grace_seconds
        fronts = [front.drained(grace_seconds) for front in adapter.fronts]
        has_settled, *_ = await asyncio.gather(adapter.lifecycle.drain(grace_seconds), *fronts)
        if adapter.spi is not None:
            await adapter.spi.stop(ANSWER_SECONDS)
        if adapter.companion is not None:
            await adapter.companion.end()
        log.info("adapter.stopped", settled=has_settled)
        if not (is_asked and has_settled):
            _leave(UNSETTLED)
    _leave(SETTLED)


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


async def _until_asked_to_stop(asked: asyncio.Event, root_tasks: Iterable[asyncio.Task[None]]) -> bool:
    """True after a signal; False when a root task has ended, which no root task ever should."""
    stopped = asyncio.create_task(asked.wait(), name="signals")
    done, _ = await asyncio.wait({stopped, *root_tasks}, return_when=asyncio.FIRST_COMPLETED)
    for task in done - {stopped}:
        log.error("task.ended", task=task.get_name(), exc_info=task.exception())
    return stopped in done


def _leave(code: int) -> NoReturn:
    """End the process now, whatever its threads do."""
    with suppress(OSError):  # the log may have no reader any more
        sys.stdout.flush()
    os._exit(code)
