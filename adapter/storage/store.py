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
import secrets
from collections.abc import Callable
from pathlib import Path

import structlog

from adapter.digests import SALT_BYTES, Digests
from adapter.errors import AdapterError, SourceDenied, SourceNotFound, SourceUnavailable
from adapter.model import Artifact, ModelSpec, Survey
from adapter.ports import StoredModel
from adapter.settings import CACHE_DIR, PullSettings
from adapter.space import Space
from adapter.storage.cache.cache import Cache
from adapter.storage.cache.identity import reader_of, server_of
from adapter.storage.cache.stale import stale_model
from adapter.storage.mounted.claims import Claims
from adapter.storage.mounted.local import HelpedModels, is_below
from adapter.storage.pull.puller import Puller
from adapter.storage.pull.remote import Means
from adapter.storage.pull.unpacked import Unpacker
from adapter.storage.search import Finder, Found, Search, asked
from adapter.storage.secret.binding import NOTHING
from adapter.storage.secret.config import StorageConfigs
from adapter.storage.secret.merging import StorageConfig
from adapter.storage.stores.clients import Clients
from adapter.storage.stores.clients import Means as ClientMeans
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
_STALE_SECONDS = 5.0
"""Longest silence in a listing where the cache can stand in for a store that is away; never more than a third of the budget."""
_TICK_SECONDS = 0.01

_log = structlog.stdlib.get_logger(__name__)


class Store:
    """All models, wherever they are. Call `close` at the end."""

    def __init__(
        self,
        *,
        settings: PullSettings,
        root: Path,
        volume: Volume,
        space: Space | None = None,
        digests: Digests | None = None,
        max_loading: int,
        clients: KeptClients | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """
        Args:
            settings: how to pull.
            root: ROOT_MODEL_DIR, where models that were already pulled are.
            volume: a claimed volume.
            space: the volume's budget; without one nothing idle is kept.
            digests: with the salt under which the cache remembers who was given what; without them a new one.
            max_loading: loads at once; each may have its part of the threads.
            clients: how to reach a bucket.
            jitter: a number from 0 to 1 for each pause between retries.
        """
        self._settings = settings
        space = space or Space(volume.cache_dir, 0, refuses=False)
        self._digests = digests or Digests(secrets.token_bytes(SALT_BYTES))
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
        self._clients = clients or Clients(BUCKETS, ClientMeans(max_connections=most, guard=Guard(settings.denied_networks)))
        own = (volume.repository_dir, volume.cache_dir, root / CACHE_DIR)
        self._helped = HelpedModels(root, own, settings.pvc_mounts, self._asks)
        lanes = max(_MIN_LANES, settings.threads // max_loading)
        self._cache = cache = Cache(volume=volume, space=space, files=self._files)
        puller = Puller(volume=volume, pulls=self._pulls, files=self._files, lanes=lanes, part_bytes=settings.part_bytes)
        unpacker = Unpacker(
            volume=volume, cache=cache, puller=puller, pulls=self._pulls, files=self._files, max_bytes=settings.unpack_max_bytes
        )
        self._health = Health()
        means = Means(cache=cache, puller=puller, asks=self._asks, files=self._files)
        in_buckets = InBuckets(clients=self._clients, means=means, unpacker=unpacker, health=self._health, jitter=jitter)
        self._finders = Finders(in_buckets, Claims(settings.pvc_mounts, self._asks))

    async def prepare(self) -> None:
        """Look at what the cache has, and make the clients of all storage keys, one after the other: no load shall wait for them."""
        await self._cache.ready()
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
        if self._may_be_local(spec) and await asked(self._asks, waits, lambda _: self._is_local(spec)):
            find = await self._finding(search, is_local=True)
            return await (await asked(self._asks, waits, find)).open()
        with waits.on("the volume to tell what the cache has"):
            await self._cache.ready()
        find = await self._finding(search, is_local=False)
        candidate = self._cache.candidate(search.reader)
        if candidate is not None:
            try:
                cause, found = await self._soon(find, waits)
            except (SourceDenied, SourceNotFound):  # what storage has said last holds while it is away, too
                await self._cache.forget(search.reader)
                raise
            if found is not None:
                return await found.open()
            if (stale := await stale_model(self._cache, candidate, cause)) is not None:
                return stale
        return await (await asked(self._asks, waits, find)).open()

    async def _soon(self, find: Callable[[Stop], Found], waits: Waits) -> tuple[str, Found | None]:
        """
        What the store has, if the store is not silent for long: something else can be given.

        Returns:
            Why it did not tell, and nothing; or what was found. Raises as `open`, where the store is not away.
        """
        seconds = max(min(_STALE_SECONDS, waits.left_seconds() / 3), 0.0)
        obstacle: str | None = None
        bound = asyncio.timeout(None)
        loop = asyncio.get_running_loop()
        timer: asyncio.TimerHandle

        def look() -> None:
            nonlocal obstacle, timer
            silent_seconds = waits.silent_seconds()
            if silent_seconds < seconds:  # a long listing has many answers
                timer = loop.call_later(max(seconds - silent_seconds, _TICK_SECONDS), look)
                return
            obstacle = waits.words()
            bound.reschedule(0)

        timer = loop.call_later(seconds, look)
        try:
            async with bound:
                return "", await asked(self._asks, waits, find)
        except SourceUnavailable as error:
            if not error.can_pass:
                raise
            return error.text, None
        except TimeoutError:
            if not bound.expired():
                raise
            return f"storage has been silent for {seconds:.3g} s: {obstacle}", None
        finally:
            timer.cancel()

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
            await self._cache.release(artifact)

    async def reclaim(self, key: str) -> Artifact | None:
        """As `ModelStore`."""
        return await self._cache.reclaim(key)

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
        search.reader = reader_of(self._digests, config, search.spec)
        search.server = server_of(self._digests, config, BINDINGS.get(config.type, NOTHING))
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
