"""
Models in folders that others fill, such as SAGEMAKER_MODEL_ROOTS: mounted beside us and beside Triton, so nothing is copied.

The path is followed to its end once, at the listing. Each folder has two threads of its own, which are left behind where the
folder hangs (`mounted/reads.py`): no other load waits for them. A path that leads from one folder into another one goes on in the
other one's threads.
"""

from __future__ import annotations

from pathlib import Path

from adapter.errors import AdapterError, InvalidModel, InvalidRequest, SourceNotFound, SourceUnavailable, StartError
from adapter.storage.mounted.bounds import Bounds, LeadsAstray
from adapter.storage.mounted.local import Listed, LocalModel, Walk
from adapter.storage.mounted.reads import ClaimReads
from adapter.storage.search import Search
from adapter.workers import Stop

_MOST_FOLDERS = 8
"""A path may lead from one to the next so often."""


class Folders:
    """All such folders. There are as many as the settings name."""

    def __init__(self) -> None:
        self._known: dict[Path, ClaimReads] = {}

    async def find(self, search: Search) -> LocalModel:
        """
        List the model at an absolute path below one of the spec's folders. Raises as `Finder.find`.

        Raises:
            InvalidRequest: the path leads out of all folders, or is a folder itself.
            InvalidModel: no file is there, or something that is neither file nor directory, or a link that leads out of its folder.
        """
        folders = search.spec.folders
        folder, rest = folders[0], Path(search.spec.path)
        if not rest.is_absolute():
            raise InvalidRequest(f"{search.spec.path!r} is not an absolute path below {folder}")
        for _ in range(_MOST_FOLDERS):
            try:
                return await self._find_in(folder, rest, search)
            except LeadsAstray as astray:
                entered = next((other for other in folders if other in astray.rest.parents), None)
                if entered is None:
                    raise _refused(search.spec.path, astray, folder) from astray
                folder, rest = entered, astray.rest
        raise InvalidRequest(f"{search.spec.path!r} leads from folder to folder")

    async def _find_in(self, folder: Path, absolute: Path, search: Search) -> LocalModel:
        reads, bounds = self._reads(folder), Bounds((folder,))

        def look(stop: Stop) -> LocalModel:
            path = bounds.end(absolute)
            if path == folder.resolve():
                raise InvalidRequest(f"{search.spec.path!r} is {folder} itself; a model must lie below it")
            try:
                listing = Walk(search, stop).listing(path, bounds, origin=search.spec.path, name=path.name, schema=None)
            except SourceNotFound as error:  # a directory without files
                raise InvalidModel(f"{error.text}: no model is there") from error
            return LocalModel(Listed(listing, path, None), reads=reads, waits=search.waits)

        found = await reads.run(search.waits, look)
        await search.tell(found)
        return found

    def close(self) -> None:
        """Take no more work; does not wait for what runs."""
        for reads in self._known.values():
            reads.close()

    def _reads(self, folder: Path) -> ClaimReads:
        if folder not in self._known:
            try:
                self._known[folder] = ClaimReads(folder.name, holder=f"the folder {folder}")
            except StartError as error:
                raise SourceUnavailable(f"the folder {folder} cannot be read now: {error}") from error
        return self._known[folder]


def _refused(text: str, astray: LeadsAstray, folder: Path) -> AdapterError:
    if str(astray) == "nowhere":
        return SourceNotFound(f"{text} does not exist")
    return InvalidRequest(f"{text!r} leads {astray}; a model must lie below {folder}")
