"""
The rules that merge a stored config with a request. Pure; a value of a config never reaches an error text.

Source of the rules: the Go adapter's `model-serving-puller/puller/{puller,dotpath}.go`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field

from adapter.errors import InvalidRequest
from adapter.model import ModelSpec
from adapter.storage.secret.binding import NOTHING, Binding
from adapter.storage.secret.fields import Fields


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

    @property
    def fields(self) -> Fields:
        """Its values, to be read one by one."""
        return Fields(self.values, self.label)

    def required_bucket(self) -> str:
        """The bucket. Raises InvalidRequest when there is none."""
        if not self.bucket:
            raise InvalidRequest(f"no bucket: {self.label} has neither bucket nor default_bucket, and the request names none")
        return self.bucket


def merged(stored: Mapping[str, object], spec: ModelSpec, label: str, bindings: Mapping[str, Binding]) -> StorageConfig:
    """
    The stored config with the request's bucket and parameters on top.

    Bucket, first that is given: `storage_params.bucket`, the modelKey's own `bucket`, the config's
    `bucket`, its `default_bucket`. Stored credentials stay with the endpoint they are stored with.

    Raises:
        InvalidRequest: overrides that contradict each other or the config; no storage type.
    """
    values = expanded(stored, label)
    params = {name: value for name, value in spec.storage_params.items() if value}
    requested = params.get("type") or values.get("type")
    binding = bindings.get(str(requested).strip(), NOTHING)
    is_foreign = binding.leads_elsewhere(values, params)
    if is_foreign or (values.get("type") and requested != values["type"]):
        for name in {name for each in bindings.values() for name in each.credentials}:
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
    values = copy.deepcopy({name: value for name, value in stored.items() if "." not in name})
    override(values, {name: value for name, value in stored.items() if "." in name and isinstance(value, str) and value}, label)
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
                raise InvalidRequest(f"{what}: {name!r} needs {'.'.join(parents[: depth + 1])!r} to be an object, which it is not")
            target = step
        if not isinstance(target.get(last, ""), str | None):
            raise InvalidRequest(f"{what}: {name!r} would replace a value that is not a string")
        target[last] = params[name]
