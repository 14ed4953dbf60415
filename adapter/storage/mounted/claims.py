"""
Models in a volume claim (`type: pvc`): mounted beside us and beside Triton, so nothing is copied.

The claim `name` is mounted at `<PVC_MOUNTS_DIR>/<name>`. Links inside are followed as long as they
stay in that claim. The last link of the path itself is followed once, at the listing: a `current`
that is turned to another version later does not change what Triton serves now. Blocks; runs in threads.
"""

from __future__ import annotations

import os
from pathlib import Path

from adapter.errors import InvalidRequest, SourceNotFound
from adapter.storage.mounted.bounds import Bounds
from adapter.storage.mounted.local import LocalModel, Walk
from adapter.storage.search import Search, clean_path
from adapter.storage.secret.merging import StorageConfig
from adapter.workers import Stop, Workers

ROOT_NAME = "_model"
"""Of a model that is the claim itself. Source: the Go adapter's name for an empty model path."""


class Claims:
    """All mounted claims. Implements `Finder`."""

    def __init__(self, mounts: Path, asks: Workers) -> None:
        """`mounts` is PVC_MOUNTS_DIR; `asks` are the threads of stores, for a network volume can hang like any store."""
        self._mounts = mounts
        self._asks = asks

    def warm(self, config: StorageConfig, stop: Stop) -> None:
        """As `Finder`: nothing is slow to make."""

    def find(self, config: StorageConfig, search: Search, stop: Stop) -> LocalModel:
        """As `Finder`. An empty path is the claim's root. Raises InvalidModel: a link leads out of the claim, nowhere, or round."""
        name, spec = _name_of(config), search.spec
        holder = f"the volume claim {name!r}"
        with search.waits.on(holder):
            claim = _mounted(self._mounts, name)
            bounds = Bounds(claim=claim)
            path = _inside(claim, "modelPath", spec.path) if spec.path.strip("/") else claim
            schema = _inside(claim, "schema_path", spec.schema_path) if spec.schema_path else None
            listing = Walk(search, stop).listing(
                path,
                bounds,
                origin=f"pvc://{name}/{spec.path.strip('/')}",
                name=spec.path.strip("/").rpartition("/")[2] or ROOT_NAME,
                schema=(schema, bounds) if schema else None,
            )
        return LocalModel(listing=listing, path=path, schema=schema, asks=self._asks, waits=search.waits, holder=holder)


def _name_of(config: StorageConfig) -> str:
    name = config.values.get("name")
    if not isinstance(name, str) or not name.strip():
        raise InvalidRequest(f"no claim: neither {config.label} nor storage_params has the name of a volume claim (name: my-claim)")
    name = name.strip()
    if "/" in name or "\0" in name or name in (".", ".."):
        raise InvalidRequest(f"{config.label}: name is not the name of a volume claim; it has a '/', a NUL byte, or is all dots")
    return name


def _mounted(mounts: Path, name: str) -> Path:
    claim = mounts / name
    if not claim.is_dir():
        raise InvalidRequest(
            f"the volume claim {name!r} is not mounted: expected it at {claim} (PVC_MOUNTS_DIR) in the adapter's container and in Triton's"
        )
    return claim


def _inside(claim: Path, what: str, text: str) -> Path:
    """The path with its links followed, below the claim as it is mounted: Triton's container knows the claim by no other name."""
    path, bounds = claim / clean_path(text, what), Bounds(claim=claim)
    bounds.check(path, may_be_absent=True)  # first: what lies outside is not even asked about
    if not os.path.lexists(path):
        raise SourceNotFound(f"{what} {text!r} does not exist in the volume claim {claim.name!r} (mounted at {claim})")
    bounds.check(path)
    return claim / path.resolve().relative_to(claim.resolve())
