"""
The layout of a model that is listed, before it is pulled: reads what `adapter.layout` must see, and asks it.

What depends on the content of large files is decided when they are pulled, before they are placed: of each such file both
ends are read, and where the rules ask for it, a word is counted in the whole file. Owns the threads for large models and
for that reading, and nothing of the rules.
"""

from __future__ import annotations

from adapter.digests import Digests
from adapter.ends import read_ends
from adapter.layout import rules
from adapter.model import Artifact, Content, Layout, Listing, ModelSpec, SourceFile
from adapter.ports import StoredModel
from adapter.workers import Stop, Workers

QUICK_FILES, QUICK_BYTES = 200, 8 * 1024
"""Up to so many files, and bytes of config and schema, a plan takes some milliseconds at most: the loop can bear it."""
THREADS = 2
LOOKING_THREADS = 2
"""Threads of their own: a claim whose server is away must not keep other models from being planned."""


class Planning:
    """Asks the rules of layouts."""

    def __init__(self) -> None:
        self._workers = Workers("planning", THREADS)
        self._lookers = Workers("looking", LOOKING_THREADS)

    async def layout(self, spec: ModelSpec, stored: StoredModel) -> Layout:
        """How the model will look to Triton. Raises InvalidModel, SourceError."""
        contents = {file: await stored.read(file) for file in await self._wanted(stored.listing)}
        return await self._plan(spec, stored.listing, contents)

    async def finished(self, layout: Layout, artifact: Artifact) -> Layout:
        """
        The layout as it is placed: what the pulled files say decides the rest.

        Raises:
            InvalidModel: Triton could not serve such content.
            AdapterError: a file cannot be read on the volume.
        """
        asked = rules.asked(layout)
        if not asked:
            return layout

        def look(stop: Stop) -> Layout:
            answers = {file: read_ends(artifact.root / file.path, question.count, stop.check) for file, question in asked.items()}
            return rules.finished(layout, answers)

        return await self._lookers.run(look)

    async def served_bytes(self, spec: ModelSpec, listing: Listing) -> int:
        """Bytes of the files that will be served; of all files when that depends on a file to be read. Raises InvalidModel."""
        if await self._wanted(listing):
            return listing.size_bytes
        return (await self._plan(spec, listing, {})).size_bytes

    async def content(self, spec: ModelSpec, listing: Listing, digests: Digests) -> Content:
        """What a model is loaded from."""
        if len(listing.files) <= QUICK_FILES:
            return _content(spec, listing, digests)
        return await self._workers.run(lambda _: _content(spec, listing, digests))

    def close(self) -> None:
        """Take no more work."""
        self._workers.close()
        self._lookers.close()

    async def _wanted(self, listing: Listing) -> tuple[SourceFile, ...]:
        if len(listing.files) <= QUICK_FILES:
            return rules.wanted(listing)
        return await self._workers.run(lambda _: rules.wanted(listing))

    async def _plan(self, spec: ModelSpec, listing: Listing, contents: dict[SourceFile, bytes]) -> Layout:
        if len(listing.files) <= QUICK_FILES and sum(map(len, contents.values())) <= QUICK_BYTES:
            return rules.plan(spec, listing, contents)
        return await self._workers.run(lambda _: _planned(spec, listing, contents))


def _content(spec: ModelSpec, listing: Listing, digests: Digests) -> Content:
    return Content(digests.of_spec(spec), digests.of_listing(listing), digests.of_crash(spec, listing))


def _planned(spec: ModelSpec, listing: Listing, contents: dict[SourceFile, bytes]) -> Layout:
    layout = rules.plan(spec, listing, contents)
    _ = layout.size_bytes  # which it keeps, with its files: nobody shall add 100,000 numbers on the loop
    return layout
