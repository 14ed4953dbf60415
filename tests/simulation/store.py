"""
Two stores of objects in memory: each may be away, slow or silent for a time, and objects are replaced at any moment.

Behind the real `Store`: its search, its retries, its pulls and its cache are the adapter's.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from adapter.errors import SourceChanged, SourceUnavailable
from adapter.storage.bucket import PAGE_OBJECTS, Page, Read, StoredObject
from adapter.storage.secret.merging import StorageConfig

SILENT_SECONDS = 60.0
"""A call to a silent endpoint ends by itself, as a read does by its timeout."""
CHUNK_BYTES = 8 * 1024
SERVED = ("model.onnx", "weights.bin")


class UnforeseenError(Exception):
    """An unforeseen failure; the caller must be told that there is a defect."""


def content_of(path: str, version: int, name: str, size_bytes: int) -> bytes:
    """Bytes that tell where they are from."""
    said = f"{path}#{version}#{name}#".encode()
    return (said * (size_bytes // len(said) + 1))[:size_bytes]


def said(files: dict[str, bytes]) -> str:
    """Which version of which model it is."""
    content = next(content for name, content in sorted(files.items()) if name.endswith(SERVED))
    path, version, _ = content.split(b"#", 2)
    return f"{path.decode()}#{version.decode()}"


def served(files: dict[str, bytes]) -> dict[str, bytes]:
    """By name: only what the adapter does not write itself."""
    return {name.rpartition("/")[2]: content for name, content in files.items() if name.endswith(SERVED)}


def sizes(files: dict[str, bytes]) -> dict[str, int]:
    return {name: len(content) for name, content in files.items()}


@dataclass
class Model:
    """One path of a store, with all that it ever held."""

    path: str
    versions: list[dict[str, bytes]] = field(default_factory=list)
    """One after the other; the last one is there now."""
    since: list[float] = field(default_factory=list)
    """When each came."""


@dataclass(eq=False)
class Endpoint:
    """One server."""

    name: str
    state: str = "well"
    """`well`, `away`, `silent`, or `slow`."""
    models: dict[str, Model] = field(default_factory=dict)
    trouble_until: float = -1.0

    def turn(self, state: str, now: float) -> None:
        """From now on it is so."""
        if state == "well":
            self.trouble_until = now
        self.state = state

    def was_well(self, since: float) -> bool:
        """All the time since then."""
        return self.state == "well" and self.trouble_until < since


class Bucket:
    """As `adapter.storage.bucket.Bucket`."""

    kind = "s3"

    def __init__(self, endpoint: Endpoint, decide: random.Random, asked: Callable[[], None]) -> None:
        self._endpoint = endpoint
        self._decide = decide
        self._asked = asked
        self.place = "s3://models"
        self.endpoint = endpoint.name
        self.words = f"bucket 'models' at {endpoint.name}"

    async def list_page(self, prefix: str, *, token: str | None = None, limit: int = PAGE_OBJECTS, by_folder: bool = False) -> Page:
        await self._meet()
        found: list[StoredObject] = []
        for path, model in self._endpoint.models.items():
            if f"{path}/".startswith(prefix) or path == prefix:
                for name, content in model.versions[-1].items():
                    found.append(StoredObject(f"{path}/{name}", len(content), f"{path}-{len(model.versions) - 1}"))
        return Page(tuple(sorted(found, key=lambda stored: stored.key)))

    async def read(self, reads: Sequence[Read]) -> None:
        for read in reads:
            if not read.is_done:
                await self._read(read)

    async def _read(self, read: Read) -> None:
        await self._meet()
        while read.taken < read.length:
            path, _, version = read.wanted.etag.rpartition("-")
            model = self._endpoint.models[path]
            if len(model.versions) - 1 != int(version):
                raise SourceChanged(f"{read.wanted.key!r} was replaced after the listing")
            content = model.versions[-1][read.wanted.key.removeprefix(f"{path}/")]
            read.give(content[read.start + read.taken : read.start + min(read.length, read.taken + CHUNK_BYTES)])
            if read.taken < read.length or self._endpoint.state != "well":
                await self._meet()
        read.end()

    async def _meet(self) -> None:
        """The way to the server and back."""
        self._asked()
        state = self._endpoint.state
        if state == "away":
            await asyncio.sleep(self._decide.choice((0.001, 0.01, 1.0)))
            raise SourceUnavailable(f"{self.words} cannot be reached: connection refused", cause="connection refused")
        if state == "silent":
            await asyncio.sleep(SILENT_SECONDS)
            raise SourceUnavailable(f"{self.words} cannot be reached: no answer", cause="no answer")
        if state == "slow":
            await asyncio.sleep(self._decide.choice((0.5, 3.0, 10.0)))
        elif self._decide.random() < 0.5:
            await asyncio.sleep(self._decide.choice((0.001, 0.01, 0.1)))
        if state == "flaky" and self._decide.random() < 0.05:
            raise UnforeseenError
        if state == "flaky" and self._decide.random() < 0.4:
            raise SourceUnavailable(f"{self.words} cannot be reached: reset", cause="reset")


class Clients:
    """As `adapter.storage.stores.clients.Clients`: the label of a config names the endpoint."""

    def __init__(self, endpoints: dict[str, Endpoint], decide: random.Random, asked: Callable[[], None]) -> None:
        self._endpoints = endpoints
        self._decide = decide
        self._asked = asked

    async def bucket(self, config: StorageConfig) -> Bucket:
        """The bucket of this config."""
        return Bucket(self._endpoints[config.required_bucket()], self._decide, self._asked)
