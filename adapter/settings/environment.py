"""
The one reader of the environment: all groups together, or one alone.

All mistakes are reported together: a manifest is mended once.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, fields, replace
from typing import Any, TypeVar, cast, get_type_hints

from adapter.settings.capacity import CapacitySettings
from adapter.settings.companion import CompanionSettings
from adapter.settings.http import HttpSettings
from adapter.settings.lifetime import LifetimeSettings
from adapter.settings.llm import LlmSettings
from adapter.settings.memory import memory_bytes
from adapter.settings.pull import PullSettings
from adapter.settings.rest_proxy import RestProxySettings
from adapter.settings.sagemaker import SageMakerSettings
from adapter.settings.spi import SpiSettings
from adapter.settings.telemetry import TelemetrySettings
from adapter.settings.triton import TritonSettings
from adapter.settings.v2 import V2Settings
from adapter.settings.volume import VolumeSettings
from adapter.units import Endpoint, read

G = TypeVar("G")
MEMORY = "CONTAINER_MEM_REQ_BYTES"
LOADERS = ("SAGEMAKER_PORT", "SAGEMAKER_BIND_TO_PORT", "SAGEMAKER_MULTI_MODEL", "TRITON_COMMAND")
"""Whoever sets one of these wants an adapter, though CONTAINER_MEM_REQ_BYTES is absent."""
FRONTS_ALONE = ("sagemaker",)
"""Groups whose fronts are served without ModelMesh, by a container that starts Triton itself: the memory of this container is Triton's."""


