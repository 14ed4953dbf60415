"""A model in a bucket: listed, and ready to be read or pulled."""

from __future__ import annotations

from adapter.model import Artifact, Listing, SourceFile
from adapter.storage.bucket import Bucket
from adapter.storage.pull.listing import FoundModel
from adapter.storage.pull.puller import Puller
from adapter.storage.search import check_readable
from adapter.workers import Stop, Workers


class RemoteModel:
    """Implements `Found` and `StoredModel`."""

    def __init__(self, *, bucket: Bucket, found: FoundModel, puller: Puller, asks: Workers) -> None:
        self._bucket = bucket
        self._found = found
        self._puller = puller
        self._asks = asks

    @property
    def listing(self) -> Listing:
        """As `StoredModel`."""
        return self._found.listing

    async def open(self) -> RemoteModel:
        """As `Found`."""
        return self

    async def read(self, file: SourceFile) -> bytes:
        """As `StoredModel`."""
        check_readable(file, self.listing.origin)
        stored = self._found.stored(file)

        def work(stop: Stop) -> bytes:
            content = bytearray()
            self._bucket.read(stored, 0, stored.size_bytes, content.extend, stop)
            return bytes(content)

        return await self._asks.run(work) if file.size_bytes else b""

    async def fetch(self, files: tuple[SourceFile, ...]) -> Artifact:
        """As `StoredModel`."""
        return await self._puller.pull(self._bucket, {file.path: self._found.stored(file) for file in files})
