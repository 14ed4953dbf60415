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
        key, kind = spec.storage_key, spec.storage_params.get("type")
        name = key or (f"default_{kind}" if kind else "default")
        label = f"storage config {name!r}"
        if "/" in name or ".." in name or "\0" in name or name == ".":
            what = "storage_key" if key else "the storage type"
            raise InvalidRequest(f"{what} is not a plain file name: it has a '/', a '..' or a NUL byte")
        try:
            stored = await self._stored(name, label)
        except InvalidRequest as error:
            if key:
                raise
            if not isinstance(error.__cause__, FileNotFoundError):
                _log.warning("storage.default_config_ignored", key=name, error=error.text)
            stored = {}  # a default that is missing or broken counts as an empty one. Source: the Go adapter's `puller/config.go`
        if not key and kind and not stored.get("type"):
            stored["type"] = kind  # its name says so
        return merged(stored, spec, label, self._bindings)

    async def keys(self) -> list[str]:
        """Storage keys that exist, sorted. Kubernetes' own `..data` is not one."""
        try:
            names = await aiofiles.os.listdir(self._folder, executor=self._executor)
        except OSError:
            return []
        return sorted(name for name in names if not name.startswith(".."))

    async def _stored(self, name: str, label: str) -> dict[str, object]:
        """What the secret has of this name. Raises InvalidRequest; a parser's own words, and its exception, quote the content."""
        try:
            value = json.loads(await _read(self._folder / name, executor=self._executor))
        except FileNotFoundError as error:
            keys = [repr(key) for key in await self.keys()]
            existing = f"storage keys that exist: {some(keys, _SHOWN_KEYS)}" if keys else "the mounted storage secret has no keys at all"
            raise InvalidRequest(f"there is no {label}; {existing}") from error
        except OSError as error:
            raise InvalidRequest(f"{label} cannot be read: {error.strerror}") from error
        except (ValueError, RecursionError):
            raise InvalidRequest(f"{label} is not JSON; expected an object of strings") from None
        if not isinstance(value, dict):
            raise InvalidRequest(f"{label} is not a JSON object; expected an object of strings")
        return value
