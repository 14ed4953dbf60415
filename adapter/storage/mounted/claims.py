"""
Models in a volume claim (`type: pvc`): mounted beside us and beside Triton, so nothing is copied.

The claim `name` is mounted at `<PVC_MOUNTS_DIR>/<name>`. Links inside are followed as long as they
stay in that claim. The last link of the path itself is followed once, at the listing: a `current`
that is turned to another version later does not change what Triton serves now. All looks into a claim are made by the
claim's own threads (`mounted/reads.py`).
"""

from __future__ import annotations

import stat
from pathlib import Path

from adapter.errors import InvalidRequest, SourceNotFound
from adapter.storage.mounted.bounds import Bounds, is_there
from adapter.storage.mounted.local import Listed, LocalModel, Walk
from adapter.storage.mounted.reads import ClaimsReads, not_mounted
from adapter.storage.search import Search, clean_path
from adapter.storage.secret.merging import StorageConfig
from adapter.workers import Stop

ROOT_NAME = "_model"
"""Of a model that is the claim itself. Source: the Go adapter's name for an empty model path."""


class Claims:
    """All mounted claims. Implements `Finder`."""

    def __init__(self, reads: ClaimsReads) -> None:
        self._reads = reads

    async def find(self, config: StorageConfig, search: Search) -> LocalModel:
        """As `Finder`. An empty path is the claim's root. Raises InvalidModel: a link leads out of the claim, nowhere, or round."""
        name = _name_of(config)
        with search.waits.on("the volume to tell which claims are mounted"):
            reads = await self._reads.of(name)

        def look(stop: Stop) -> LocalModel:
            return LocalModel(_listed(self._reads.mounts, name, search, stop), reads=reads, waits=search.waits)

        found = await reads.run(search.waits, look)
        await search.tell(found)
        return found


def _listed(mounts: Path, name: str, search: Search, stop: Stop) -> Listed:
    spec, claim = search.spec, mounts / name
    if not (is_there(claim) and stat.S_ISDIR(claim.stat().st_mode)):
        raise not_mounted(mounts, name)
    bounds = Bounds((claim,))
    path = _inside(bounds, claim, "modelPath", spec.path) if spec.path.strip("/") else claim
    schema = _inside(bounds, claim, "schema_path", spec.schema_path) if spec.schema_path else None
    listing = Walk(search, stop).listing(
        path,
        bounds,
        origin=f"pvc://{name}/{spec.path.strip('/')}",
        name=spec.path.strip("/").rpartition("/")[2] or ROOT_NAME,
        schema=schema,
    )
    return Listed(listing, path, schema)


def _name_of(config: StorageConfig) -> str:
    name = config.values.get("name")
    if not isinstance(name, str) or not name.strip():
        raise InvalidRequest(f"no claim: neither {config.label} nor storage_params has the name of a volume claim (name: my-claim)")
    name = name.strip()
    if "/" in name or "\0" in name or name in (".", ".."):
        raise InvalidRequest(f"{config.label}: name is not the name of a volume claim; it has a '/', a NUL byte, or is all dots")
    return name


def _inside(bounds: Bounds, claim: Path, what: str, text: str) -> Path:
    """The path with its links followed, below the claim as it is mounted: Triton's container knows the claim by no other name."""
    end = bounds.found(claim / clean_path(text, what))
    if end is None:
        raise SourceNotFound(f"{what} {text!r} does not exist in the volume claim {claim.name!r} (mounted at {claim})")
    return claim / end.relative_to(claim.resolve())
