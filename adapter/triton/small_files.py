"""
Small files of placed models, for the fronts: read once for each load.

A file may lie behind a link, in a claim that hangs, and nothing wakes a thread that hangs there. So these reads have threads of
their own, one for a model at a time, and a caller waits for a bounded time. What is not read for one caller is kept for the next.
Models that have no such file, as most, do not wait: the entry itself is on our own volume.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections import OrderedDict
from pathlib import Path

from adapter.errors import InvalidModel, VolumeFailed
from adapter.model import id_problem
from adapter.workers import Threads, retrieve

THREADS = 4
WAIT_SECONDS = 5.0
KEPT = 1024
"""Models whose file is remembered."""


class SmallFiles:
    """One file name of all models in Triton's folder."""

    def __init__(self, folder: Path, name: str, most_bytes: int) -> None:
        """
        Args:
            folder: Triton's.
            name: of the file, at the top of a model's directory.
            most_bytes: longest file.

        Raises:
            StartError: the process cannot have the threads.
        """
        self._folder = folder
        self._name = name
        self._most_bytes = most_bytes
        self._looks = Threads(f"models that have {name}", 1)
        self._threads = Threads(f"{name} of models", THREADS)
        self._kept: OrderedDict[str, tuple[str, asyncio.Future[bytes | None]]] = OrderedDict()
        """Model id → the identity of its directory, and what was read there, or is being read."""

    async def read(self, model_id: str, placed: str | None) -> bytes | None:
        """
        The file of a model, as of this placement; None: there is none, or the adapter has not placed the model.

        Raises:
            InvalidModel: it is longer than allowed, or no file.
            VolumeFailed: it cannot be read, or not within `WAIT_SECONDS`.
        """
        if placed is None or id_problem(model_id) is not None:
            return None
        kept = self._kept.get(model_id)
        if kept is None or kept[0] != placed:
            kept = (placed, self._begin(model_id))
            self._kept[model_id] = kept
        self._kept.move_to_end(model_id)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        done, _ = await asyncio.wait({kept[1]}, timeout=WAIT_SECONDS)
        if not done:
            raise VolumeFailed(f"{self._name} of the model has not been read within {WAIT_SECONDS:g} s")
        try:
            return kept[1].result()
        except OSError as error:
            self._forget(model_id, kept)
            raise VolumeFailed(f"{self._name} of the model cannot be read: {error.strerror or error}") from error

    def close(self) -> None:
        """Read nothing more."""
        self._looks.shutdown()
        self._threads.shutdown()

    def _begin(self, model_id: str) -> asyncio.Future[bytes | None]:
        reading = asyncio.create_task(self._reading(self._folder / model_id / self._name), name=f"{self._name} of {model_id}")
        reading.add_done_callback(retrieve)
        return reading

    async def _reading(self, path: Path) -> bytes | None:
        if not await asyncio.wrap_future(self._looks.submit(os.path.lexists, path)):
            return None
        return await asyncio.wrap_future(self._threads.submit(_content, path, self._most_bytes))

    def _forget(self, model_id: str, kept: tuple[str, asyncio.Future[bytes | None]]) -> None:
        if self._kept.get(model_id) is kept:
            del self._kept[model_id]


def _content(path: Path, most_bytes: int) -> bytes | None:
    """Never waits for a pipe's other end, and reads no more than allowed."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise InvalidModel(f"{path.name} is no file")
        content = bytearray()
        while len(content) <= most_bytes and (part := os.read(descriptor, most_bytes + 1 - len(content))):
            content += part
    finally:
        os.close(descriptor)
    if len(content) > most_bytes:
        raise InvalidModel(f"{path.name} is longer than {most_bytes} bytes")
    return bytes(content)
