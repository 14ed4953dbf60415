"""
Who finds models that lie on a volume: mounted beside us and beside Triton, so nothing is copied.

A claim of `type: pvc` named `name` is mounted at `<PVC_MOUNTS_DIR>/<name>`. The storage helper of ModelMesh pulls models to absolute
paths below ROOT_MODEL_DIR, or links to one in a claim. Others fill the folders of the HTTP fronts, such as SAGEMAKER_MODEL_ROOTS.
All looks into a claim or folder are made by its own threads (`mounted/reads.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from adapter.errors import AdapterError, InvalidModel, InvalidRequest, SourceNotFound
from adapter.model import ModelSpec
from adapter.storage.mounted.bounds import NOWHERE, Bounds, LeadsAstray
from adapter.storage.mounted.local import LocalModel, Tree
from adapter.storage.mounted.reads import MountedReads, VolumeReads
from adapter.storage.search import Search, clean_path
from adapter.storage.secret.merging import StorageConfig
from adapter.waits import Waits
from adapter.workers import Stop

ROOT_NAME = "_model"
"""Of a model that is the claim itself. Source: the Go adapter's name for an empty model path."""
_MOST_FOLDERS = 8
"""A path may lead from one folder of the fronts to the next so often."""


async def _found(search: Search, reads: VolumeReads, look: Callable[[Stop], LocalModel]) -> LocalModel:
    """The model, after a look in a thread of its volume, which finds out where it lies and lists its files."""
    model = await reads.run(search.waits, look)
    await search.tell(model)
    return model


class Claims:
    """All mounted claims. Its `find` is a `Find`."""

    def __init__(self, reads: MountedReads) -> None:
        self._reads = reads

    async def find(self, config: StorageConfig, search: Search) -> LocalModel:
        """
        As `Find`. An empty path is the claim's root.

        The last link of the path is followed once: a `current` that is turned to another version later does not change what Triton
        serves now.

        Raises:
            InvalidModel: a link leads out of the claim, nowhere, or round.
        """
        name, spec = _name_of(config), search.spec
        reads = await self._reads.of_claim(name, search.waits)
        claim = self._reads.mounts / name

        def inside(bounds: Bounds, what: str, text: str) -> Path:
            absent = f"{what} {text!r} does not exist in the volume claim {name!r} (mounted at {claim})"
            end = bounds.check(claim / clean_path(text, what), absent)
            return claim / end.relative_to(claim.resolve())  # Triton's container knows the claim by no other name

        def look(stop: Stop) -> LocalModel:
            bounds, text = Bounds(claim), spec.path.strip("/")
            path = inside(bounds, "modelPath", spec.path) if text else claim
            schema = inside(bounds, "schema_path", spec.schema_path) if spec.schema_path else None
            listing = Tree(bounds, stop, search.saw).listing(path, schema, f"pvc://{name}/{text}", text.rpartition("/")[2] or ROOT_NAME)
            return LocalModel(listing, path, schema, reads, search.waits)

        return await _found(search, reads, look)


def _name_of(config: StorageConfig) -> str:
    name = config.values.get("name")
    if not isinstance(name, str) or not name.strip():
        raise InvalidRequest(f"no claim: neither {config.label} nor storage_params has the name of a volume claim (name: my-claim)")
    name = name.strip()
    if "/" in name or "\0" in name or name in (".", ".."):
        raise InvalidRequest(f"{config.label}: name is not the name of a volume claim; it has a '/', a NUL byte, or is all dots")
    return name


def is_below(path: str, root: Path) -> bool:
    """Whether an absolute path, as written, lies below the root."""
    written = Path(path)
    return written.is_absolute() and ".." not in written.parts and root in written.parents


