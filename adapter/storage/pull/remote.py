"""A model in a bucket: listed, and ready to be read or pulled."""

from __future__ import annotations

from adapter.model import Artifact, Listing, SourceFile
from adapter.storage.pull.listing import FoundModel
from adapter.storage.pull.puller import Puller
from adapter.storage.search import asked, check_readable
from adapter.waits import Waits
from adapter.workers import Stop, Workers


class RemoteModel:
    """Implements `Found` and `StoredModel`."""

    def __init__(self, found: FoundModel, *, puller: Puller, asks: Workers, waits: Waits) -> None:
        self.found = found
        self.waits = waits
        self._puller = puller
        self._asks = asks

    @property
    def listing(self) -> Listing:
        """As `StoredModel`."""
        return self.found.listing

    async def open(self) -> RemoteModel:
        """As `Found`."""
        return self

    async def read(self, file: SourceFile) -> bytes:
        """As `StoredModel`."""
        check_readable(file, self.listing.origin)
        stored = self.found.stored(file)

        def work(stop: Stop) -> bytes:
            content = bytearray()
            self.found.bucket.read(stored, 0, stored.size_bytes, content.extend, stop)
            return bytes(content)

        return await asked(self._asks, self.waits, work) if file.size_bytes else b""

    async def fetch(self, files: tuple[SourceFile, ...]) -> Artifact:
        """As `StoredModel`."""
        return await self._puller.pull_files(self.found.bucket, files, self.found.stored, self.waits)
