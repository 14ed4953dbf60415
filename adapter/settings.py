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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar, cast

from adapter.units import (
    Endpoint,
    parse_absolute_path,
    parse_bool,
    parse_bytes,
    parse_count,
    parse_endpoint,
    parse_number,
    parse_optional_bool,
    parse_optional_port,
    parse_port,
    parse_positive,
    show_bytes,
)

T = TypeVar("T")
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


def _setting(env: str, parse: Callable[[str], T], default: str | None, unit: str, meaning: str) -> Any:
    metadata = {"env": env, "parse": parse, "default": default, "unit": unit, "meaning": meaning}
    return field(metadata=metadata)


def _log_level(text: str) -> str:
    level = {"trace": "debug", "warn": "warning", "fatal": "error", "panic": "error"}.get(text.lower(), text.lower())
    if level not in ("debug", "info", "warning", "error"):
        raise ValueError(f"{text!r} is not a log level (debug, info, warning, error)")
    return level


def _log_format(text: str) -> str:
    if text not in ("auto", "json", "text"):
        raise ValueError(f"{text!r} is not a log format (auto, json, text)")
    return text


@dataclass(frozen=True, kw_only=True)
class SpiSettings:
    """Where ModelMesh reaches the adapter."""

    port: int = _setting("ADAPTER_PORT", parse_port, "8085", "port", "Port of `mmesh.ModelRuntime` on the loopback interface")
    endpoint: Endpoint | None = _setting(
        "ADAPTER_ENDPOINT", parse_endpoint, None, "endpoint",
        "`port:N`, `host:N` or `unix:/path`; beats `ADAPTER_PORT`")  # fmt: skip
    reflection: bool = _setting("GRPC_REFLECTION", parse_bool, "false", "boolean", "Serve gRPC reflection, for debugging with grpcurl")

    @property
    def listen(self) -> Endpoint:
        """The endpoint in force."""
        return self.endpoint or Endpoint(host="localhost", port=self.port)


@dataclass(frozen=True, kw_only=True)
class TritonSettings:
    """How the adapter reaches Triton."""

    port: int = _setting("RUNTIME_PORT", parse_port, "8001", "port", "Triton's gRPC port on localhost")
    endpoint: Endpoint | None = _setting(
        "RUNTIME_ENDPOINT", parse_endpoint, None, "endpoint",
        "`port:N`, `host:N` or `unix:/path`; beats `RUNTIME_PORT`. A Triton started with `--grpc-address unix:/p/t.sock` is `unix:/p/t.sock:8001`")  # fmt: skip
    unload_timeout_seconds: float = _setting(
        "UNLOAD_TIMEOUT_SECONDS", parse_number, "170", "seconds",
        "Longest wait for Triton to free a model before the unload is answered with an error, which ModelMesh repeats; below ModelMesh's own 180 s")  # fmt: skip

    @property
    def target(self) -> str:
        """gRPC target of Triton."""
        return (self.endpoint or Endpoint(host="localhost", port=self.port)).target


@dataclass(frozen=True, kw_only=True)
class CapacitySettings:
    """What is announced to ModelMesh, and the arithmetic of sizes."""

    container_memory_bytes: int = _setting(
        "CONTAINER_MEM_REQ_BYTES", parse_bytes, "-1", "bytes",
        "**Required.** Memory that Triton's container requests (`requests.memory`, by `resourceFieldRef`)")  # fmt: skip
    buffer_bytes: int = _setting(
        "MEM_BUFFER_BYTES", parse_bytes, str(256 * MIB), "bytes", "Part of it that Triton itself needs; capacity = memory − buffer"
    )
    default_model_bytes: int = _setting(
        "DEFAULT_MODELSIZE", parse_bytes, "1000000", "bytes", "Size of a model whose size cannot be learned; more than 8192")  # fmt: skip
    multiplier: float = _setting(
        "MODELSIZE_MULTIPLIER", parse_number, "1.25", "factor", "Memory of a loaded model = bytes of its files × this"
    )
    max_loading: int = _setting(
        "LOADING_CONCURRENCY", parse_positive, "1", "loads", "Loads that ModelMesh, and the adapter towards Triton, run at once")  # fmt: skip
    load_timeout_ms: int = _setting(
        "LOADTIME_TIMEOUT", parse_positive, "30000", "milliseconds",
        "Loading timeout announced to ModelMesh; the adapter's own budget is a little below")  # fmt: skip
    max_concurrency: int = _setting(
        "LIMIT_PER_MODEL_CONCURRENCY", parse_count, "0", "requests",
        "Parallel inference requests per model copy; 0 = no limit, more than 0 also turns on ModelMesh's per-model limit")  # fmt: skip
    runtime_version: str = _setting("RUNTIME_VERSION", str, "v1", "text", "Announced until Triton has told its own version")

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
        if self.container_memory_bytes <= 0:
            yield (
                "CONTAINER_MEM_REQ_BYTES is missing (or not positive): give Triton's container a `requests.memory` "
                "and pass it on with a resourceFieldRef"
            )
            return
        if self.capacity_bytes <= 0:
            yield (
                f"CONTAINER_MEM_REQ_BYTES ({show_bytes(self.container_memory_bytes)}) leaves nothing after MEM_BUFFER_BYTES "
                f"({show_bytes(self.buffer_bytes)}): raise Triton's `requests.memory`"
            )
            return
        if self.default_model_bytes < MIN_SIZE_BYTES:
            yield (
                f"DEFAULT_MODELSIZE is {self.default_model_bytes} bytes, but must be more than {MIN_SIZE_BYTES - 1}: "
                "ModelMesh never retries a failed model of that size or less"
            )
            return
        twice, cap = 2 * self.default_model_bytes, min(512 * MIB, 10 * self.default_model_bytes)
        if self.capacity_bytes < max(twice, cap):
            yield (
                f"capacity is too small: {show_bytes(self.container_memory_bytes)} − {show_bytes(self.buffer_bytes)} = "
                f"{show_bytes(self.capacity_bytes)}, but ModelMesh needs at least max(2 × DEFAULT_MODELSIZE, min(512 MiB, "
                f"10 × DEFAULT_MODELSIZE)) = {show_bytes(max(twice, cap))}"
            )
        if self.load_timeout_ms < 100:
            yield f"LOADTIME_TIMEOUT is {self.load_timeout_ms} ms, but ModelMesh refuses less than 100 ms"


