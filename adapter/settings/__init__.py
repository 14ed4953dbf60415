"""
All settings: one frozen dataclass per concern, read from the environment here alone.

The docstring below a field is its meaning; the tables of `modelmesh-triton-adapter settings` and of the documents are made
from it. All mistakes are reported together: a manifest is mended once. Names that the archived Go adapter had keep their
meaning, so that a running installation can swap the image. Source: its `server/config.go`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any, Self, TypeVar, cast, get_type_hints

from adapter.settings.capacity import CapacitySettings, memory_bytes
from adapter.settings.fronts import HttpSettings, LlmSettings, RestProxySettings, SageMakerSettings, V2Settings
from adapter.settings.kinds import Group, meanings, read
from adapter.settings.process import CompanionSettings, LifetimeSettings, SpiSettings, TelemetrySettings, TritonSettings
from adapter.settings.storage import PullSettings, VolumeSettings

G = TypeVar("G", bound=Group)
MEMORY = "CONTAINER_MEM_REQ_BYTES"
LOADERS = ("SAGEMAKER_PORT", "SAGEMAKER_BIND_TO_PORT", "SAGEMAKER_MULTI_MODEL", "TRITON_COMMAND")
"""One of these asks for an adapter, though CONTAINER_MEM_REQ_BYTES is absent."""


class SettingsError(Exception):
    """The configuration cannot work. Holds every problem found, one sentence each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class _Groups(Group):
    """Groups of settings, each by its name."""

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> Self:
        """
        Read the environment (or a mapping like it). A variable that is empty counts as absent.

        Raises:
            SettingsError: with every problem.
        """
        settings = cls(**_groups(get_type_hints(cls), environ))
        if problems := list(settings.problems()):
            raise SettingsError(problems)
        return settings


class Settings(_Groups):
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
        """Loads that Triton is given at once: a front's caller waits for no other load while Triton has a free load thread."""
        loads = self.capacity.max_loading
        return max(loads, self.triton.load_threads - 1) if self.has_fronts else loads

    @property
    def has_fronts(self) -> bool:
        """Whether any HTTP front is on."""
        return bool(self.sagemaker.port or self.v2.port or self.llm.port)

    @property
    def has_modelmesh(self) -> bool:
        """Whether nothing works until ModelMesh has asked for the status: a front that has loads of its own does without."""
        return self.spi.listen is not None and not self.sagemaker.port

    def problems(self) -> Iterator[str]:
        """No server that anybody could call, or one that would call itself. Ports that others have are told where we listen."""
        if self.spi.listen is None and not self.has_fronts:
            yield "ADAPTER_PORT is 0 and no HTTP front is on: no client could call the adapter"
        if self.spi.listen is not None and self.spi.listen.address == self.triton.reach.address:
            yield f"the adapter (ADAPTER_PORT, ADAPTER_ENDPOINT) and Triton (RUNTIME_PORT, RUNTIME_ENDPOINT) are both {self.triton.reach}"


class ProxySettings(_Groups):
    """Of a process that is the REST proxy of a ModelMesh pod, and nothing else."""

    telemetry: TelemetrySettings
    lifetime: LifetimeSettings
    http: HttpSettings
    v2: V2Settings
    rest_proxy: RestProxySettings

    @staticmethod
    def are_meant(environ: Mapping[str, str] = os.environ) -> bool:
        """Whether the environment is that of KServe's REST proxy: its port, and nothing of an adapter that loads models."""
        proxy = read(RestProxySettings, environ, [])
        return bool(proxy and proxy.listen_port) and not any(environ.get(name) for name in (MEMORY, *LOADERS))


def read_group(group: type[G], environ: Mapping[str, str] = os.environ) -> G:
    """One group alone, for commands that need no more. Raises SettingsError."""
    return cast("G", _groups({"alone": group}, environ)["alone"])


def explained() -> Iterator[tuple[Mapping[str, Any], str]]:
    """What `kinds.setting` was given for every setting, and its meaning, in the order of the table."""
    for group in get_type_hints(Settings).values():
        yield from zip((entry.metadata for entry in fields(group)), meanings(group), strict=True)


def _groups(kinds: Mapping[str, type[Group]], environ: Mapping[str, str]) -> dict[str, Any]:
    """These groups by name. Raises SettingsError with the problems of all."""
    problems: list[str] = []
    groups = {name: read(kind, environ, problems) for name, kind in kinds.items()}
    _stand_in(groups, environ)
    for group in groups.values():
        problems.extend(group.problems() if group else ())
    if problems:
        raise SettingsError(problems)
    return groups


def _stand_in(groups: dict[str, Any], environ: Mapping[str, str]) -> None:
    """What a group has of another one, where its own variables do not say it; groups with mistakes are None."""
    capacity, sagemaker, http, v2, proxy = map(groups.get, ("capacity", "sagemaker", "http", "v2", "rest_proxy"))
    if capacity and sagemaker and sagemaker.port and not environ.get(MEMORY):
        # served without ModelMesh, by a container that starts Triton itself: the memory of this container is Triton's
        groups["capacity"] = replace(capacity, container_memory_bytes=memory_bytes())
    if v2 and proxy and proxy.listen_port:
        groups["v2"] = replace(v2, port=v2.port or proxy.listen_port, endpoint=v2.endpoint or proxy.endpoint)
    if "capacity" not in groups and http and proxy and http.tls_cert is None and http.tls_key is None:
        groups["http"] = replace(http, tls_cert=proxy.certificate, tls_key=proxy.key)
