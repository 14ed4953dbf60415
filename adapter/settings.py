"""
All settings: one frozen dataclass per concern, read from the environment in one place.

The only reader of the environment. A field's metadata holds its variable, unit and meaning; the
table of `modelmesh-triton-adapter settings` and of the README is made from it. All mistakes are
reported together.

Names that the archived Go adapter had keep their meaning, so that a running installation can swap
the image. Source: its `server/config.go`, and design decision 14.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar, cast

from adapter import units
from adapter.units import Endpoint, read, setting, show_bytes

G = TypeVar("G")
MIB = 1024 * 1024

REPOSITORY_DIR = "_triton_models"
CACHE_DIR = "_adapter"
MIN_SIZE_BYTES = 8 * 1024 + 1
"""
A failed load of a model predicted at 8 KiB or less (one ModelMesh unit) gets no unload and is never
tried again, so no size that we tell may be that small.

Source: modelmesh `ModelMesh.java` 2458-2460, observed on the real one.
"""


class SettingsError(Exception):
    """The configuration cannot work. Holds every problem found, one sentence each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(frozen=True, kw_only=True)
class SpiSettings:
    """Where ModelMesh reaches the adapter."""

    port: int = field(metadata=setting(units.PORT, "ADAPTER_PORT", "8085", "Port of `mmesh.ModelRuntime` on the loopback interface"))
    endpoint: Endpoint | None = field(
        metadata=setting(units.ENDPOINT, "ADAPTER_ENDPOINT", None, "`port:N`, `host:N` or `unix:/path`; beats `ADAPTER_PORT`")
    )
    reflection: bool = field(
        metadata=setting(units.BOOLEAN, "GRPC_REFLECTION", "false", "Serve gRPC reflection, for debugging with grpcurl")
    )

    @property
    def listen(self) -> Endpoint:
        """The endpoint in force."""
        return self.endpoint or Endpoint(host="localhost", port=self.port)


@dataclass(frozen=True, kw_only=True)
class TritonSettings:
    """How the adapter reaches Triton."""

    port: int = field(metadata=setting(units.PORT, "RUNTIME_PORT", "8001", "Triton's gRPC port on localhost"))
    endpoint: Endpoint | None = field(
        metadata=setting(
            units.ENDPOINT,
            "RUNTIME_ENDPOINT",
            None,
            "`port:N`, `host:N` or `unix:/path`; beats `RUNTIME_PORT`. "
            "A Triton started with `--grpc-address unix:/p/t.sock` is `unix:/p/t.sock:8001`",
        )
    )
    unload_timeout_seconds: float = field(
        metadata=setting(
            units.SECONDS,
            "UNLOAD_TIMEOUT_SECONDS",
            "170",
            "Longest wait for Triton to free a model before the unload is answered with an error, which ModelMesh repeats; "
            "below ModelMesh's own 180 s",
        )
    )

    @property
    def target(self) -> str:
        """Triton, in gRPC's form."""
        return self.reach.target

    @property
    def reach(self) -> Endpoint:
        """The endpoint in force."""
        return self.endpoint or Endpoint(host="localhost", port=self.port)


