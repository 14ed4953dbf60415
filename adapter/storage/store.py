"""
The model store: where a model comes from.

Implements `ports.ModelStore`. Owns the threads of this room: pulls (bytes), asks (listings and small
reads, of mounted models too), surveys (two, which nothing else can occupy), files (our own folders
alone, never blocked by a store or a claim), secrets (the mounted secret), one for alarms. Knows nothing of Triton, and
of no type of store.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable
from pathlib import Path

import structlog

from adapter.errors import AdapterError
from adapter.model import Artifact, ModelSpec, Survey
from adapter.ports import StoredModel
from adapter.settings import CACHE_DIR, PullSettings
from adapter.storage.mounted.claims import Claims
from adapter.storage.mounted.local import HelpedModels, is_below
from adapter.storage.pull.puller import Puller
from adapter.storage.pull.unpacked import Unpacker
from adapter.storage.search import Finder, Found, Search, asked
from adapter.storage.secret.config import StorageConfigs
from adapter.storage.secret.merging import StorageConfig
from adapter.storage.stores.clients import Clients, Means
from adapter.storage.stores.health import Health
from adapter.storage.stores.table import BINDINGS, BUCKETS, Finders, InBuckets, KeptClients
from adapter.storage.wire import names
from adapter.storage.wire.dialling import Guard
from adapter.volume import Volume
from adapter.waits import Waits
from adapter.workers import Stop, Workers

_ASKING_THREADS = 16
_SURVEY_THREADS = 2
_FILE_THREADS = 4
_SECRET_THREADS = 2
_MIN_LANES = 2

_log = structlog.stdlib.get_logger(__name__)


class Store:
    """All models, wherever they are. Call `close` at the end."""

    def __init__(
        self,
        *,
        settings: PullSettings,
        root: Path,
        volume: Volume,
        max_loading: int,
        clients: KeptClients | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """
        Args:
            settings: how to pull.
            root: ROOT_MODEL_DIR, where models that were already pulled are.
            volume: a claimed volume.
            max_loading: loads at once; each may have its part of the threads.
            clients: how to reach a bucket.
            jitter: a number from 0 to 1 for each pause between retries.
        """
        self._settings = settings
        self._root = root
        self._volume = volume
        self._pulls = Workers("pull", settings.threads)
        self._asks = Workers("ask", _ASKING_THREADS)
        self._surveys = Workers("survey", _SURVEY_THREADS)
        self._files = Workers("volume", _FILE_THREADS)
        self._secrets = Workers("secret", _SECRET_THREADS)
        names.start()
        self._configs = StorageConfigs(settings.config_dir, BINDINGS, self._secrets.executor)
        most = settings.threads + _ASKING_THREADS + _SURVEY_THREADS
        self._clients = clients or Clients(BUCKETS, Means(max_connections=most, guard=Guard(settings.denied_networks)))
        own = (volume.repository_dir, volume.cache_dir, root / CACHE_DIR)
        self._helped = HelpedModels(root, own, settings.pvc_mounts, self._asks)
        lanes = max(_MIN_LANES, settings.threads // max_loading)
        puller = Puller(volume=volume, pulls=self._pulls, files=self._files, lanes=lanes, part_bytes=settings.part_bytes)
        unpacker = Unpacker(volume=volume, puller=puller, pulls=self._pulls, files=self._files, max_bytes=settings.unpack_max_bytes)
        self._health = Health()
        in_buckets = InBuckets(clients=self._clients, puller=puller, unpacker=unpacker, asks=self._asks, health=self._health, jitter=jitter)
        self._finders = Finders(in_buckets, Claims(settings.pvc_mounts, self._asks))

    async def prepare(self) -> None:
        """Make the clients of all storage keys, one after the other: the first load shall not wait for them."""
        for key in await self._configs.keys():
            try:
                config = await self._configs.resolve(ModelSpec(model_id="-", model_type="", path="-", storage_key=key))
                finder = self._finders.of(config)
                await self._asks.run(_warming(finder, config))
            except AdapterError as error:
                _log.warning("storage.config_unusable", storage_key=key, error=error.text)

    async def open(self, spec: ModelSpec, waits: Waits) -> StoredModel:
        """As `ModelStore`."""
        search = Search(spec, waits)
        is_local = self._may_be_local(spec) and await asked(self._asks, waits, lambda _: self._is_local(spec))
        found = await asked(self._asks, waits, await self._finding(search, is_local=is_local))
        return await found.open()

    async def survey(self, spec: ModelSpec, timeout_seconds: float) -> Survey:
        """As `ModelStore`."""
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_seconds
        search = Search(spec, Waits(loop.time, until), is_survey=True)
        is_local: bool | None = False
        if self._may_be_local(spec):
            is_local = await self._surveys.run_within(lambda _: self._is_local(spec), timeout_seconds)
        if is_local is None:
            return Survey(0, None)
        try:
            async with asyncio.timeout_at(until):
                find = await self._finding(search, is_local=is_local)
        except TimeoutError:
            return Survey(0, None)
        found = await self._surveys.run_within(find, until - loop.time())
        return Survey(search.seen_bytes, found.listing if found else None)

    async def release(self, artifact: Artifact) -> None:
        """As `ModelStore`."""
        if artifact.is_ours:
            await self._files.run_to_end(lambda _: self._volume.discard(artifact.root))

    def close(self) -> None:
        """Take no more work and close idle connections; does not wait for what runs."""
        for workers in (self._pulls, self._asks, self._surveys, self._files, self._secrets):
            workers.close()
        self._health.close()
        self._clients.close()

    async def _finding(self, search: Search, *, is_local: bool) -> Callable[[Stop], Found]:
        """The search, to be run in a thread: among the models that were already pulled, or in the store that the request's config names."""
        if is_local:
            return lambda stop: self._helped.find(search, stop)
        config = await self._configs.resolve(search.spec)
        finder = self._finders.of(config)
        return lambda stop: finder.find(config, search, stop)

    def _may_be_local(self, spec: ModelSpec) -> bool:
        """Without asking the file system. Source: the storage helper's rewritten request (absolute path, size, no parameters)."""
        if self._settings.embedded is not None:
            return not self._settings.embedded
        return spec.disk_size_bytes is not None and not spec.storage_params and is_below(spec.path, self._root)

    def _is_local(self, spec: ModelSpec) -> bool:
        return self._settings.embedded is False or os.path.lexists(spec.path)


def _warming(finder: Finder, config: StorageConfig) -> Callable[[Stop], None]:
    return lambda stop: finder.warm(config, stop)
