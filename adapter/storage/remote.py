"""A model in an object store: listed, and ready to be read or pulled."""

from __future__ import annotations

from adapter.model import Artifact, Listing, SourceFile
from adapter.storage.listing import FoundModel
from adapter.storage.local import check_readable
from adapter.storage.puller import Puller
from adapter.storage.source import ObjectSource
from adapter.workers import Stop, Workers


class RemoteModel:
    """Implements `StoredModel`."""

    def __init__(self, *, source: ObjectSource, found: FoundModel, puller: Puller, asks: Workers, read_limit_bytes: int) -> None:
        self._source = source
        self._found = found
        self._puller = puller
        self._asks = asks
        self._read_limit_bytes = read_limit_bytes

    @property
    def listing(self) -> Listing:
        """As `StoredModel`."""
        return self._found.listing

    async def read(self, file: SourceFile) -> bytes:
        """As `StoredModel`."""
        check_readable(file, self._read_limit_bytes, self.listing.origin)
        stored = self._found.stored(file)

        def work(stop: Stop) -> bytes:
            content = bytearray()
            self._source.read(stored, 0, stored.size_bytes, content.extend, stop)
            return bytes(content)

        return await self._asks.run(work) if file.size_bytes else b""

    async def fetch(self, files: tuple[SourceFile, ...]) -> Artifact:
        """As `StoredModel`."""
        return await self._puller.pull(self._source, {file.path: self._found.stored(file) for file in files})
