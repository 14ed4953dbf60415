"""The volume shared with Triton, and the folders that are ours on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from adapter.units import BYTES, PATH, setting

REPOSITORY_DIR = "_triton_models"
CACHE_DIR = "_adapter"


@dataclass(frozen=True, kw_only=True)
class VolumeSettings:
    """The volume shared with Triton."""

    root: Path = setting(
        PATH, "ROOT_MODEL_DIR", "/models", f"Volume shared with Triton; Triton's `--model-repository` is `{REPOSITORY_DIR}` below it"
    )
    cache: Path | None = setting(
        PATH,
        "CACHE_DIR",
        None,
        f"Staging, pulled files and the journal; a folder on the same file system. Default `ROOT_MODEL_DIR/{CACHE_DIR}`",
    )
    max_bytes: int | None = setting(
        BYTES,
        "CACHE_MAX_BYTES",
        None,
        "Most bytes of the adapter's files on the volume, each file once: placed models, pulled files kept for later loads, staging, "
        "trash. Kept files go first, those unused for longest before others; a value that is set also refuses a pull that cannot fit. "
        "0 keeps none for later, and bounds nothing. Default 1.25 × `CONTAINER_MEM_REQ_BYTES`, at most 80 % of the file system; kept files "
        "then also go while less than 20 % of the file system is free, whoever fills it",
    )

    @property
    def repository_dir(self) -> Path:
        """Triton's model repository folder."""
        return self.root / REPOSITORY_DIR

    @property
    def cache_dir(self) -> Path:
        """Our own folder."""
        return self.cache or self.root / CACHE_DIR

    @property
    def reserved_ids(self) -> frozenset[str]:
        """Names that no model can have: of our folders under the root, and of the default folders."""
        own = self.cache_dir.relative_to(self.root).parts[:1] if self.cache_dir.is_relative_to(self.root) else ()
        return frozenset({REPOSITORY_DIR, CACHE_DIR, *own})

    def problems(self) -> Iterator[str]:
        """Folders that would eat each other, and a budget below nothing."""
        if self.cache_dir == self.repository_dir or self.repository_dir in self.cache_dir.parents:
            yield f"CACHE_DIR ({self.cache_dir}) lies in Triton's repository folder ({self.repository_dir})"
        if self.cache_dir in (self.root, *self.root.parents):
            yield f"CACHE_DIR ({self.cache_dir}) must be a folder of its own, not one that holds ROOT_MODEL_DIR"
        if self.max_bytes is not None and self.max_bytes < 0:
            yield f"CACHE_MAX_BYTES is {self.max_bytes} bytes, but must be 0 or more"
