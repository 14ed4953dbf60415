"""
The model store: decides where a model comes from.

Implements `ports.ModelStore`. Owns the threads of this room: pulls (bytes), asks (listings and small
reads), surveys (two, which nothing else can occupy), files (the volume alone, never blocked by a
store). Knows nothing of Triton.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import structlog

from adapter.errors import AdapterError
from adapter.model import Artifact, Listing, ModelSpec, Survey
from adapter.ports import StoredModel
from adapter.settings import PullSettings
from adapter.storage.archives import is_archive
from adapter.storage.claims import PVC, find_in_claim
from adapter.storage.credentials import StorageConfig, StorageConfigs
from adapter.storage.fields import Fields
from adapter.storage.listing import FoundModel, Tally, find_model
from adapter.storage.local import LocalModel, find_local, is_below
from adapter.storage.puller import Puller
from adapter.storage.remote import RemoteModel
from adapter.storage.source import ObjectSource
from adapter.storage.sources import Sources
from adapter.storage.unpacked import Unpacker
from adapter.storage.wrappers import RetriedSource
from adapter.volume import Volume
from adapter.workers import Stop, Workers

READ_LIMIT_BYTES = 4 * 1024 * 1024
"""Of a config.pbtxt or a schema."""
_ASKING_THREADS = 16
_SURVEY_THREADS = 2
_FILE_THREADS = 4
_MIN_LANES = 2

_log = structlog.stdlib.get_logger(__name__)


class SourceFactory(Protocol):
    """What `Sources` does, as tests replace it. Blocks."""

    def warm(self, config: StorageConfig) -> None:
        """Make what is slow to make."""
        ...

    def source(self, config: StorageConfig) -> ObjectSource:
        """The bucket of this config."""
        ...


class Store:
    """All models, wherever they are. Call `close` at the end."""

    def __init__(
        self,
        *,
        settings: PullSettings,
        root: Path,
        volume: Volume,
        max_loading: int,
        sources: SourceFactory | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """
        Args:
            settings: how to pull.
            root: ROOT_MODEL_DIR, where models that were already pulled are.
            volume: a claimed volume.
            max_loading: loads at once; each may have its part of the threads.
            sources: how to reach a bucket.
            jitter: a number from 0 to 1 for each pause between retries.
        """
        self._settings = settings
        self._root = root
        self._volume = volume
        self._jitter = jitter
        self._configs = StorageConfigs(settings.config_dir)
        self._pulls = Workers("pull", settings.threads)
        self._asks = Workers("ask", _ASKING_THREADS)
        self._surveys = Workers("survey", _SURVEY_THREADS)
        self._files = Workers("volume", _FILE_THREADS)
        self._sources = sources or Sources(settings.threads + _ASKING_THREADS + _SURVEY_THREADS)
        lanes = max(_MIN_LANES, settings.threads // max_loading)
        self._puller = Puller(volume=volume, pulls=self._pulls, files=self._files, lanes=lanes, part_bytes=settings.part_bytes)
        self._unpacker = Unpacker(
            volume=volume,
            puller=self._puller,
            pulls=self._pulls,
            files=self._files,
            max_bytes=settings.unpack_max_bytes,
            read_limit_bytes=READ_LIMIT_BYTES,
        )

    async def prepare(self) -> None:
        """Make the clients of all storage keys, one after the other: the first load shall not wait for them."""
        for key in await self._configs.keys():
            try:
                config = await self._configs.resolve(ModelSpec(model_id="-", model_type="", path="-", storage_key=key))
                if config.type != PVC:
                    await self._asks.run(self._warming(config))
            except AdapterError as error:
                _log.warning("storage.config_unusable", storage_key=key, error=error.text)

    async def open(self, spec: ModelSpec) -> StoredModel:
        """As `ModelStore`."""
        if self._may_be_local(spec) and await self._files.run(lambda _: self._is_local(spec)):
            return await self._files.run(lambda stop: self._find_local(spec, Tally(), stop))
        config = await self._configs.resolve(spec)
        if config.type == PVC:  # read by the threads of stores: a network volume can hang like any store
            return await self._asks.run(lambda stop: self._find_in_claim(config, spec, Tally(), stop))
        source, found = await self._asks.run(lambda stop: self._find(config, spec, Tally(), stop))
        remote = RemoteModel(source=source, found=found, puller=self._puller, asks=self._asks, read_limit_bytes=READ_LIMIT_BYTES)
        if _is_unpacked(config, found):
            return await self._unpacker.open(source, found, remote)
        return remote

    async def survey(self, spec: ModelSpec, timeout_seconds: float) -> Survey:
        """As `ModelStore`."""
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_seconds
        is_local: bool | None = False
        if self._may_be_local(spec):
            is_local = await self._surveys.run_within(lambda _: self._is_local(spec), timeout_seconds)
            if is_local is None:
                return Survey(0, None)
        tally = Tally()
        if is_local:
            local = await self._surveys.run_within(lambda stop: self._find_local(spec, tally, stop), until - loop.time())
            return Survey(tally.seen_bytes, local.listing if local else None)
        try:
            async with asyncio.timeout_at(until):
                config = await self._configs.resolve(spec)
        except TimeoutError:
            return Survey(0, None)
        listing = await self._surveys.run_within(lambda stop: self._listing(config, spec, tally, stop), until - loop.time())
        return Survey(tally.seen_bytes, listing)

    async def release(self, artifact: Artifact) -> None:
        """As `ModelStore`."""
        if artifact.is_ours:
            await self._files.run_to_end(lambda _: self._volume.discard(artifact.root))

    def close(self) -> None:
        """Take no more work; does not wait for what runs."""
        for workers in (self._pulls, self._asks, self._surveys, self._files):
            workers.close()
        self._configs.close()

    def _warming(self, config: StorageConfig) -> Callable[[Stop], None]:
        return lambda _: self._sources.warm(config)

    def _may_be_local(self, spec: ModelSpec) -> bool:
        """Without asking the file system. Source: the storage helper's rewritten request (absolute path, size, no parameters)."""
        if self._settings.embedded is not None:
            return not self._settings.embedded
        return spec.disk_size_bytes is not None and not spec.storage_params and is_below(spec.path, self._root)

    def _is_local(self, spec: ModelSpec) -> bool:
        return self._settings.embedded is False or os.path.lexists(spec.path)

    def _find_local(self, spec: ModelSpec, tally: Tally, stop: Stop) -> LocalModel:
        claims = self._settings.pvc_mounts
        return find_local(self._root, spec, tally, stop, files=self._files, read_limit_bytes=READ_LIMIT_BYTES, claims=claims)

    def _find_in_claim(self, config: StorageConfig, spec: ModelSpec, tally: Tally, stop: Stop) -> LocalModel:
        mounts = self._settings.pvc_mounts
        return find_in_claim(mounts, config, spec, tally, stop, files=self._asks, read_limit_bytes=READ_LIMIT_BYTES)

    def _find(self, config: StorageConfig, spec: ModelSpec, tally: Tally, stop: Stop) -> tuple[ObjectSource, FoundModel]:
        source = RetriedSource(self._sources.source(config), jitter=self._jitter)
        return source, find_model(source, spec.path, spec.schema_path, tally, stop)

    def _listing(self, config: StorageConfig, spec: ModelSpec, tally: Tally, stop: Stop) -> Listing | None:
        """None: an archive, of which only its own size is known."""
        if config.type == PVC:
            return self._find_in_claim(config, spec, tally, stop).listing
        source, found = self._find(config, spec, tally, stop)
        return self._unpacker.known(source, found) if _is_unpacked(config, found) else found.listing


def _is_unpacked(config: StorageConfig, found: FoundModel) -> bool:
    """Whether the model is an archive that shall be unpacked."""
    wanted = Fields(config.values, config.label).flag("unpack", default=False)
    return wanted and found.single is not None and is_archive(found.listing.name)
