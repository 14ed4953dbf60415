"""
From a model's key to the storage config that reaches it.

Owns the mounted storage secret (one JSON file per storage key, read at each load: Kubernetes
replaces the files of a changed secret) and the rules that merge it with the request. A value of a
config never reaches a log or an error text; names of keys do.

Source of the rules: the Go adapter's `model-serving-puller/puller/{puller,config,dotpath}.go`.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import aiofiles
import aiofiles.os
import structlog

from adapter.errors import InvalidRequest
from adapter.model import ModelSpec
from adapter.storage.binding import ALL_CREDENTIALS, BINDINGS, NOTHING

OWN_PARAMS = "adapter."
"""Parameters below this name are for the adapter itself, not for the store."""
_SHOWN_KEYS = 20

_log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class StorageConfig:
    """The merged config of one request."""

    type: str
    bucket: str | None
    values: Mapping[str, object] = field(repr=False)
    label: str
    """For people: which file it is from."""
    is_unsigned: bool = False
    """The request goes to an endpoint that the stored credentials do not belong to."""

    def required_bucket(self) -> str:
        """The bucket. Raises InvalidRequest when there is none."""
        if not self.bucket:
            raise InvalidRequest(f"no bucket: {self.label} has neither bucket nor default_bucket, and the request names none")
        return self.bucket


class StorageConfigs:
    """The mounted storage secret."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="storage-config")

    async def resolve(self, spec: ModelSpec) -> StorageConfig:
        """
        The config that this model is pulled with.

        Raises:
            InvalidRequest: no such storage key, not a JSON object, overrides that contradict, no type.
        """
        if spec.storage_key:
            label = f"storage config {spec.storage_key!r}"
            return merged(await self._read_named(spec.storage_key, label), spec, label)
        kind = spec.storage_params.get("type")
        name = f"default_{kind}" if kind else "default"
        return merged(await self._read_default(name), spec, f"storage config {name!r}")

    async def keys(self) -> list[str]:
        """Storage keys that exist, sorted. Kubernetes' own `..data` is none."""
        try:
            names = await aiofiles.os.listdir(self._folder, executor=self._threads)
        except OSError:
            return []
        return sorted(name for name in names if not name.startswith(".."))

    def close(self) -> None:
        """Give the threads back."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _read_named(self, name: str, label: str) -> dict[str, object]:
        _check_name(name, "storage_key")
        try:
            return _parsed(await self._text(name), label)
        except FileNotFoundError as error:
            raise InvalidRequest(f"there is no {label}; {_those_that_exist(await self.keys())}") from error
        except OSError as error:
            raise InvalidRequest(f"{label} cannot be read: {error.strerror}") from error

    async def _read_default(self, name: str) -> dict[str, object]:
        """A default that is missing or broken is as good as none. Source: `config.go` 59-98."""
        _check_name(name, "the storage type")
        try:
            return _parsed(await self._text(name), f"storage config {name!r}")
        except FileNotFoundError:
            return {}
        except (OSError, InvalidRequest) as error:
            _log.warning("storage.default_config_ignored", key=name, error=getattr(error, "text", type(error).__name__))
            return {}

    async def _text(self, name: str) -> bytes:
        """Read to the end even when cancelled: a file that a cancelled `aiofiles.open` has opened is closed by nobody."""
        reading = asyncio.ensure_future(self._read(name))
        reading.add_done_callback(lambda done: done.cancelled() or done.exception())  # retrieved, also when nobody is left to ask
        await asyncio.shield(asyncio.wait({reading}))
        return reading.result()

    async def _read(self, name: str) -> bytes:
        async with aiofiles.open(self._folder / name, "rb", executor=self._threads) as file:
            return await file.read()


def merged(stored: Mapping[str, object], spec: ModelSpec, label: str) -> StorageConfig:
    """
    The stored config with the request's bucket and parameters on top.

    Bucket, first that is given: `storage_params.bucket`, the modelKey's own `bucket`, the config's
    `bucket`, its `default_bucket`. Stored credentials stay with the endpoint they are stored with.

    Raises:
        InvalidRequest: overrides that contradict each other or the config; no storage type.
    """
    values = expanded(stored, label)
    params = {name: value for name, value in spec.storage_params.items() if value and not name.startswith(OWN_PARAMS)}
    requested = params.get("type") or values.get("type")
    binding = BINDINGS.get(str(requested).strip(), NOTHING)
    is_foreign = binding.leads_elsewhere(values, params)
    if is_foreign or (values.get("type") and requested != values["type"]):
        for name in ALL_CREDENTIALS:
            values.pop(name, None)
    if spec.bucket:
        values["bucket"] = spec.bucket
    override(values, params)
    is_unsigned = is_foreign and not any(values.get(name) for name in binding.credentials)
    if is_unsigned:
        values["anonymous"] = "true"
    kind = values.get("type")
    if not isinstance(kind, str) or not kind.strip():
        raise InvalidRequest(
            f"Predictor Storage field missing: neither {label} nor storage_params has a storage type, expected for instance type: s3"
        )
    bucket = values.get("bucket") or values.get("default_bucket")
    if bucket is not None and not isinstance(bucket, str):
        raise InvalidRequest(f"{label}: bucket is not a string")
    return StorageConfig(type=kind.strip(), bucket=bucket, values=values, label=label, is_unsigned=is_unsigned)


def expanded(stored: Mapping[str, object], label: str) -> dict[str, object]:
    """
    A copy with dotted keys (`headers.Authorization`) as objects: ModelMesh's controller wants strings only in its secret.

    Raises:
        InvalidRequest: a dotted key contradicts another one.
    """
    is_dotted = {name: "." in name and not name.startswith(OWN_PARAMS) for name in stored}
    values = copy.deepcopy({name: value for name, value in stored.items() if not is_dotted[name]})
    override(values, {name: value for name, value in stored.items() if is_dotted[name] and isinstance(value, str) and value}, label)
    return values


def override(values: dict[str, object], params: Mapping[str, str], what: str = "storage_params") -> None:
    """
    Set each parameter by its dot path, in the order of names, making the objects on the way.

    Raises:
        InvalidRequest: a parameter would replace something that is not a string, or contradicts another.
    """
    for name in sorted(params):
        *parents, last = name.split(".")
        if not all((*parents, last)):
            raise InvalidRequest(f"{what}: {name!r} is not a path of names joined by dots")
        target = values
        for depth, parent in enumerate(parents):
            step = target.get(parent)
            if step is None:
                step = target[parent] = {}
            if not isinstance(step, dict):
                raise InvalidRequest(f"{what}: {name!r} needs {'.'.join(parents[: depth + 1])!r} to be an object, but it is none")
            target = step
        if not isinstance(target.get(last, ""), str | None):
            raise InvalidRequest(f"{what}: {name!r} would replace a value that is not a string")
        target[last] = params[name]


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


def _those_that_exist(keys: list[str]) -> str:
    if not keys:
        return "the mounted storage secret has no keys at all"
    shown = ", ".join(repr(key) for key in keys[:_SHOWN_KEYS])
    return f"storage keys that exist: {shown}" + (f" and {len(keys) - _SHOWN_KEYS} more" if len(keys) > _SHOWN_KEYS else "")
