"""While a history runs, the threads and the clocks of the adapter are those of the simulation."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from unittest import mock

from tests.simulation import fibers, threads

PATCHED = ("adapter.workers", "adapter.journal.journal", "adapter.storage.stores.health", "adapter.storage.stores.alarms")
TIMED = ("adapter.storage.stores.alarms", "adapter.boot", "adapter.leaving")
POOLED = ("adapter.workers", "adapter.storage.mounted.reads")


@contextlib.contextmanager
def virtual(hub: fibers.Hub) -> Iterator[None]:
    """While inside, the adapter's threads and clocks are those of the simulation."""
    with contextlib.ExitStack() as stack:
        fibers.use(hub)
        stack.callback(fibers.use, None)
        for module in POOLED:
            stack.enter_context(mock.patch(f"{module}.Threads", threads.VirtualThreads))
        for module in PATCHED:
            stack.enter_context(mock.patch(f"{module}.threading", threads.threading))
        for module in TIMED:
            stack.enter_context(mock.patch(f"{module}.time", threads.time))
        stack.enter_context(mock.patch("adapter.storage.pull.puller.process_time", lambda: 0.0))
        yield