@dataclass(frozen=True, kw_only=True)
class CapacitySettings:
    """What is announced to ModelMesh, and the arithmetic of sizes."""

    container_memory_bytes: int = field(
        metadata=setting(
            units.BYTES,
            "CONTAINER_MEM_REQ_BYTES",
            "-1",
            "**Required.** Memory that Triton's container requests (`requests.memory`, by `resourceFieldRef`)",
        )
    )
    buffer_bytes: int = field(
        metadata=setting(units.BYTES, "MEM_BUFFER_BYTES", str(256 * MIB), "Part of it that Triton itself needs; capacity = memory − buffer")
    )
    default_model_bytes: int = field(
        metadata=setting(units.BYTES, "DEFAULT_MODELSIZE", "1000000", "Size of a model whose size cannot be learned; more than 8192")
    )
    multiplier: float = field(
        metadata=setting(units.FACTOR, "MODELSIZE_MULTIPLIER", "1.25", "Memory of a loaded model = bytes of its files × this")
    )
    max_loading: int = field(
        metadata=setting(units.LOADS, "LOADING_CONCURRENCY", "1", "Loads that ModelMesh, and the adapter towards Triton, run at once")
    )
    load_timeout_ms: int = field(
        metadata=setting(
            units.MILLISECONDS,
            "LOADTIME_TIMEOUT",
            "30000",
            "Loading timeout announced to ModelMesh; the adapter's own budget is a little below",
        )
    )
    max_concurrency: int = field(
        metadata=setting(
            units.REQUESTS,
            "LIMIT_PER_MODEL_CONCURRENCY",
            "0",
            "Parallel inference requests per model copy; 0 = no limit, more than 0 also turns on ModelMesh's per-model limit",
        )
    )
    runtime_version: str = field(metadata=setting(units.TEXT, "RUNTIME_VERSION", "v1", "Announced until Triton has told its own version"))

    @property
    def capacity_bytes(self) -> int:
        """Announced to ModelMesh."""
        return self.container_memory_bytes - self.buffer_bytes

    @property
    def usable_bytes(self) -> int:
        """
        Capacity less the reserve that ModelMesh keeps for unloads.

        Source: modelmesh `ModelMesh.java` 746-763.
        """
        reserve = self.max_loading * self.default_model_bytes // (2 if self.max_loading <= 2 else 4)
        capacity = self.capacity_bytes
        return capacity - min(max(reserve, capacity // 100), capacity // 10)

    @property
    def budget_seconds(self) -> float:
        """Own budget of a load: below the announced timeout, so that our error arrives first."""
        announced = self.load_timeout_ms / 1000
        return announced - min(2.0, announced / 10)

    def problems(self) -> Iterator[str]:
        """What ModelMesh would refuse at start, with the arithmetic. Source: `ModelMesh.java` 1264-1276, 682-685."""
        if self.load_timeout_ms < 100:
            yield f"LOADTIME_TIMEOUT is {self.load_timeout_ms} ms, but ModelMesh refuses less than 100 ms"
        if self.default_model_bytes < MIN_SIZE_BYTES:
            yield (
                f"DEFAULT_MODELSIZE is {self.default_model_bytes} bytes, but must be more than {MIN_SIZE_BYTES - 1}: "
                "ModelMesh never retries a failed model of that size or less"
            )
        if self.buffer_bytes < 0:
            yield f"MEM_BUFFER_BYTES is {self.buffer_bytes} bytes, but must be 0 or more"
        elif self.container_memory_bytes <= 0:
            yield (
                "CONTAINER_MEM_REQ_BYTES is missing (or not positive): give Triton's container a `requests.memory` "
                "and pass it on with a resourceFieldRef"
            )
        elif self.capacity_bytes <= 0:
            yield (
                f"CONTAINER_MEM_REQ_BYTES ({show_bytes(self.container_memory_bytes)}) leaves nothing after MEM_BUFFER_BYTES "
                f"({show_bytes(self.buffer_bytes)}): raise Triton's `requests.memory`"
            )
        elif self.capacity_bytes < (needed := max(2 * self.default_model_bytes, min(512 * MIB, 10 * self.default_model_bytes))):
            yield (
                f"capacity is too small: {show_bytes(self.container_memory_bytes)} − {show_bytes(self.buffer_bytes)} = "
                f"{show_bytes(self.capacity_bytes)}, but ModelMesh needs at least max(2 × DEFAULT_MODELSIZE, min(512 MiB, "
                f"10 × DEFAULT_MODELSIZE)) = {show_bytes(needed)}"
            )


@dataclass(frozen=True, kw_only=True)
class VolumeSettings:
    """The volume shared with Triton."""

    root: Path = field(
        metadata=setting(
            units.PATH,
            "ROOT_MODEL_DIR",
            "/models",
            f"Volume shared with Triton; Triton's `--model-repository` is `{REPOSITORY_DIR}` below it",
        )
    )
    cache: Path | None = field(
        metadata=setting(
            units.PATH, "CACHE_DIR", None, f"Staging and pulled files; on the same file system. Default `ROOT_MODEL_DIR/{CACHE_DIR}`"
        )
    )

    @property
    def repository_dir(self) -> Path:
        """Triton's model repository folder."""
        return self.root / REPOSITORY_DIR

    @property
    def cache_dir(self) -> Path:
        """Our own folder."""
        return self.cache or self.root / CACHE_DIR

    def problems(self) -> Iterator[str]:
        """Folders that would eat each other."""
        if self.cache_dir == self.repository_dir or self.repository_dir in self.cache_dir.parents:
            yield f"CACHE_DIR ({self.cache_dir}) lies in Triton's repository folder ({self.repository_dir})"
        if self.cache_dir in (self.root, *self.root.parents):
            yield f"CACHE_DIR ({self.cache_dir}) must be a folder of its own, not one that holds ROOT_MODEL_DIR"


@dataclass(frozen=True, kw_only=True)
class PullSettings:
    """How models are pulled."""

    config_dir: Path = field(
        metadata=setting(
            units.PATH, "STORAGE_CONFIG_DIR", "/storage-config", "Mounted storage secret: one JSON file per storage key; read at each load"
        )
    )
    embedded: bool | None = field(
        metadata=setting(
            units.OPTIONAL_BOOLEAN,
            "USE_EMBEDDED_PULLER",
            "auto",
            "`true`: the adapter pulls every model; `false`: ModelMesh's storage helper has pulled them; `auto`: decided per load",
        )
    )
    pvc_mounts: Path = field(
        metadata=setting(
            units.PATH, "PVC_MOUNTS_DIR", "/pvc_mounts", "Volume claims are mounted below it by their names, here and in Triton's container"
        )
    )
    threads: int = field(metadata=setting(units.THREADS, "PULL_THREADS", "16", "Parallel requests to storage, over all pulls"))
    part_bytes: int = field(
        metadata=setting(
            units.BYTES,
            "PULL_PART_BYTES",
            str(16 * MIB),
            "Larger files are pulled in ranges of this size, in parallel; at least 1 MiB",
        )
    )

    unpack_max_bytes: int = field(
        metadata=setting(units.BYTES, "UNPACK_MAX_BYTES", "64Gi", "Most bytes that an archive may unpack to (`unpack` of a storage config)")
    )

    def problems(self) -> Iterator[str]:
        """Parts that would be slower than none."""
        if self.part_bytes < MIB:
            yield f"PULL_PART_BYTES is {self.part_bytes} bytes, but must be at least {MIB} (1 MiB)"


@dataclass(frozen=True, kw_only=True)
class TelemetrySettings:
    """What operators see."""

    metrics_port: int = field(
        metadata=setting(
            units.OPTIONAL_PORT, "METRICS_PORT", "9464", "`/metrics`, `/healthz`, `/readyz` over HTTP on all interfaces; 0 = off"
        )
    )
    log_level: str = field(metadata=setting(units.LOG_LEVEL, "LOG_LEVEL", "info", "debug, info, warning or error"))
    log_format: str = field(
        metadata=setting(units.LOG_FORMAT, "LOG_FORMAT", "auto", "`json`, `text`, or `auto`: text on a terminal, else JSON")
    )


@dataclass(frozen=True, kw_only=True)
class LifetimeSettings:
    """The end of the process."""

    grace_seconds: float = field(
        metadata=setting(
            units.SECONDS,
            "GRACE_PERIOD_SECONDS",
            "25",
            "Time after SIGTERM to finish or undo what runs; below the pod's grace period",
        )
    )


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything, read once at start and passed on by concern."""

    spi: SpiSettings
    triton: TritonSettings
    capacity: CapacitySettings
    volume: VolumeSettings
    pull: PullSettings
    telemetry: TelemetrySettings
    lifetime: LifetimeSettings

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Settings:
        """
        Read the environment (or a mapping like it). A variable that is empty counts as absent.

        Raises:
            SettingsError: with every problem.
        """
        environ = os.environ if environ is None else environ
        problems: list[str] = []
        groups = {name: read(group, environ, problems) for name, group in GROUPS.items()}
        for group in groups.values():
            problems.extend(getattr(group, "problems", tuple)())
        if not problems:
            settings = cls(**groups)
            problems.extend(settings.problems())
        if problems:
            raise SettingsError(problems)
        return settings

    def problems(self) -> Iterator[str]:
        """Two servers of this pod on one port or socket."""
        places = {
            "ADAPTER_ENDPOINT" if self.spi.endpoint else "ADAPTER_PORT": self.spi.listen,
            "RUNTIME_ENDPOINT" if self.triton.endpoint else "RUNTIME_PORT": self.triton.reach,
            "METRICS_PORT": Endpoint(host="localhost", port=self.telemetry.metrics_port),
        }
        used = Counter(place for place in places.values() if place.port or place.socket)
        for place in (place for place, count in used.items() if count > 1):
            names = [name for name, other in places.items() if other == place]
            yield f"{' and '.join(names)} are both {place.socket or place.port}"


def read_group(group: type[G], environ: Mapping[str, str] | None = None) -> G:
    """One group alone, for commands that need no more. Raises SettingsError."""
    problems: list[str] = []
    values = read(group, os.environ if environ is None else environ, problems)
    if problems:
        raise SettingsError(problems)
    return cast("G", values)


GROUPS: dict[str, type[Any]] = {
    "spi": SpiSettings,
    "triton": TritonSettings,
    "capacity": CapacitySettings,
    "volume": VolumeSettings,
    "pull": PullSettings,
    "telemetry": TelemetrySettings,
    "lifetime": LifetimeSettings,
}

RETIRED = {
    "MAX_CONC_KERAS_CONV_PROCS": (
        "has no effect any more: .h5 and .keras files are not converted (that would run foreign code), they are refused "
        "with the command that converts them; a keras model saved as a SavedModel directory works"
    ),
}
"""Variables of the Go adapter that are accepted with a warning: what happens now."""


def retired_warnings(environ: Mapping[str, str] | None = None) -> list[str]:
    """One sentence for each retired variable that is set."""
    environ = os.environ if environ is None else environ
    return [f"{name} {meaning}" for name, meaning in RETIRED.items() if environ.get(name)]


def all_fields() -> Iterator[Field[Any]]:
    """Every setting, in the order of the table; metadata as `adapter.units.setting` makes it."""
    for group in GROUPS.values():
        yield from fields(group)
