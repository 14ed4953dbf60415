"""
Who finds models that lie on a volume: mounted beside us and beside Triton, so nothing is copied.

A claim of `type: pvc` named `name` is mounted at `<PVC_MOUNTS_DIR>/<name>`. The storage helper of ModelMesh pulls models to absolute
paths below ROOT_MODEL_DIR, or links to one in a claim. Others fill the folders of the HTTP fronts, such as SAGEMAKER_MODEL_ROOTS.
All looks into a claim or folder are made by its own threads (`mounted/reads.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from adapter.errors import InvalidModel, InvalidRequest, SourceNotFound, SourceUnavailable, StartError
from adapter.storage.mounted.local import NOWHERE, Bounds, LeadsAstray, LocalModel, Place, listed
from adapter.storage.mounted.reads import OWN_THREADS, VolumeReads
from adapter.storage.search import Search, clean_path
from adapter.storage.secret.merging import StorageConfig
from adapter.waits import Waits
from adapter.workers import Stop

ROOT_NAME = "_model"
"""Of a model that is the claim itself. Source: the Go adapter's name for an empty model path."""


class Mounted:
    """All volumes with models of others, each with threads of its own that are made when it is used first."""

    def __init__(self, mounts: Path, root: Path, own: tuple[Path, ...]) -> None:
        """
        Args:
            mounts: PVC_MOUNTS_DIR.
            root: ROOT_MODEL_DIR.
            own: the adapter's own folders; no model of the storage helper lies in them.

        Raises:
            StartError: the process cannot have threads for the model volume.
        """
        self._mounts = mounts
        self._root = root
        self._closed = (*own, mounts)
        self._own = VolumeReads("own", "the model volume", OWN_THREADS)
        self._known: dict[str, VolumeReads] = {}

    async def in_claim(self, config: StorageConfig, search: Search) -> LocalModel:
        """
        As `Find`. An empty path is the claim's root.

        The last link of the path is followed once: a `current` that is turned to another version later does not change what Triton
        serves now.

        Raises:
            InvalidModel: a link leads out of the claim, nowhere, or round.
        """
        name, spec = _name_of(config), search.spec
        reads = await self._of_claim(name, search.waits)
        claim = self._mounts / name

        def inside(bounds: Bounds, what: str, text: str) -> Path:
            absent = f"{what} {text!r} does not exist in the volume claim {name!r} (mounted at {claim})"
            end = bounds.check(claim / clean_path(text, what), absent)
            return claim / end.relative_to(claim.resolve())  # Triton's container knows the claim by no other name

        def locate() -> Place:
            bounds, text = Bounds(claim), spec.path.strip("/")
            path = inside(bounds, "modelPath", spec.path) if text else claim
            schema = inside(bounds, "schema_path", spec.schema_path) if spec.schema_path else None
            return Place(bounds, path, schema, f"pvc://{name}/{text}", text.rpartition("/")[2] or ROOT_NAME)

        return await _found(search, reads, locate)

    async def has_helped(self, path: str, waits: Waits) -> bool:
        """Whether the path is below the root, and leads to anything, or to where it may not be looked at."""
        written = Path(path)
        return self._is_below(written) and str(await self._own.run(waits, lambda _: self._astray(written))) != NOWHERE

    async def helped(self, search: Search) -> LocalModel:
        """
        List what the storage helper has put at the absolute path that is searched for. Raises as `Find`.

        The path, or that of the schema, may lead into a claim: then the claim's threads read both.

        Raises:
            InvalidModel: a link leads out of the root and of the claim that the path leads into, nowhere, or round in a circle.
        """
        schema, paths = search.spec.schema_path, {"modelPath": Path(search.spec.path)}
        if schema:
            paths["schema_path"] = Path(schema)
        for what, path in paths.items():
            if not self._is_below(path):
                below = f"an absolute path below {self._root}, where models that were already pulled are"
                raise InvalidRequest(f"{what} {str(path)!r} is not {below}")
        reads, folders = self._own, [self._root]
        claim = await reads.run(search.waits, lambda _: next(filter(None, map(self._claim_of, paths.values())), None))
        if claim is not None:
            reads = await self._of_claim(claim, search.waits)
            folders.insert(0, self._mounts / claim)

        def locate() -> Place:
            bounds, path = Bounds(*folders, closed=self._closed), paths["modelPath"]
            for what, each in paths.items():
                bounds.check(each, f"{what} {each} does not exist")
            return Place(bounds, path, paths.get("schema_path"), str(path), path.name)

        return await _found(search, reads, locate)

    async def in_folders(self, search: Search) -> LocalModel:
        """
        List the model at an absolute path below one of the spec's folders, which others fill for an HTTP front. Raises as `Find`.

        Links may lead from one folder into another one; the threads of the folder that the path names read both.

        Raises:
            InvalidRequest: the path leads out of all folders, or is a folder itself.
            InvalidModel: no file is there, or something that is neither file nor directory, or a link that leads out of all folders.
        """
        folders, text = search.spec.folders, search.spec.path
        path = Path(text)
        folder = next((each for each in folders if each in path.parents), folders[0])
        if not path.is_absolute() or "\0" in text:
            raise InvalidRequest(f"{text!r} is not an absolute path below {folder}")

        def locate() -> Place:
            bounds = Bounds(folder, *folders)
            end = bounds.end(path)
            for each in folders:
                if end == each.resolve():
                    raise InvalidRequest(f"{text!r} is {each} itself; a model must lie below it")
            return Place(bounds, end, None, text, end.name)

        try:
            return await _found(search, self._of(f"the folder {folder}", folder.name), locate)
        except SourceNotFound as error:  # a directory without files
            raise InvalidModel(f"{error.text}: no model is there") from error
        except LeadsAstray as astray:
            if str(astray) == NOWHERE:
                raise SourceNotFound(f"{text} does not exist") from astray
            raise InvalidRequest(f"{text!r} leads {astray}; a model must lie below {folder}") from astray

    def close(self) -> None:
        """Take no more work; does not wait for what runs."""
        for reads in (self._own, *self._known.values()):
            reads.close()

    async def _of_claim(self, name: str, waits: Waits) -> VolumeReads:
        """
        The threads of a claim. Only what is mounted gets any: a request may give any name.

        Raises:
            InvalidRequest: nothing of this name is mounted.
            SourceUnavailable: the process cannot have the threads now.
        """
        holder, mounts = f"the volume claim {name!r}", self._mounts
        if holder in self._known:
            return self._known[holder]
        # no look at the claim itself: it may hang
        if not await self._own.run(waits, lambda _: mounts.is_dir() and mounts / name in mounts.iterdir()):
            where = f"{mounts / name} (PVC_MOUNTS_DIR) in the adapter's container and in Triton's"
            raise InvalidRequest(f"{holder} is not mounted: expected it at {where}")
        return self._of(holder, name)

    def _of(self, holder: str, name: str) -> VolumeReads:
        """The threads of a claim or folder. Raises SourceUnavailable: the process cannot have them now."""
        if holder not in self._known:
            try:
                self._known[holder] = VolumeReads(f"claim-{name}", holder)
            except StartError as error:
                raise SourceUnavailable(f"{holder} cannot be read now: {error}") from error
        return self._known[holder]

    def _is_below(self, path: Path) -> bool:
        """Whether it is an absolute path, as written, below the root."""
        return "\0" not in str(path) and ".." not in path.parts and self._root in path.parents

    def _claim_of(self, path: Path) -> str | None:
        """The claim that the path leads into. Nothing in a claim is looked at."""
        mounts, astray = Path(os.path.realpath(self._mounts)), self._astray(path)
        return astray.rest.relative_to(mounts).parts[0] if astray and mounts in astray.rest.parents else None

    def _astray(self, path: Path) -> LeadsAstray | None:
        """How the path leads out of our own volume; None: it does not."""
        try:
            Bounds(self._root, closed=self._closed).end(path)
        except LeadsAstray as astray:
            return astray
        return None


async def _found(search: Search, reads: VolumeReads, locate: Callable[[], Place]) -> LocalModel:
    """The model, after a look in a thread of its volume, which finds out where it lies and lists its files."""

    def look(stop: Stop) -> LocalModel:
        place = locate()
        return LocalModel(listed(place, stop, search.saw), place, reads, search.waits)

    model = await reads.run(search.waits, look)
    await search.tell(model)
    return model


def _name_of(config: StorageConfig) -> str:
    given = config.values.get("name")
    name = given.strip() if isinstance(given, str) else ""
    if not name:
        raise InvalidRequest(f"no claim: neither {config.label} nor storage_params has the name of a volume claim (name: my-claim)")
    if "/" in name or "\0" in name or name in (".", ".."):
        raise InvalidRequest(f"{config.label}: name is not the name of a volume claim; it has a '/', a NUL byte, or is all dots")
    return name
