"""How models are pulled."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path

from adapter.units import BYTES, NETWORKS, OPTIONAL_BOOLEAN, PATH, THREADS, setting


@dataclass(frozen=True, kw_only=True)
class PullSettings:
    """How models are pulled."""

    config_dir: Path = setting(
        PATH, "STORAGE_CONFIG_DIR", "/storage-config", "Mounted storage secret: one JSON file per storage key; read at each load"
    )
    embedded: bool | None = setting(
        OPTIONAL_BOOLEAN,
        "USE_EMBEDDED_PULLER",
        "auto",
        "`true`: the adapter pulls every model; `false`: ModelMesh's storage helper has pulled them; `auto`: decided per load",
    )
    pvc_mounts: Path = setting(
        PATH, "PVC_MOUNTS_DIR", "/pvc_mounts", "Volume claims are mounted below it by their names, here and in Triton's container"
    )
    threads: int = setting(
        THREADS,
        "PULL_THREADS",
        "64",
        "Most parallel requests to one endpoint of storage, over all pulls; all endpoints together have twice as many",
    )
    unpack_max_bytes: int = setting(
        BYTES, "UNPACK_MAX_BYTES", "64Gi", "Most bytes that an archive may unpack to (`unpack` of a storage config)"
    )

    denied_networks: tuple[IPv4Network | IPv6Network, ...] = setting(
        NETWORKS,
        "REQUEST_ENDPOINTS_DENIED",
        "127.0.0.0/8,::1/128,169.254.0.0/16,fe80::/10,fd00:ec2::254/128",
        "Addresses that an endpoint or url may not have when only a request names it; set to an empty text, all are allowed",
    )