class SettingsError(Exception):
    """The configuration cannot work. Holds every problem found, one sentence each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything, read once at start and passed on by concern."""

    spi: SpiSettings
    triton: TritonSettings
    companion: CompanionSettings
    capacity: CapacitySettings
    volume: VolumeSettings
    pull: PullSettings
    telemetry: TelemetrySettings
    lifetime: LifetimeSettings
    http: HttpSettings
    sagemaker: SageMakerSettings
    v2: V2Settings
    rest_proxy: RestProxySettings
    llm: LlmSettings

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
        if not environ.get(MEMORY) and any(groups[name] and groups[name].port for name in FRONTS_ALONE) and groups["capacity"]:
            groups["capacity"] = replace(groups["capacity"], container_memory_bytes=memory_bytes())
        _stand_in(groups)
        for group in groups.values():
            problems.extend(getattr(group, "problems", tuple)())
        if not problems:
            settings = cls(**groups)
            problems.extend(settings.problems())
        if problems:
            raise SettingsError(problems)
        return settings

    @property
    def disk_budget_bytes(self) -> int:
        """
        CACHE_MAX_BYTES, or its default.

        Raises:
            OSError: the default needs the folders to be there: the volume is claimed first.
        """
        if self.volume.max_bytes is not None:
            return self.volume.max_bytes
        state = os.statvfs(self.volume.cache_dir)
        return min(self.capacity.container_memory_bytes * 5 // 4, state.f_blocks * state.f_frsize * 4 // 5)

    @property
    def loads_at_once(self) -> int:
        """Loads that Triton is given at once: a front's caller waits for nobody else's while Triton has a load thread to spare."""
        loads = self.capacity.max_loading
        return max(loads, self.triton.load_threads - 1) if self.has_fronts else loads

    @property
    def has_fronts(self) -> bool:
        """Whether any HTTP front is on: then ModelMesh may never ask for the status."""
        return bool(self.sagemaker.port or self.v2.port or self.llm.port)

    @property
    def has_modelmesh(self) -> bool:
        """Whether nothing works until ModelMesh has asked for the status: a front that has loads of its own does without."""
        return self.spi.listen is not None and not self.sagemaker.port

    def problems(self) -> Iterator[str]:
        """Two servers of this pod on one port or socket, or none that anybody could call."""
        if self.spi.listen is None and not self.has_fronts:
            yield "ADAPTER_PORT is 0 and no HTTP front is on: nobody could call the adapter"
        places = {
            "ADAPTER_ENDPOINT" if self.spi.endpoint else "ADAPTER_PORT": self.spi.listen or Endpoint(),
            "RUNTIME_ENDPOINT" if self.triton.endpoint else "RUNTIME_PORT": self.triton.reach,
            "METRICS_PORT": Endpoint(host="localhost", port=self.telemetry.metrics_port),
            "SAGEMAKER_PORT": Endpoint(host="localhost", port=self.sagemaker.port),
            "V2_REST_PORT": Endpoint(host="localhost", port=self.v2.port),
            "LMI_PORT": Endpoint(host="localhost", port=self.llm.port),
        }
        used = Counter(place for place in places.values() if place.port or place.socket)
        for place in (place for place, count in used.items() if count > 1):
            names = [name for name, other in places.items() if other == place]
            yield f"{' and '.join(names)} are both {place.socket or place.port}"


@dataclass(frozen=True, kw_only=True)
class ProxySettings:
    """Of a process that is the REST proxy of a ModelMesh pod, and nothing else."""

    telemetry: TelemetrySettings
    lifetime: LifetimeSettings
    http: HttpSettings
    v2: V2Settings
    rest_proxy: RestProxySettings

    @staticmethod
    def are_meant(environ: Mapping[str, str] | None = None) -> bool:
        """Whether the environment is that of KServe's REST proxy: its port, and nothing of an adapter that loads models."""
        environ = os.environ if environ is None else environ
        port = read(RestProxySettings, environ, []) if environ.get("REST_PROXY_LISTEN_PORT") else None
        return port is not None and bool(port.listen_port) and not any(environ.get(name) for name in (MEMORY, *LOADERS))

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> ProxySettings:
        """
        As `Settings.from_env`, of fewer variables.

        Raises:
            SettingsError: with every problem.
        """
        environ = os.environ if environ is None else environ
        problems: list[str] = []
        groups = {name: read(group, environ, problems) for name, group in get_type_hints(cls).items()}
        _stand_in(groups)
        http, proxy = groups["http"], groups["rest_proxy"]
        if http and proxy and http.tls_cert is None and http.tls_key is None:
            groups["http"] = replace(http, tls_cert=proxy.certificate, tls_key=proxy.key)
        for group in groups.values():
            problems.extend(getattr(group, "problems", tuple)())
        if problems:
            raise SettingsError(problems)
        return cls(**groups)


def _stand_in(groups: dict[str, Any]) -> None:
    """The V2 front in place of the REST proxy, where its port is set: V2's own variables win."""
    v2, proxy = groups["v2"], groups["rest_proxy"]
    if v2 and proxy and proxy.listen_port:
        groups["v2"] = replace(v2, port=v2.port or proxy.listen_port, endpoint=v2.endpoint or proxy.endpoint)


def inherited() -> Mapping[str, str]:
    """All variables as they are, for a program that we start."""
    return os.environ


def read_group(group: type[G], environ: Mapping[str, str] | None = None) -> G:
    """One group alone, for commands that need no more. Raises SettingsError."""
    problems: list[str] = []
    values = read(group, os.environ if environ is None else environ, problems)
    problems.extend(getattr(values, "problems", tuple)())
    if problems:
        raise SettingsError(problems)
    return cast("G", values)


GROUPS: dict[str, type[Any]] = get_type_hints(Settings)
"""Name → class of each group, in the order of the table."""

RETIRED = {
    "MAX_CONC_KERAS_CONV_PROCS": (
        "has no effect any more: .h5 and .keras files are not converted (that would run foreign code), they are refused "
        "with the command that converts them; a keras model saved as a SavedModel directory works"
    ),
    "PULL_PART_BYTES": "has no effect any more: how many bytes a request asks for is decided while a model is pulled",
}
"""Variables of earlier releases and of the Go adapter that are accepted with a warning: what happens now."""


def retired_warnings(environ: Mapping[str, str] | None = None) -> list[str]:
    """One sentence for each retired variable that is set."""
    environ = os.environ if environ is None else environ
    return [f"{name} {meaning}" for name, meaning in RETIRED.items() if environ.get(name)]


def all_fields() -> Iterator[Field[Any]]:
    """Every setting, in the order of the table; metadata as `adapter.units.setting` makes it."""
    for group in GROUPS.values():
        yield from fields(group)
