"""
Models that ModelMesh's storage helper has pulled to absolute paths below ROOT_MODEL_DIR, or has put a link to.

Such a link may lead into a volume claim. That is found out without a look into the claim, and then the claim's own threads
read the model.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from adapter.errors import InvalidRequest, SourceNotFound
from adapter.model import ModelSpec, SourceFile
from adapter.storage.mounted.bounds import Bounds, claim_on_the_way, is_there
from adapter.storage.mounted.local import Listed, LocalModel, Walk
from adapter.storage.mounted.reads import ClaimsReads, OwnReads, Reads
from adapter.storage.search import Search
from adapter.waits import Waits
from adapter.workers import Stop, Workers


def is_below(path: str, root: Path) -> bool:
    """Whether an absolute path, as written, lies below the root."""
    written = Path(path)
    return written.is_absolute() and ".." not in written.parts and root in written.parents


class HelpedModels:
    """Models that the storage helper has pulled to absolute paths below ROOT_MODEL_DIR."""

    def __init__(self, root: Path, own: tuple[Path, ...], claims: ClaimsReads, looks: Workers) -> None:
        """
        Args:
            root: ROOT_MODEL_DIR.
            own: the adapter's own folders; no model lies in them.
            claims: threads of the volume claims. The storage helper links to a model in one of them.
            looks: threads for our own volume.
        """
        self._root = root
        self._own = own
        self._claims = claims
        self._own_reads = OwnReads(looks)

    async def has(self, spec: ModelSpec, waits: Waits) -> bool:
        """Whether something has the path, or it leads into a claim, which is not asked."""

        def look(_stop: Stop) -> bool:
            return self._claim_of(Path(spec.path)) is not None or is_there(Path(spec.path))

        return await self._own_reads.run(waits, look)

    async def find(self, search: Search) -> LocalModel:
        """
        List the files at the absolute path that is searched for. Raises as `Finder.find`.

        Raises:
            InvalidModel: a link leads out of the root and of the claim that the path leads into, nowhere, or round in a circle.
        """
        spec, waits = search.spec, search.waits
        path = self._checked(spec.path, "modelPath")
        schema = self._checked(spec.schema_path, "schema_path") if spec.schema_path else None
        reads, bounds = await self._place(path, waits)
        described, schema_reads = None, reads
        if schema is not None:
            schema_reads, schema_bounds = await self._place(schema, waits)
            described = await schema_reads.run(waits, lambda stop: _described(schema, schema_bounds, search, stop))

        def look(stop: Stop) -> LocalModel:
            _check_there(path, "modelPath", bounds)
            listing = Walk(search, stop).listing(path, bounds, origin=str(path), name=path.name, schema=None)
            listed = Listed(replace(listing, schema=described), path, schema)
            return LocalModel(listed, reads=reads, waits=waits, schema_reads=schema_reads)

        found = await reads.run(waits, look)
        await search.tell(found)
        return found

    def _checked(self, text: str, what: str) -> Path:
        if "\0" in text or not is_below(text, self._root):
            raise InvalidRequest(f"{what} {text!r} is not an absolute path below {self._root}, where models that were already pulled are")
        path = Path(text)
        if any(path.is_relative_to(folder) for folder in self._own):
            raise InvalidRequest(f"{what} {text!r} lies in a folder of the adapter's own")
        return path

    async def _place(self, path: Path, waits: Waits) -> tuple[Reads, Bounds]:
        """Who reads the path, and where links at and below it may lead."""
        name = await self._own_reads.run(waits, lambda _: self._claim_of(path))
        mounts = self._claims.mounts
        if name is None:
            return self._own_reads, Bounds(root=self._root, own=self._own, mounts=mounts)
        return await self._claims.of(name), Bounds((mounts / name,), root=self._root, own=self._own, mounts=mounts)

    def _claim_of(self, path: Path) -> str | None:
        return claim_on_the_way(path, self._claims.mounts)


def _described(schema: Path, bounds: Bounds, search: Search, stop: Stop) -> SourceFile:
    _check_there(schema, "schema_path", bounds)
    return Walk(search, stop).file(schema, schema.name)


def _check_there(path: Path, what: str, bounds: Bounds) -> None:
    if bounds.found(path) is None:
        raise SourceNotFound(f"{what} {path} does not exist")
