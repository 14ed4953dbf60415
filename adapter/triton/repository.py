"""
Triton's model repository folder, of which the adapter is the only writer, unless models of others are allowed there.

A model is built in a staging folder of its own on the same file system (`triton.placing`), and becomes visible in one
rename. It leaves by a rename too, into the trash, and is deleted from there as far as permitted. One bad entry in the
folder breaks Triton's index for every model: `sweep` takes such out. Where others may put models here, what the
adapter has not placed is never touched.

Knows nothing of Triton's calls; how a model must look is `layout`'s business.
"""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import structlog

from adapter.errors import AdapterError, InvalidModel, InvalidRequest, VolumeFailed
from adapter.model import PROBE, Artifact, Layout, Placed, is_utf8, owner_of
from adapter.triton import placing
from adapter.volume.space import Space
from adapter.volume.trees import read_below
from adapter.volume.volume import Volume, failure_in_words
from adapter.workers import Stop, Workers

THREADS = 4

T = TypeVar("T")
log = structlog.stdlib.get_logger(__name__)


class Repository:
    """Places models, and takes them out. A bundle's models go together: the top model is placed last and taken out first."""

    def __init__(self, volume: Volume, space: Space | None = None, own: Collection[str] | None = None) -> None:
        """
        Args:
            volume: that is claimed.
            space: its budget; without one only the file system bounds what is written.
            own: ids of models that an earlier process may have placed, where others place models, too; None: all is
                ours.
        """
        self._volume = volume
        self.folder = volume.repository_dir
        """What Triton's `--model-repository` must be."""
        self._space = space or Space(volume.cache_dir, 0, refuses=False)
        self._space.counted_by("placed", lambda: sum(self._own_bytes.copy().values()))
        self._own_bytes: dict[str, int] = {}
        """By the names of the folder, bytes of files that the cache does not count: those that have no name outside the folder."""
        self._probe = PROBE + secrets.token_hex(8)
        """Of this process; others were left by one that was killed."""
        self._has_others = own is not None
        self._own = set(own or ())
        self._workers = Workers("repository", THREADS)
        self._inner = placing.inner_of(self.folder)
        """Model id → Triton's names of its inner models."""
        self._loaded_first: dict[str, tuple[str, ...]] = {}

    @property
    def problem(self) -> str | None:
        """As `ports.ModelRepository`."""
        return self._volume.problem

    def inner_names(self, model_id: str) -> tuple[str, ...]:
        """The inner models that are placed for this id, also of an earlier run; empty unless the model is a bundle."""
        return tuple(sorted(self._inner.get(model_id, ())))

    def loaded_first(self, model_id: str) -> tuple[str, ...]:
        """The inner models to load before the model itself, in this order; all of them, where an earlier process has placed the bundle."""
        return self._loaded_first.get(model_id, self.inner_names(model_id))

    def is_of_others(self, name: str) -> bool:
        """Whether a directory of this name, if there is one, may be another writer's."""
        return self._has_others and owner_of(name) not in self._own and not name.startswith(PROBE)

    def can_hold(self, name: str) -> bool:
        """Whether a directory of the folder can have this name."""
        return bool(name) and name not in (".", "..") and "/" not in name and "\0" not in name

    async def claim(self, model_id: str) -> None:
        """
        Make the name ours, before anything is written of it.

        Raises:
            InvalidRequest: another writer has put a model of this name there.
        """
        if self.is_of_others(model_id):
            await self.remove_empty(model_id)  # a look at the model may have made it
            if await self._workers.run(lambda _: os.path.lexists(self._at(model_id))):
                found = f"Triton's folder has a model {model_id!r} already"
                raise InvalidRequest(f"{found}, and the adapter has not put it there")
            self._own.add(model_id)

    async def place(self, model_id: str, layout: Layout, artifact: Artifact) -> str:
        """
        Build the model's tree and rename it into the folder; whatever of ours had the name is discarded first.

        Returns:
            Its identity, as `Placed` has it.

        Raises:
            DiskFull: no space for the directory entries or for what we write, and nothing idle is left to delete.
            AdapterError: the volume does not let us.
        """
        stale = [self._at(name) for name in self.inner_names(model_id)]
        parts = {self._at(name): part for name, part in (*layout.inner.items(), (model_id, layout))}
        self._inner[model_id] = {*self.inner_names(model_id), *layout.inner}
        self._loaded_first[model_id] = layout.loaded_first
        try:
            identity = await self._workers.run(lambda stop: self._place(parts, stale, artifact, stop))
        except asyncio.CancelledError:  # it may come when the thread has just renamed
            await self.remove(model_id)
            raise
        self._inner[model_id] = {*layout.inner}
        return identity

    async def remove(self, model_id: str) -> None:
        """Take the model out of the folder. Absent is fine. Raises AdapterError: the disk keeps it."""
        if self.is_of_others(model_id):
            await self.remove_empty(model_id)
            return
        paths = [self._at(name) for name in (model_id, *self.inner_names(model_id))]
        await self._run("the model cannot be taken out of", lambda _: self._discard(paths))
        self._inner.pop(model_id, None)
        self._loaded_first.pop(model_id, None)
        self._own.discard(model_id)

    async def clear(self) -> None:
        """Take everything of ours out of the folder. Raises AdapterError: the volume does not let us."""
        await self._run(
            "the models cannot be taken out of",
            lambda _: self._discard(path for path in self._entries() if not self.is_of_others(path.name)),
        )
        self._inner.clear()
        self._loaded_first.clear()
        self._own.clear()

    async def inventory(self) -> dict[str, Placed]:
        """What the folder holds, by model id; nothing is asked of what lies behind links. Raises AdapterError: it cannot be read."""
        return await self._run("the models cannot be listed in", self._inventory)

    async def identities(self, model_ids: Collection[str]) -> dict[str, str]:
        """Which directories these models are; of those that are there."""
        return await self._workers.run(lambda _: placing.identities_of(self.folder, model_ids))

    async def small_file(self, model_id: str, placed: str | None, path: str, most_bytes: int) -> bytes | None:
        """
        A file in the model's directory; None: there is none, or the adapter has not placed the model.

        Raises InvalidModel: it is longer than allowed. Raises VolumeFailed: it cannot be read.
        """
        if placed is None:
            return None
        try:
            return await self._workers.run(lambda _: read_below(self.folder, f"{model_id}/{path}", most_bytes))
        except FileNotFoundError:
            return None
        except OSError as error:
            kind = InvalidModel if error.errno == errno.EFBIG else VolumeFailed
            raise kind(f"{path} of the model cannot be read: {error.strerror}") from error

    # ---- other entries

    async def ensure_directory(self, model_id: str) -> None:
        """
        Make an empty directory if there is none (a file makes way): Triton's index leaves out what has no directory.

        Raises:
            AdapterError: the volume does not let us.
        """
        path = self._at(model_id)
        await self._run("no directory for the model can be made in", lambda _: self._ensure_directory(path))

    async def remove_empty(self, name: str) -> None:
        """Take out a directory that was made for a look at a model of others. One that holds anything by now stays."""
        with suppress(OSError):
            await self._workers.run(lambda _: self._at(name).rmdir())

    @asynccontextmanager
    async def probe(self) -> AsyncIterator[str]:
        """Inside, there is an empty directory with a name of its own; one user at a time. Raises AdapterError."""
        try:
            await self.ensure_directory(self._probe)
            yield self._probe
        finally:
            await self.remove(self._probe)

    async def sweep(self) -> None:
        """
        Take out what was not placed by the adapter: plain files, names that are not UTF-8, links, wherever they lead,
        and directories of `probe` that an earlier process has left. Where others place models, too, only the last.

        A dangling link breaks Triton's index, and one that leads into a claim would have to be followed to know that.

        Raises:
            AdapterError: the folder cannot be read.
        """
        await self._run("the models cannot be listed in", self._sweep)

    def close(self) -> None:
        """Take no more work."""
        self._workers.close()

    # ---- in threads

    async def _run(self, what: str, work: Callable[[Stop], T]) -> T:
        """In a thread; `what` begins the words for what fails."""
        try:
            return await self._workers.run(work)
        except OSError as failure:
            raise failure_in_words(failure, self.folder, 0, f"{what} {self.folder}: ") from failure

    def _at(self, model_id: str) -> Path:
        if not self.can_hold(model_id):
            raise InvalidRequest(f"the model id {model_id!r} cannot be the name of a directory")
        return self.folder / model_id

    def _entries(self) -> list[Path]:
        if not self.folder.is_dir():
            self._volume.restore()
        return list(self.folder.iterdir())

    def _discard(self, paths: Iterable[Path]) -> None:
        """Raises OSError, AdapterError: the disk keeps one of them; the others have gone."""
        kept: Exception | None = None
        for path in paths:
            failure = self._volume.discard(path)
            kept = failure or kept
            if failure is None:
                self._own_bytes.pop(path.name, None)
        if kept is not None:
            raise kept

    def _place(self, parts: Mapping[Path, Layout], stale: Iterable[Path], artifact: Artifact, stop: Stop) -> str:
        """In this order; all or none. Returns the identity of the last one."""
        self._discard(stale)
        identity = ""
        try:
            for destination, part in parts.items():
                size_bytes = sum(map(len, part.written.values()))
                with self._space.reservation() as reserved, self._volume.writing(size_bytes):
                    reserved.grow(size_bytes)
                    identity = reserved.insist(partial(self._built, destination, part, artifact, stop))
                    self._own_bytes[destination.name] = size_bytes
        except BaseException:
            with suppress(OSError, AdapterError):
                self._discard(reversed([*parts]))
            raise
        return identity

    def _built(self, destination: Path, layout: Layout, artifact: Artifact, stop: Stop) -> str:
        staging = self._volume.new_staging()
        try:
            placing.build(staging, layout, artifact, stop)
            self._discard([destination])
            staging.rename(destination)
            return placing.identity_of(destination)
        finally:  # also when the work is no longer wanted
            self._volume.discard(staging)

    def _inventory(self, stop: Stop) -> dict[str, Placed]:
        sizes, self._own_bytes = placing.bytes_of(self._entries(), stop)
        identities = placing.identities_of(self.folder, sizes)  # none: an inner model without its top model, or gone meanwhile
        return {model_id: Placed(identity, sizes[model_id]) for model_id, identity in identities.items()}

    def _ensure_directory(self, path: Path) -> None:
        if placing.is_plain_directory(path) or (self.is_of_others(path.name) and os.path.lexists(path)):
            return
        if not self.folder.is_dir():  # else an unload goes on, whatever else of the volume is lost
            self._volume.restore()
        self._discard([path])
        with suppress(FileExistsError), self._space.reservation() as reserved:  # another thread was first
            reserved.insist(path.mkdir)

    def _sweep(self, stop: Stop) -> None:
        self._volume.tidy()
        wrong: list[Path] = []
        for path in self._entries():
            stop.check()
            is_wrong = not self._has_others and (not placing.is_plain_directory(path) or not is_utf8(path.name))
            if is_wrong or (path.name.startswith(PROBE) and path.name != self._probe):
                log.warning("entry.swept", name=repr(path.name), folder=str(self.folder), cause="no model of the adapter")
                wrong.append(path)
        self._discard(wrong)
