"""
From a model's key to the storage config that reaches it.

Owns the reading of the mounted storage secret: one JSON file per storage key, read at each load, for
Kubernetes replaces the files of a changed secret. A value of a config never reaches a log or an
error text; names of keys do.

Source of the rules: the Go adapter's `model-serving-puller/puller/{puller,config}.go`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import Executor
from pathlib import Path

import aiofiles.os
import structlog

from adapter.errors import InvalidRequest, some
from adapter.model import ModelSpec
from adapter.storage.secret.fields import read_small
from adapter.storage.secret.merging import Binding, StorageConfig, merged

_read = aiofiles.os.wrap(read_small)
"""Cancelled, it ends at once: a read that hangs ends by itself, and one that no thread has begun is not begun."""
_SHOWN_KEYS = 20

_log = structlog.stdlib.get_logger(__name__)


class StorageConfigs:
    """The mounted storage secret."""

    def __init__(self, folder: Path, bindings: Mapping[str, Binding], executor: Executor) -> None:
        self._folder = folder
        self._bindings = bindings
        self._executor = executor

    async def resolve(self, spec: ModelSpec) -> StorageConfig:
        """
        The config that this model is pulled with.

        Raises:
            InvalidRequest: no such storage key, not a JSON object, overrides that contradict, no type.
        """
        if spec.storage_key:
            label = f"storage config {spec.storage_key!r}"
            return merged(await self._read_named(spec.storage_key, label), spec, label, self._bindings)
        kind = spec.storage_params.get("type")
        name = f"default_{kind}" if kind else "default"
        stored = await self._read_default(name)
        if kind and not stored.get("type"):
            stored["type"] = kind  # its name says so
        return merged(stored, spec, f"storage config {name!r}", self._bindings)

    async def keys(self) -> list[str]:
        """Storage keys that exist, sorted. Kubernetes' own `..data` is not one."""
        try:
            names = await aiofiles.os.listdir(self._folder, executor=self._executor)
        except OSError:
            return []
        return sorted(name for name in names if not name.startswith(".."))

    async def _read_named(self, name: str, label: str) -> dict[str, object]:
        _check_name(name, "storage_key")
        try:
            return _parsed(await self._text(name), label)
        except FileNotFoundError as error:
            raise InvalidRequest(f"there is no {label}; {_existing(await self.keys())}") from error
        except OSError as error:
            raise InvalidRequest(f"{label} cannot be read: {error.strerror}") from error

    async def _read_default(self, name: str) -> dict[str, object]:
        """A default that is missing or broken counts as an empty one. Source: the Go adapter's `puller/config.go`."""
        _check_name(name, "the storage type")
        try:
            return _parsed(await self._text(name), f"storage config {name!r}")
        except FileNotFoundError:
            return {}
        except (OSError, InvalidRequest) as error:
            _log.warning("storage.default_config_ignored", key=name, error=getattr(error, "text", type(error).__name__))
            return {}

    async def _text(self, name: str) -> bytes:
        return await _read(self._folder / name, executor=self._executor)


def _check_name(name: str, what: str) -> None:
    if "/" in name or ".." in name or "\0" in name or name == ".":
        raise InvalidRequest(f"{what} is not a plain file name: it has a '/', a '..' or a NUL byte")


def _parsed(text: bytes, label: str) -> dict[str, object]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        # the parser's own words and its exception quote the content
        raise InvalidRequest(f"{label} is not JSON; expected an object of strings") from None
    if not isinstance(value, dict):
        raise InvalidRequest(f"{label} is not a JSON object; expected an object of strings")
    return value


def _existing(keys: list[str]) -> str:
    if not keys:
        return "the mounted storage secret has no keys at all"
    return f"storage keys that exist: {some([repr(key) for key in keys], _SHOWN_KEYS)}"
