"""
All settings: one frozen dataclass per concern, one module each, read from the environment in one place.

A field's metadata holds its variable, unit and meaning; the tables of `modelmesh-triton-adapter
settings` and of the documents are made from it.

Names that the archived Go adapter had keep their meaning, so that a running installation can swap
the image. Source: its `server/config.go`.
"""

from adapter.settings.capacity import MIN_SIZE_BYTES, CapacitySettings
from adapter.settings.environment import (
    RETIRED,
    ProxySettings,
    Settings,
    SettingsError,
    all_fields,
    inherited,
    read_group,
    retired_warnings,
)
from adapter.settings.http import HttpSettings
from adapter.settings.llm import LlmSettings
from adapter.settings.pull import PullSettings
from adapter.settings.rest_proxy import RestProxySettings
from adapter.settings.sagemaker import SageMakerSettings
from adapter.settings.spi import SpiSettings
from adapter.settings.telemetry import TelemetrySettings
from adapter.settings.v2 import V2Settings
from adapter.settings.volume import CACHE_DIR, REPOSITORY_DIR

__all__ = [
    "CACHE_DIR",
    "MIN_SIZE_BYTES",
    "REPOSITORY_DIR",
    "RETIRED",
    "CapacitySettings",
    "HttpSettings",
    "LlmSettings",
    "ProxySettings",
    "PullSettings",
    "RestProxySettings",
    "SageMakerSettings",
    "Settings",
    "SettingsError",
    "SpiSettings",
    "TelemetrySettings",
    "V2Settings",
    "all_fields",
    "inherited",
    "read_group",
    "retired_warnings",
]
