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
from adapter.model import ModelSpec
from adapter.storage.bounds import Bounds
from adapter.storage.credentials import StorageConfig
from adapter.storage.listing import Tally, clean_path
from adapter.storage.local import LocalModel, Walk
from adapter.workers import Stop, Workers

PVC = "pvc"
ROOT_NAME = "_model"
"""Of a model that is the claim itself. Source: the Go adapter's name for an empty model path."""


def find_in_claim(
    mounts: Path, config: StorageConfig, spec: ModelSpec, tally: Tally, stop: Stop, *, files: Workers, read_limit_bytes: int
) -> LocalModel:
    """
    List the model at a path in a claim. An empty path is the claim's root.

    Args:
        mounts: PVC_MOUNTS_DIR.
        config: its `name` is the claim.
        spec: its path and schema_path are relative to the claim.
        tally: told what is seen on the way.
        stop: ends the walk.
        files: threads for later reads.
        read_limit_bytes: of those.

    Raises:
        InvalidRequest: no such claim is mounted, or the path is none.
        SourceNotFound: nothing is there.
        InvalidModel: a link leads out of the claim, nowhere, or round in a circle.
    """
    name, claim = _mounted(mounts, config)
    bounds = Bounds(claim=claim)
    path = _inside(claim, bounds, spec.path, f"modelPath {spec.path!r}", name) if spec.path.strip("/") else claim
    schema = None
    if spec.schema_path:
        schema = _inside(claim, bounds, spec.schema_path, f"schema_path {spec.schema_path!r}", name)
    listing = Walk(tally, stop).listing(
        path,
        bounds,
        origin=f"pvc://{name}/{spec.path.strip('/')}",
        name=spec.path.strip("/").rpartition("/")[2] or ROOT_NAME,
        schema=(schema, bounds) if schema else None,
    )
    where = path.parent if listing.is_single_file else path
    return LocalModel(listing=listing, root=where, schema=schema, files=files, read_limit_bytes=read_limit_bytes)


def _mounted(mounts: Path, config: StorageConfig) -> tuple[str, Path]:
    name = config.values.get("name")
    if not isinstance(name, str) or not name.strip():
        raise InvalidRequest(f"no claim: neither {config.label} nor storage_params has the name of a volume claim (name: my-claim)")
    name = name.strip()
    if "/" in name or "\0" in name or name in (".", ".."):
        raise InvalidRequest(f"{config.label}: name is not the name of a volume claim; it has a '/', a NUL byte, or is all dots")
    claim = mounts / name
    if not claim.is_dir():
        raise InvalidRequest(
            f"the volume claim {name!r} is not mounted: expected it at {claim} (PVC_MOUNTS_DIR) in the adapter's container and in Triton's"
        )
    return name, claim


def _inside(claim: Path, bounds: Bounds, text: str, what: str, name: str) -> Path:
    """The path with its links followed, below the claim as it is mounted: Triton's container knows no other name of it."""
    path = claim / clean_path(text, what.partition(" ")[0])
    bounds.check(path, may_be_absent=True)  # first: what lies outside is not even asked about
    if not os.path.lexists(path):
        raise SourceNotFound(f"{what} does not exist in the volume claim {name!r} (mounted at {claim})")
    bounds.check(path)
    return claim / path.resolve().relative_to(claim.resolve())