class HelpedModels:
    """Models that the storage helper has pulled to absolute paths below ROOT_MODEL_DIR."""

    def __init__(self, root: Path, own: tuple[Path, ...], reads: MountedReads) -> None:
        """
        Args:
            root: ROOT_MODEL_DIR.
            own: the adapter's own folders; no model lies in them.
            reads: threads of all volumes. The storage helper links to a model in a claim.
        """
        self._root = root
        self._closed = (*own, reads.mounts)
        self._reads = reads

    async def has(self, spec: ModelSpec, waits: Waits) -> bool:
        """Whether the path leads to anything, or to where it may not be looked at."""
        astray = await self._reads.own.run(waits, lambda _: self._astray(Path(spec.path)))
        return astray is None or str(astray) != NOWHERE

    async def find(self, search: Search) -> LocalModel:
        """
        List the files at the absolute path that is searched for. Raises as `Find`.

        The path, or that of the schema, may lead into a claim: then the claim's threads read both.

        Raises:
            InvalidModel: a link leads out of the root and of the claim that the path leads into, nowhere, or round in a circle.
        """
        path = self._checked("modelPath", search.spec.path)
        paths, schema = {"modelPath": path}, None
        if search.spec.schema_path:
            schema = paths["schema_path"] = self._checked("schema_path", search.spec.schema_path)
        reads, folders = self._reads.own, [self._root]
        claim = await reads.run(search.waits, lambda _: self._claim_of(paths.values()))
        if claim is not None:
            reads = await self._reads.of_claim(claim, search.waits)
            folders.insert(0, self._reads.mounts / claim)

        def look(stop: Stop) -> LocalModel:
            bounds = Bounds(*folders, closed=self._closed)
            for what, each in paths.items():
                bounds.check(each, f"{what} {each} does not exist")
            return LocalModel(Tree(bounds, stop, search.saw).listing(path, schema, str(path), path.name), path, schema, reads, search.waits)

        return await _found(search, reads, look)

    def _checked(self, what: str, text: str) -> Path:
        if "\0" in text or not is_below(text, self._root):
            raise InvalidRequest(f"{what} {text!r} is not an absolute path below {self._root}, where models that were already pulled are")
        return Path(text)

    def _claim_of(self, paths: Iterable[Path]) -> str | None:
        """The first claim that one of the paths leads into. Nothing in a claim is looked at."""
        mounts = Path(os.path.realpath(self._reads.mounts))
        for path in paths:
            astray = self._astray(path)
            if astray is not None and mounts in astray.rest.parents:
                return astray.rest.relative_to(mounts).parts[0]
        return None

    def _astray(self, path: Path) -> LeadsAstray | None:
        """Whether the path leads out of our own volume."""
        try:
            Bounds(self._root, closed=self._closed).end(path)
        except LeadsAstray as astray:
            return astray
        return None


class Folders:
    """Folders that others fill for an HTTP front."""

    def __init__(self, reads: MountedReads) -> None:
        self._reads = reads

    async def find(self, search: Search) -> LocalModel:
        """
        List the model at an absolute path below one of the spec's folders. Raises as `Find`.

        A path that leads from one folder into another one goes on in the other one's threads.

        Raises:
            InvalidRequest: the path leads out of all folders, or is a folder itself.
            InvalidModel: no file is there, or something that is neither file nor directory, or a link that leads out of its folder.
        """
        folders, text = search.spec.folders, search.spec.path
        folder, path = folders[0], Path(text)
        if not path.is_absolute():
            raise InvalidRequest(f"{text!r} is not an absolute path below {folder}")
        for _ in range(_MOST_FOLDERS):
            try:
                return await self._find_in(folder, path, search)
            except LeadsAstray as astray:
                entered = next((other for other in folders if other in astray.rest.parents), None)
                if entered is None:
                    raise _refused(text, astray, folder) from astray
                folder, path = entered, astray.rest
        raise InvalidRequest(f"{text!r} leads from folder to folder")

    async def _find_in(self, folder: Path, path: Path, search: Search) -> LocalModel:
        text, reads = search.spec.path, self._reads.of_folder(folder)

        def look(stop: Stop) -> LocalModel:
            bounds = Bounds(folder)
            end = bounds.end(path)
            if end == folder.resolve():
                raise InvalidRequest(f"{text!r} is {folder} itself; a model must lie below it")
            return LocalModel(Tree(bounds, stop, search.saw).listing(end, None, text, end.name), end, None, reads, search.waits)

        try:
            return await _found(search, reads, look)
        except SourceNotFound as error:  # a directory without files
            raise InvalidModel(f"{error.text}: no model is there") from error


def _refused(text: str, astray: LeadsAstray, folder: Path) -> AdapterError:
    if str(astray) == NOWHERE:
        return SourceNotFound(f"{text} does not exist")
    return InvalidRequest(f"{text!r} leads {astray}; a model must lie below {folder}")
