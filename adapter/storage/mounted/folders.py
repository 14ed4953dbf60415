"""
Models in folders that somebody else fills, such as SAGEMAKER_MODEL_ROOTS: mounted beside us and beside Triton, so nothing is copied.

The path is followed to its end once, at the listing. Each folder has two threads of its own, which are left behind where the
folder hangs (`mounted/reads.py`): no other load waits for them.
"""

from __future__ import annotations

from pathlib import Path

from adapter.errors import InvalidModel, InvalidRequest, SourceNotFound, SourceUnavailable, StartError
from adapter.storage.mounted.bounds import Within
from adapter.storage.mounted.links import LeadsAstray, end_within
from adapter.storage.mounted.local import Listed, LocalModel, Walk
from adapter.storage.mounted.reads import ClaimReads
from adapter.storage.search import Search
from adapter.workers import Stop


class Folders:
    """All such folders. There are as many as the settings name."""

    def __init__(self) -> None:
        self._known: dict[Path, ClaimReads] = {}

    async def find(self, folder: Path, search: Search) -> LocalModel:
        """
        List the model at an absolute path below the folder. Raises as `Finder.find`.

        Raises:
            InvalidRequest: the path leads out of the folder, or is the folder itself.
            InvalidModel: no file is there, or something that is neither file nor directory, or a link that leads out of the folder.
        """
        reads = self._reads(folder)

        def look(stop: Stop) -> LocalModel:
            path = _inside(folder, search.spec.path)
            try:
                listing = Walk(search, stop).listing(path, Within(folder), origin=search.spec.path, name=path.name, schema=None)
            except SourceNotFound as error:  # a directory without files
                raise InvalidModel(f"{error.text}: no model is there") from error
            found = LocalModel(Listed(listing, path, None), reads=reads, waits=search.waits)
            search.tell(found, stop)
            return found

        return await reads.run(search.waits, look)

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


def _inside(folder: Path, text: str) -> Path:
    path = Path(text)
    if not path.is_absolute():
        raise InvalidRequest(f"{text!r} is not an absolute path below {folder}")
    try:
        end = end_within(path, folder)
    except LeadsAstray as astray:
        if str(astray) == "nowhere":
            raise SourceNotFound(f"{text} does not exist") from astray
        raise InvalidRequest(f"{text!r} leads {astray}; a model must lie below {folder}") from astray
    if end == Path(folder).resolve():
        raise InvalidRequest(f"{text!r} is {folder} itself; a model must lie below it")
    return end
