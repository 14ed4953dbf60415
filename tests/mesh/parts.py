"""The real parts of a run, started here: an S3 server, Triton, the adapter as a process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from tests.mesh.population import STORAGE_KEY
from tests.real.adapter import AdapterProcess
from tests.real.s3 import S3Server
from tests.real.triton import Triton

BUCKET = "models"
SETTINGS = {
    "CONTAINER_MEM_REQ_BYTES": "38MiB",
    "MEM_BUFFER_BYTES": "8MiB",
    "DEFAULT_MODELSIZE": "1000000",
    "LOADING_CONCURRENCY": "2",
    "LOADTIME_TIMEOUT": "60000",
    "CACHE_MAX_BYTES": "0",
}


class Parts:
    """A pod and its store; `with`. All of them keep their ports over a restart."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        """`settings` of the adapter, beside those for a small runtime."""
        self._settings = SETTINGS | dict(settings or {})
        self._stack = ExitStack()

    def __enter__(self) -> Parts:
        with ExitStack() as stack:
            self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mesh-")))
            self.volume = self.folder / "volume"
            (self.volume / "_triton_models").mkdir(parents=True)
            config = self.folder / "config"
            config.mkdir()
            self.s3 = stack.enter_context(S3Server(self.folder / "s3"))
            (config / STORAGE_KEY).write_text(json.dumps(self.s3.storage_config(BUCKET)))
            self.triton = stack.enter_context(Triton(self.volume / "_triton_models", extra_args=["--disable-auto-complete-config"]))
            target = self.triton.grpc_target
            self.adapter = stack.enter_context(
                AdapterProcess(volume=self.volume, storage_config=config, triton_target=target, env=self._settings)
            )
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def put(self, path: str, files: Mapping[str, bytes]) -> None:
        """A model into the store."""
        self.s3.put_folder(BUCKET, path, files)

    # ---- what can happen to them; in threads, for they wait

    async def restart_triton(self) -> None:
        """`kill -9`, and a new process as soon as the kubelet would."""
        await asyncio.to_thread(self.triton.kill)
        await asyncio.to_thread(self.triton.start)

    async def restart_adapter(self) -> None:
        """The same for the adapter."""
        await asyncio.to_thread(self.adapter.kill)
        await asyncio.to_thread(self.adapter.start)

    async def pause_triton(self, seconds: float) -> None:
        """SIGSTOP, a while, SIGCONT."""
        os.kill(self.triton.pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            os.kill(self.triton.pid, signal.SIGCONT)

    async def take_store_away(self, seconds: float) -> None:
        """Connections to the store are refused a while."""
        await asyncio.to_thread(self.s3.kill)
        await asyncio.sleep(seconds)
        await asyncio.to_thread(self.s3.start)
