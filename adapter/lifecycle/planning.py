"""
The layout of a model that is listed, before it is pulled: reads what `adapter.layout` must see, and asks it.

Owns the threads for large models, and nothing of the rules.
"""

from __future__ import annotations

from adapter.layout import rules
from adapter.model import Layout, Listing, ModelSpec, SourceFile
from adapter.ports import StoredModel
from adapter.workers import Workers

QUICK_FILES, QUICK_BYTES = 200, 8 * 1024
"""Up to so many files, and bytes of config and schema, a plan takes some milliseconds at most: the loop can bear it."""
THREADS = 2


class Planning:
    """Asks the rules of layouts."""

    def __init__(self) -> None:
        self._workers = Workers("planning", THREADS)

    async def layout(self, spec: ModelSpec, stored: StoredModel) -> Layout:
        """How the model will look to Triton. Raises InvalidModel, SourceError."""
        contents = {file: await stored.read(file) for file in rules.wanted(stored.listing)}
        return await self._plan(spec, stored.listing, contents)

    async def served_bytes(self, spec: ModelSpec, listing: Listing) -> int:
        """Bytes of the files that will be served; of all files when that depends on a file to be read. Raises InvalidModel."""
        if rules.wanted(listing):
            return listing.size_bytes
        return (await self._plan(spec, listing, {})).size_bytes

    def close(self) -> None:
        """Take no more work."""
        self._workers.close()

    async def _plan(self, spec: ModelSpec, listing: Listing, contents: dict[SourceFile, bytes]) -> Layout:
        if len(listing.files) <= QUICK_FILES and sum(map(len, contents.values())) <= QUICK_BYTES:
            return rules.plan(spec, listing, contents)
        return await self._workers.run(lambda _: rules.plan(spec, listing, contents))
