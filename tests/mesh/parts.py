"""The real parts of a run, started here: an S3 server, Triton, the adapter as a process."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from tests.mesh.population import STORAGE_KEY
from tests.real.pod import BUCKET, Pod, secret
from tests.real.s3 import S3Server

SETTINGS = {
    "CONTAINER_MEM_REQ_BYTES": "38MiB",
    "MEM_BUFFER_BYTES": "8MiB",
    "DEFAULT_MODELSIZE": "1000000",
    "LOADING_CONCURRENCY": "2",
    "LOADTIME_TIMEOUT": "60000",
    "CACHE_MAX_BYTES": "0",
}


class Parts(Pod):
    """A pod and its store; `with`. All of them keep their ports over a restart."""

    def __init__(self) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="mesh-")
        self.folder = Path(self._temporary.name)
        self.s3 = S3Server(self.folder / "s3")
        super().__init__(self.folder / "volume", self.folder / "config", SETTINGS)

    def __enter__(self) -> Self:
        self.s3.start()
        secret(self.folder / "config", self.s3, name=STORAGE_KEY)
        return super().__enter__()

    def __exit__(self, *reason: Any) -> None:
        super().__exit__(*reason)
        self.s3.stop()
        self._temporary.cleanup()

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
        self.triton.freeze()
        try:
            await asyncio.sleep(seconds)
        finally:
            self.triton.thaw()

    async def take_store_away(self, seconds: float) -> None:
        """Connections to the store are refused a while."""
        await asyncio.to_thread(self.s3.kill)
        await asyncio.sleep(seconds)
        await asyncio.to_thread(self.s3.start)
