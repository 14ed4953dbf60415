"""A store with a cache over memory, and what a load does with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from adapter.errors import SourceDenied
from adapter.layout import rules
from adapter.model import Artifact, ModelSpec
from adapter.storage.bucket import PAGE_OBJECTS, Page, Read
from adapter.storage.secret.merging import StorageConfig
from adapter.storage.store import Store
from adapter.telemetry.metrics import REGISTRY
from adapter.volume.space import Space
from adapter.volume.volume import Volume
from tests.builders import a_spec
from tests.fakes.memory_bucket import MemoryBucket
from tests.unit.storage.rigs import StoreRig, make_rig, opened

MODEL = {"m/config.pbtxt": b'backend: "onnxruntime"', "m/1/model.onnx": b"one" * 100, "m/1/weights.bin": b"two" * 1000}


@dataclass
class Rights:
    """What the credentials of one storage key may do; each call is counted."""

    may_list: bool = True
    may_read: bool = True
    calls: list[str] = field(default_factory=list)


class Guarded:
    """A bucket as somebody's credentials see it."""

    def __init__(self, bucket: MemoryBucket, rights: Rights) -> None:
        self.kind, self.place, self.words, self.endpoint = bucket.kind, bucket.place, bucket.words, bucket.endpoint
        self._bucket = bucket
        self._rights = rights

    async def list_page(self, prefix: str, *, token: str | None = None, limit: int = PAGE_OBJECTS, by_folder: bool = False) -> Page:
        self._rights.calls.append(f"list {prefix}")
        if not self._rights.may_list:
            raise SourceDenied("403 for the listing")
        return await self._bucket.list_page(prefix, token=token, limit=limit, by_folder=by_folder)

    async def read(self, reads: Sequence[Read]) -> None:
        for read in reads:
            self._rights.calls.append(f"read {read.wanted.key} {read.start}+{read.length}")
            if not self._rights.may_read:
                raise SourceDenied("403 for the object")
            await self._bucket.read((read,))


@dataclass
class CacheRig:
    """A store with a cache; `again` is the next process over the same volume."""

    rig: StoreRig
    rights: dict[str, Rights]
    again: Callable[..., CacheRig]

    @property
    def bucket(self) -> MemoryBucket:
        return self.rig.bucket

    @property
    def volume(self) -> Volume:
        return self.rig.volume

    @property
    def store(self) -> Store:
        return self.rig.store

    @property
    def space(self) -> Space:
        assert self.rig.space is not None
        return self.rig.space

    @property
    def artifacts(self) -> list[Path]:
        """Folders of all of them, without what is being deleted."""
        return sorted(self.volume.artifacts_dir.iterdir())

    def put(self, files: dict[str, bytes] = MODEL) -> None:
        """Store a model."""
        for key, content in files.items():
            self.bucket.put(key, content)

    def identity(self, name: str, **rights: bool) -> Rights:
        """One more storage key, with credentials that have these rights."""
        self.rig.configure(name, {"type": "s3", "bucket": "b", "access_key_id": name, "secret_access_key": "x"})
        made = self.rights[f"storage config {name!r}"] = Rights(**rights)
        return made

    async def load(self, spec: ModelSpec | None = None, *, seconds: float = 60.0) -> Artifact:
        """What a load does: list, read what the layout needs, fetch what the layout has."""
        spec = spec or a_spec("m")
        model = await opened(self.rig.store, spec, seconds)
        contents = {file: await model.read(file) for file in rules.wanted(model.listing)}
        return await model.fetch(rules.plan(spec, model.listing, contents).files)

    async def asked(self, spec: ModelSpec | None = None) -> list[str]:
        """The calls that such a load makes. Its artifact is given up."""
        before = len(self.bucket.calls)
        await self.rig.store.release(await self.load(spec))
        return self.bucket.calls[before:]


def content_of(artifact: Artifact) -> dict[str, bytes]:
    """Every file of an artifact."""
    return {path.relative_to(artifact.root).as_posix(): path.read_bytes() for path in artifact.root.rglob("*") if path.is_file()}


def counted(name: str, **labels: str) -> float:
    """A metric as it is now."""
    return REGISTRY.get_sample_value(f"triton_adapter_{name}", labels) or 0.0


def pages(calls: list[str]) -> list[str]:
    """The calls that only list."""
    return [call for call in calls if call.startswith("list")]


@pytest.fixture
def make_cache(tmp_path: Path, volume: Volume) -> Iterator[Callable[..., CacheRig]]:
    """Stores over one volume and one bucket, one after the other."""
    stores = []
    rights: dict[str, Rights] = {}
    bucket = MemoryBucket()

    def make(*, cache_bytes: int = 1 << 30, salt: bytes = b"salt") -> CacheRig:
        rig = make_rig(tmp_path, volume, cache_bytes=cache_bytes, salt=salt)
        rig.bucket = rig.clients.only = bucket

        async def of(config: StorageConfig) -> Guarded:
            return Guarded(bucket, rights.setdefault(config.label, Rights()))

        rig.clients.bucket = of
        stores.append(rig.store)
        return CacheRig(rig, rights, make)

    yield make
    for store in stores:
        store.close()


@pytest.fixture
def cache(make_cache: Callable[..., CacheRig]) -> CacheRig:
    """With room for everything."""
    return make_cache()
