"""
The model store: where a model comes from.

Implements `ports.ModelStore`. Owns the engine of all downloads, and threads for what blocks: `volume` (our own folders, quick,
never blocked by a store or a claim), `look` (what the cache has), `unpack`, `secret` (the mounted secret), `identity`
(libraries that fetch credentials), `own` (models that are files of our own volume), and two for each claim, or folder of a
front's, that is used. Knows
nothing of Triton, and of no type of store.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from adapter.errors import AdapterError, InvalidRequest, SourceUnavailable
from adapter.model import Artifact, ModelSpec, Survey
from adapter.ports import StoredModel, Wanted
from adapter.records import Digests
from adapter.settings.storage import CACHE_DIR, PullSettings
from adapter.storage.bucket import Bucket
from adapter.storage.cache.cache import Cache
from adapter.storage.cache.record import origin_of
from adapter.storage.mounted.finders import Mounted
from adapter.storage.net.engine import Engine
from adapter.storage.net.messages import Guard
from adapter.storage.pull.archives import is_archive
from adapter.storage.pull.listing import find_model
from adapter.storage.pull.puller import PART_BYTES, EndpointQueues, Means
from adapter.storage.pull.remote import PackedModel, RemoteModel, found_soon, stale
from adapter.storage.search import Found, Search
from adapter.storage.secret.config import StorageConfigs
from adapter.storage.secret.merging import NOTHING, StorageConfig
from adapter.storage.stores.clients import Buckets, Clients
from adapter.storage.stores.clients import Means as ClientMeans
from adapter.storage.stores.table import BINDINGS, BUCKETS
from adapter.storage.stores.tries import RetriedBucket, endpoints
from adapter.volume.space import Space
from adapter.volume.volume import Volume
from adapter.waits import Waits
from adapter.workers import Workers, processors, retrieve

ASKING = 16
"""Listings and small reads that may wait for one endpoint at a time."""
SURVEYING = 2
_IDENTITY_THREADS = 16
"""Each client has one at most, and waits in it for no longer than its load."""
_MOST_ENGINES = 4

_log = structlog.stdlib.get_logger(__name__)


class Store:
    """All models, wherever they are. Call `close` at the end."""

    def __init__(
        self,
        *,
        settings: PullSettings,
        root: Path,
        volume: Volume,
        space: Space,
        digests: Digests,
        clients: Buckets | None = None,
        part_bytes: int = PART_BYTES,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """
        Args:
            settings: how to pull.
            root: ROOT_MODEL_DIR, where models that were already pulled are.
            volume: a claimed volume.
            space: the volume's budget.
            digests: with the salt under which the cache remembers who was given what.
            clients: gives the bucket of a config.
            part_bytes: of the parts of large files.
            jitter: a number from 0 to 1 for each pause between retries.
        """
        self._embedded = settings.embedded
        self._digests = digests
        self._unpacks = Workers("unpack", 4)
        self._files = Workers("volume", 4)
        self._looks = Workers("look", 4)
        self._secrets = Workers("secret", 2)
        self._identities = Workers("identity", _IDENTITY_THREADS)
        self._configs = StorageConfigs(settings.config_dir, BINDINGS, self._secrets)
        self._mounted = Mounted(settings.pvc_mounts, root, (volume.repository_dir, volume.cache_dir, root / CACHE_DIR))
        self._engine = Engine(min(processors(), _MOST_ENGINES))  # last: the other threads end with their pools, these by `close`
        means = ClientMeans(engine=self._engine, blocking=self._secrets, asking=self._identities, guard=Guard(settings.denied_networks))
        self._bucket = clients or Clients(BUCKETS, means).bucket
        self._left: set[asyncio.Task[Found]] = set()
        """Surveys that were given up, until they have ended."""
        self._cache = Cache(volume=volume, space=space, files=self._files, looks=self._looks)
        self._means = Means(
            volume=volume, cache=self._cache, asks=EndpointQueues(ASKING), pulls=EndpointQueues(settings.threads),
            connections=settings.threads, part_bytes=part_bytes, files=self._files, unpacks=self._unpacks,
            most_unpacked_bytes=settings.unpack_max_bytes,
        )  # fmt: skip
        self._surveys = EndpointQueues(SURVEYING)
        """Of searches that no load waits for."""
        self._retried = partial(RetriedBucket, known=endpoints(), jitter=jitter)
        self._finders = {**dict.fromkeys(BUCKETS, self._find_in_bucket), "pvc": self._mounted.in_claim}
        """By type; each looks for the model that a search names, and raises as `ModelStore.open`."""

    async def ready(self) -> None:
        """Look at what the cache has, and take out what it cannot use."""
        await self._cache.ready()

    async def prepare(self) -> None:
        """Look at what the cache has, and make the clients of all storage keys, one after the other: no load shall wait for them."""
        await self._cache.ready()
        for key in await self._configs.keys():
            try:
                config = await self._config(ModelSpec(model_id="-", model_type="", path="-", storage_key=key))
                if config.type in BUCKETS:
                    await self._bucket(config)
            except AdapterError as error:
                _log.warning("storage.config_unusable", storage_key=key, error=error.text)

    async def open(self, spec: ModelSpec, waits: Waits) -> StoredModel:
        """As `ModelStore`."""
        search = Search(spec, waits)
        if (found := await self._at_hand(search)) is not None:
            return await found.open()
        with waits.on("the volume to tell what the cache has"):
            await self._cache.ready()
        find = await self._finder(search)
        found = None
        if (candidate := self._cache.candidate(search.origin)) is not None:
            async with self._cache.heeding_refusals(search.origin):
                cause, found = await found_soon(find(), waits)
            if found is None and (kept := await stale(self._cache, candidate, cause, waits)) is not None:
                return kept
        return await (found or await find()).open()

    async def survey(self, spec: ModelSpec, timeout_seconds: float, wanted: Wanted) -> Survey:
        """As `ModelStore`. What hangs is left behind."""
        clock = asyncio.get_running_loop().time
        search = Search(spec, Waits(clock, clock() + timeout_seconds), wanted=wanted)
        finding = asyncio.create_task(self._surveyed(search), name=f"survey of {spec.model_id}")
        self._left.add(finding)
        finding.add_done_callback(self._left.discard)
        finding.add_done_callback(retrieve)
        try:
            done, _ = await asyncio.wait({finding}, timeout=timeout_seconds)
        finally:
            finding.cancel()
        try:
            for ended in done:
                ended.result()
        except SourceUnavailable:
            if search.waits.left_seconds() > 0:
                raise
        return Survey(search.seen_bytes, search.listing, dict(search.contents))

    async def _surveyed(self, search: Search) -> Found:
        return await self._at_hand(search) or await (await self._finder(search))()

    async def release(self, artifact: Artifact) -> None:
        """As `ModelStore`."""
        if artifact.is_ours:
            await self._cache.release(artifact)

    async def reclaim(self, key: str) -> Artifact | None:
        """As `ModelStore`."""
        return await self._cache.reclaim(key)

    def close(self) -> None:
        """Take no more work and close idle connections; does not wait for what runs."""
        for threads in (self._unpacks, self._files, self._looks, self._mounted, self._secrets, self._identities, self._engine):
            threads.close()

    async def _finder(self, search: Search) -> Callable[[], Coroutine[Any, Any, Found]]:
        """What finds the model in the store that the request's config names. Raises as `ModelStore.open`, as what it returns does."""
        with search.waits.on("the storage config to be read"):
            config = await self._config(search.spec)
        search.origin = origin_of(self._digests, config, BINDINGS.get(config.type, NOTHING), search.spec)
        return partial(self._finders[config.type], config, search)

    async def _config(self, spec: ModelSpec) -> StorageConfig:
        config = await self._configs.resolve(spec)
        if config.type not in self._finders:
            raise InvalidRequest(f"storage type {config.type!r} is not supported; supported: {', '.join(self._finders)}")
        return config

    async def _find_in_bucket(self, config: StorageConfig, search: Search) -> Found:
        with search.waits.on(f"a client for {config.label}"):
            bare = await self._bucket(config)

        def bucket_for(waits: Waits) -> Bucket:
            return self._retried(bare, waits, reader=search.origin) if search.wanted is None else bare  # a survey has no time for that

        async with (self._means.asks if search.wanted is None else self._surveys).turn(bare.endpoint, search.waits):
            found = await find_model(bucket_for(search.waits), search, self._files)
            is_packed = config.flag("unpack", default=False) and found.single is not None and is_archive(found.listing.name)
            make = partial(PackedModel if is_packed else RemoteModel, found, means=self._means, search=search, bucket_for=bucket_for)
            model = await self._files.run(lambda _: make()) if is_packed else make()
            if model.is_known:
                await search.tell(model)
            return model

    async def _at_hand(self, search: Search) -> Found | None:
        """
        A model that others have put on a volume: a front, or the storage helper. None: a storage config names it.

        The file system is asked only where the request is as the helper rewrites it: absolute path, size, no parameters.
        """
        spec, is_embedded = search.spec, self._embedded
        if spec.folders:
            return await self._mounted.in_folders(search)
        if is_embedded is None:
            is_helped = spec.disk_size_bytes is not None and not spec.storage_params
            is_embedded = not (is_helped and await self._mounted.has_helped(spec.path, search.waits))
        return None if is_embedded else await self._mounted.helped(search)
