"""Where models come from, and the volume shared with Triton."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path

from adapter.settings.kinds import NETWORKS, OPTIONAL_BOOLEAN, PATH, REQUESTS, SIZE, Group, setting

REPOSITORY_DIR = "_triton_models"
CACHE_DIR = "_adapter"


class VolumeSettings(Group):
    """The volume shared with Triton."""

    root: Path = setting("ROOT_MODEL_DIR", PATH, "/models")
    """Shared with Triton; Triton's `--model-repository` is `_triton_models` below it."""
    cache: Path | None = setting("CACHE_DIR", PATH, None)
    """Staging, pulled files and the journal; a folder on the same file system. Default `ROOT_MODEL_DIR/_adapter`."""
    memory_file: Path | None = setting("TRITON_MEMORY_FILE", PATH, None)
    """File of the reporter in Triton's container. Default `triton-memory` in `CACHE_DIR`; without it sizes are estimates."""
    max_bytes: int | None = setting("CACHE_MAX_BYTES", SIZE, None)
    """Most bytes of the adapter's files; 0: no cache, no limit. Default 1.25 × `CONTAINER_MEM_REQ_BYTES`, at most 80 % of the disk."""

    @property
    def repository_dir(self) -> Path:
        """Triton's model repository folder."""
        return self.root / REPOSITORY_DIR

    @property
    def cache_dir(self) -> Path:
        """Our own folder."""
        return self.cache or self.root / CACHE_DIR

    @property
    def memory_path(self) -> Path:
        """The file in force."""
        return self.memory_file or self.cache_dir / "triton-memory"

    @property
    def reserved_ids(self) -> frozenset[str]:
        """Names that no model can have: of our folders under the root, and of the default folders."""
        own = self.cache_dir.relative_to(self.root).parts[:1] if self.cache_dir.is_relative_to(self.root) else ()
        return frozenset({REPOSITORY_DIR, CACHE_DIR, *own})

    def problems(self) -> Iterator[str]:
        """Folders that would eat each other."""
        if self.cache_dir in (self.root, *self.root.parents) or self.repository_dir in (self.cache_dir, *self.cache_dir.parents):
            yield (
                f"CACHE_DIR ({self.cache_dir}) must be a folder of its own: it holds ROOT_MODEL_DIR, or lies in Triton's repository folder "
                f"({self.repository_dir})"
            )


class PullSettings(Group):
    """How models are pulled."""

    config_dir: Path = setting("STORAGE_CONFIG_DIR", PATH, "/storage-config")
    """Mounted storage secret: one JSON file per storage key; read at each load."""
    embedded: bool | None = setting("USE_EMBEDDED_PULLER", OPTIONAL_BOOLEAN, "auto")
    """
    `true`: the adapter pulls every model; `false`: ModelMesh's storage helper has pulled them; `auto`: decided per
    load.
    """
    pvc_mounts: Path = setting("PVC_MOUNTS_DIR", PATH, "/pvc_mounts")
    """Volume claims are mounted below it by their names, in both containers."""
    threads: int = setting("PULL_THREADS", REQUESTS, "64")
    """Most parallel requests to one endpoint of storage; twice as many to all endpoints."""
    unpack_max_bytes: int = setting("UNPACK_MAX_BYTES", SIZE, "64Gi")
    """Most bytes that an archive may unpack to (`unpack` of a storage config)."""
    denied_networks: tuple[IPv4Network | IPv6Network, ...] = setting(
        "REQUEST_ENDPOINTS_DENIED", NETWORKS, "127.0.0.0/8,::1/128,169.254.0.0/16,fe80::/10,fd00:ec2::254/128"
    )
    """Addresses that an endpoint or url of a request may not have; an empty text allows all."""
