"""
Small files of placed models, for the fronts: read once for each load.

A file may lie behind a link, in a claim that hangs, and nothing wakes a thread that hangs there. So these reads have
threads of their own, one for a model at a time, and a caller waits for a bounded time. What is not read for one
caller is kept for the next. Models that have no such file, as most, do not wait: the entry itself is on our own
volume.
"""

from __future__ import annotations

import asyncio
import os
import stat
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
        self._kept: dict[tuple[str, str], asyncio.Task[bytes | None]] = {}
        """
        Model id and identity of its directory → what was read there, or is being read; what was asked for last is
        last.
        """

    async def read(self, model_id: str, placed: str | None) -> bytes | None:
        """
        The file of a model, as of this placement; None: there is none, or the adapter has not placed the model.

        Raises:
            InvalidModel: it is longer than allowed, or no file.
            VolumeFailed: it cannot be read, or not within `WAIT_SECONDS`.
        """
        if placed is None or id_problem(model_id) is not None:
            return None
        key = (model_id, placed)
        reading = self._kept.pop(key, None)
        if reading is None:
            path = self._folder / model_id / self._name
            reading = asyncio.create_task(self._reading(path), name=f"{self._name} of {model_id}")
            reading.add_done_callback(retrieve)
        self._kept[key] = reading
        if len(self._kept) > KEPT:
            del self._kept[next(iter(self._kept))]
        done, _ = await asyncio.wait({reading}, timeout=WAIT_SECONDS)
        if not done:
            raise VolumeFailed(f"{self._name} of the model has not been read within {WAIT_SECONDS:g} s")
        try:
            return reading.result()
        except OSError as error:
            self._kept.pop(key, None)
            raise VolumeFailed(f"{self._name} of the model cannot be read: {error.strerror or error}") from error

    def close(self) -> None:
        """Read nothing more."""
        self._looks.shutdown()
        self._threads.shutdown()

    async def _reading(self, path: Path) -> bytes | None:
        if not await asyncio.wrap_future(self._looks.submit(os.path.lexists, path)):
            return None
        return await asyncio.wrap_future(self._threads.submit(_content, path, self._most_bytes))


def _content(path: Path, most_bytes: int) -> bytes | None:
    """Never waits for a pipe's other end, and reads no more than allowed."""
    try:
        file = open(path, "rb", opener=_opened)  # noqa: SIM115 - closed below
    except (FileNotFoundError, NotADirectoryError):
        return None
    except IsADirectoryError:
        raise InvalidModel(f"{path.name} is no file") from None
    with file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise InvalidModel(f"{path.name} is no file")
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise InvalidModel(f"{path.name} is longer than {most_bytes} bytes")
    return content


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)