@dataclass(frozen=True, kw_only=True)
class VolumeSettings:
    """The volume shared with Triton."""

    root: Path = _setting(
        "ROOT_MODEL_DIR", parse_absolute_path, "/models", "path", f"Volume shared with Triton; Triton's `--model-repository` is `{REPOSITORY_DIR}` below it")  # fmt: skip
    cache: Path | None = _setting(
        "CACHE_DIR", parse_absolute_path, None, "path", f"Staging and pulled files; on the same file system. Default `ROOT_MODEL_DIR/{CACHE_DIR}`")  # fmt: skip

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

    config_dir: Path = _setting(
        "STORAGE_CONFIG_DIR", parse_absolute_path, "/storage-config", "path", "Mounted storage secret: one JSON file per storage key; read at each load")  # fmt: skip
    embedded: bool | None = _setting(
        "USE_EMBEDDED_PULLER", parse_optional_bool, "auto", "boolean or auto",
        "`true`: the adapter pulls every model; `false`: ModelMesh's storage helper has pulled them; `auto`: decided per load")  # fmt: skip
    threads: int = _setting("PULL_THREADS", parse_positive, "16", "threads", "Parallel requests to storage, over all pulls")
    part_bytes: int = _setting(
        "PULL_PART_BYTES",
        parse_bytes,
        str(16 * MIB),
        "bytes",
        "Larger files are pulled in ranges of this size, in parallel; at least 1 MiB",
    )

    def problems(self) -> Iterator[str]:
        """Parts that would be slower than none."""
        if self.part_bytes < MIB:
            yield f"PULL_PART_BYTES is {self.part_bytes} bytes, but must be at least {MIB} (1 MiB)"


@dataclass(frozen=True, kw_only=True)
class TelemetrySettings:
    """What operators see."""

    metrics_port: int = _setting(
        "METRICS_PORT", parse_optional_port, "9464", "port", "`/metrics`, `/healthz`, `/readyz` over HTTP on all interfaces; 0 = off")  # fmt: skip
    log_level: str = _setting("LOG_LEVEL", _log_level, "info", "level", "debug, info, warning or error")
    log_format: str = _setting("LOG_FORMAT", _log_format, "auto", "format", "`json`, `text`, or `auto`: text on a terminal, else JSON")


@dataclass(frozen=True, kw_only=True)
class LifetimeSettings:
    """The end of the process."""

    grace_seconds: float = _setting(
        "GRACE_PERIOD_SECONDS", parse_number, "25", "seconds", "Time after SIGTERM to finish or undo what runs; below the pod's grace period")  # fmt: skip


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
        groups = {name: _read(group, environ, problems) for name, group in GROUPS.items()}
        if not problems:
            for group in groups.values():
                problems.extend(getattr(group, "problems", tuple)())
        if problems:
            raise SettingsError(problems)
        return cls(**groups)


def read_group(group: type[G], environ: Mapping[str, str] | None = None) -> G:
    """One group alone, for commands that need no more. Raises SettingsError."""
    problems: list[str] = []
    values = _read(group, os.environ if environ is None else environ, problems)
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
    """Every setting, in the order of the table."""
    for group in GROUPS.values():
        yield from fields(group)


def _read(group: type[Any], environ: Mapping[str, str], problems: list[str]) -> Any:
    values: dict[str, Any] = {}
    for entry in fields(group):
        text = environ.get(entry.metadata["env"]) or entry.metadata["default"]
        try:
            values[entry.name] = None if text is None else entry.metadata["parse"](text)
        except ValueError as error:
            problems.append(f"{entry.metadata['env']}: {error}")
    return group(**values) if len(values) == len(fields(group)) else None
