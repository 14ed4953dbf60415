"""The fake Triton for a test without an event loop: in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType

from tests.fakes.triton import FakeTriton

START_SECONDS = 20


class BackgroundTriton:
    """`with BackgroundTriton(folder) as triton:`; a client finds it at `triton.target`."""

    def __init__(self, repository: Path) -> None:
        repository.mkdir(parents=True, exist_ok=True)
        self.repository = repository
        """Where models are placed, in the volume."""
        self._started: Future[str] = Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over: asyncio.Event | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="fake Triton", daemon=True)

    @property
    def target(self) -> str:
        """For a gRPC channel."""
        return self._started.result(START_SECONDS)

    async def _serve(self) -> None:
        try:
            self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
            async with FakeTriton(self.repository) as triton:
                self._started.set_result(triton.target)
                await self._over.wait()
        except BaseException as error:
            if not self._started.done():
                self._started.set_exception(error)
            raise

    def __enter__(self) -> BackgroundTriton:
        self._thread.start()
        self._started.result(START_SECONDS)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._loop is not None and self._over is not None:
            self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(START_SECONDS)
