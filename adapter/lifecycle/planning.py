"""
The layout of a model that is listed, before it is pulled: reads what `adapter.layout` must see, and asks it.

What depends on the content of large files is decided when they are pulled, before they are placed: storage reads both ends
of each such file. Owns the threads for large models, and nothing of the rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from adapter.digests import Digests
from adapter.layout import rules
from adapter.model import OPTIONS_FILE, Artifact, Content, Layout, Listing, ModelSpec, SourceFile
from adapter.ports import StoredModel
from adapter.workers import Workers

BYTES_OF_AN_ITEM = 40
"""Of config and schema, that take as long as one file: a plan of 8 KiB takes some milliseconds at most."""
THREADS = 2
"""Nothing is read in them, so no volume can hold them."""


def effort(listing: Listing, contents: Mapping[SourceFile, bytes] | None = None) -> int:
    """Of a plan, or of a digest, in items of `Workers.run_large`."""
    return len(listing.files) + sum(map(len, (contents or {}).values())) // BYTES_OF_AN_ITEM


class Planning:
    """Asks the rules of layouts."""

    def __init__(self) -> None:
        self._workers = Workers("planning", THREADS)

    async def layout(self, spec: ModelSpec, stored: StoredModel) -> Layout:
        """How the model will look to Triton. Raises InvalidModel, SourceError."""
        listing = stored.listing
        wanted = await self._workers.run_large(lambda: rules.wanted(listing, spec), effort(listing))
        contents = {file: await stored.read(file) for file in wanted}
        return await self._workers.run_large(lambda: _planned(spec, listing, contents), effort(listing, contents))

    async def finished(self, layout: Layout, stored: StoredModel, artifact: Artifact) -> Layout:
        """
        The layout as it is placed: what the pulled files say decides the rest. OPTIONS_FILE is written, so that nothing but our own
        volume is read when a front asks for it.

        Raises:
            InvalidModel: Triton could not serve such content.
            AdapterError: a file cannot be read.
        """
        asked = rules.asked(layout)
        if (options := layout.links.get(OPTIONS_FILE)) is not None:
            asked = (*asked, options)
        if not asked:
            return layout
        answers = await stored.ends(artifact, asked)
        done = await self._workers.run(lambda _: rules.finished(layout, answers))
        if options is None:
            return done
        links = {path: file for path, file in done.links.items() if path != OPTIONS_FILE}
        return replace(done, links=links, written={**done.written, OPTIONS_FILE: answers[options].tail})  # a short file is whole in it

    async def content(self, spec: ModelSpec, listing: Listing, digests: Digests) -> Content:
        """What a model is loaded from."""

        def content() -> Content:
            return Content(digests.of_spec(spec), digests.of_listing(listing), digests.of_crash(spec, listing))

        return await self._workers.run_large(content, effort(listing))

    def close(self) -> None:
        """Take no more work."""
        self._workers.close()


def _planned(spec: ModelSpec, listing: Listing, contents: dict[SourceFile, bytes]) -> Layout:
    layout = rules.plan(spec, listing, contents)
    _ = layout.size_bytes  # which it keeps, with its files: 100,000 numbers are not added on the loop
    return layout
