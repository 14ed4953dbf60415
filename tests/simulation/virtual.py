"""While a history runs, the threads and the clocks of the adapter are those of the simulation."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from unittest import mock

from tests.simulation import fibers, threads

TIMED = ("adapter.volume.boot", "adapter.volume.volume")


@contextlib.contextmanager
def virtual(hub: fibers.Hub) -> Iterator[None]:
    """While inside, the adapter's threads and clocks are those of the simulation."""
    with contextlib.ExitStack() as stack:
        fibers.use(hub)
        stack.callback(fibers.use, None)
        stack.enter_context(mock.patch.multiple("adapter.workers.Workers", **threads.WORKERS))
        stack.enter_context(mock.patch("adapter.workers.threading", threads.threading))
        for module in TIMED:
            stack.enter_context(mock.patch(f"{module}.time", threads.time))
        stack.enter_context(mock.patch("adapter.storage.store.Engine", mock.Mock()))
        yield
