"""Builders for the tests of storage: requests, a store over memory, and waiting for threads."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adapter.model import ModelSpec
from adapter.ports import StoredModel
from adapter.records import Digests
from adapter.settings.storage import PullSettings
from adapter.storage.search import Search
from adapter.storage.secret.merging import StorageConfig
from adapter.storage.store import Store
from adapter.volume.space import Space
from adapter.volume.volume import Volume
from adapter.waits import Waits
from tests.builders import a_spec
from tests.fakes.memory_bucket import MemoryBucket

MIB = 1024 * 1024


def make_config(values: Mapping[str, object], **fields: Any) -> StorageConfig:
    """A merged storage config with these values."""
    bucket = str(values.get("bucket") or "") or None
    base: dict[str, Any] = {"type": str(values.get("type") or "s3"), "bucket": bucket, "values": values, "label": "storage config 'k'"}
    return StorageConfig(**base | fields)


def make_search(path: str = "m", **fields: Any) -> Search:
    """A search for the model at this path."""
    return Search(a_spec(path, **fields), Waits(time.monotonic))


async def opened(store: Store, spec: ModelSpec, seconds: float = math.inf) -> StoredModel:
    """The model, for a caller that does not ask what it waited for; `seconds`: how long it may wait for storage."""
    return await store.open(spec, Waits(time.monotonic, time.monotonic() + seconds))


@dataclass
class MemoryClients:
    """Every config leads to the same bucket in memory."""

    only: MemoryBucket

    async def bucket(self, config: StorageConfig) -> MemoryBucket:
        return self.only


@dataclass
class StoreRig:
    """A store whose volume, config folder and bucket a test can look at."""

    root: Path
    volume: Volume
    bucket: MemoryBucket
    clients: MemoryClients
    config_dir: Path
    store: Store

    def configure(self, name: str, content: object) -> None:
        """Write one entry of the storage secret."""
        (self.config_dir / name).write_text(content if isinstance(content, str) else json.dumps(content))

    @property
    def is_clean(self) -> bool:
        """Nothing is left of any pull."""
        return not any(folder_content(folder) for folder in (self.volume.staging_dir, self.volume.artifacts_dir, self.volume.trash_dir))


def pull_settings(folder: Path, **fields: Any) -> PullSettings:
    """Of a store whose secret is `config` in this folder, and whose claims are in `claims`."""
    usual: dict[str, Any] = {"denied_networks": (), "embedded": None, "threads": 4, "unpack_max_bytes": 100 * MIB}
    return PullSettings(**usual | {"config_dir": folder / "config", "pvc_mounts": folder / "claims"} | fields)


def make_rig(folder: Path, volume: Volume, *, embedded: bool | None = None, cache_bytes: int = 0) -> StoreRig:
    """A store over memory, which keeps up to `cache_bytes` of idle artifacts."""
    settings = pull_settings(folder, config_dir=folder / "storage-config", embedded=embedded)
    settings.config_dir.mkdir(exist_ok=True)
    bucket, root = MemoryBucket(), volume.repository_dir.parent
    clients = MemoryClients(bucket)
    space = Space(volume.cache_dir, cache_bytes, refuses=bool(cache_bytes))
    store = Store(
        settings=settings,
        root=root,
        volume=volume,
        space=space,
        digests=Digests(b"salt"),
        clients=lambda config: clients.bucket(config),  # noqa: PLW0108 - a test may replace it
        jitter=lambda: 0.0,
    )
    rig = StoreRig(root, volume, bucket, clients, settings.config_dir, store)
    rig.configure("default", {"type": "s3", "bucket": "b"})
    return rig


def folder_content(folder: Path) -> list[str]:
    """Every path below a folder, relative, sorted; directories end in a slash."""
    return sorted(f"{path.relative_to(folder)}{'/' if path.is_dir() else ''}" for path in folder.rglob("*"))


def write_tree(folder: Path, files: Mapping[str, bytes]) -> None:
    """Files with their directories."""
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
