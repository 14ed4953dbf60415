"""
The rules that merge a stored config with a request. Pure; a value of a config never reaches an error text.

Each type of store declares one `Binding`: its places, its credentials, and who may change which. One pass applies it.
`credential_endpoints` of the *stored* config names further places that its credentials may go to (`*`: any). Knows no type
of store.

Source of the rules: the Go adapter's `model-serving-puller/puller/{puller,dotpath}.go`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from adapter.errors import InvalidRequest
from adapter.model import ModelSpec
from adapter.storage.secret.fields import CERTIFICATE, Fields, checked_bucket, text_of

ALSO_FOR = "credential_endpoints"
_BUNDLES = ("ca_bundle", "cabundle_configmap")
TRUST = (CERTIFICATE, "verify_ssl", *_BUNDLES)
"""Which certificates are trusted: the operator decides which servers get stored credentials, and which files of the pod are read."""
STORED_ONLY = ("verify_ssl", *_BUNDLES, ALSO_FOR)
"""Which no request may set; a certificate's text it may, beside its own credentials."""
_OF_ALL_TYPES = ("bucket", "default_bucket", "unpack", *TRUST)
"""What a stored config keeps when a request changes its type: all else is bound to the stored type."""
Same = Callable[[object, object], bool]
"""Whether the requested place is the stored one."""


@dataclass(frozen=True, kw_only=True)
class Binding:
    """What is bound to what."""

    places: Mapping[str, Same] = field(default_factory=dict)
    """Fields that say where requests go. A request that names a place of its own gets nothing stored, and no identity of the pod."""
    credentials: tuple[str, ...] = ()
    """Fields that prove an identity. A request that brings one of them replaces all stored ones, so that no two identities are mixed."""
    whole: tuple[tuple[str, ...], ...] = ()
    """Sets of credentials: a request or a stored config has all parts of one, or none."""
    collection: str = ""
    """The credential that has entries of its own (`headers`): at the stored place, entries of a request join the stored ones."""
    beside: tuple[str, ...] = ()
    """Fields that belong to the stored credentials, and go when those go."""
    fixed: tuple[str, ...] = ()
    """Fields, in lower case, that change the host behind a place: not a request's to set while stored credentials or the pod's are used."""

    def holds(self, stored: Mapping[str, object], params: Mapping[str, str]) -> bool:
        """Whether something stored proves an identity: a credential, or a place that is used and has a signature in its query."""
        is_signed = any("?" in (text_of(stored.get(name)) or "") for name in self.places if name not in params)
        return is_signed or any(stored.get(name) for name in self.credentials)

    def own(self, stored: Mapping[str, object], params: Mapping[str, str]) -> frozenset[str]:
        """Credentials that the parameters bring; those that only repeat what is stored are none."""
        named = {name.partition(".")[0] for name in params} & set(self.credentials)
        is_new = any(text_of(stored.get(name)) != text_of(params.get(name)) for name in named - {self.collection})
        return frozenset(named if is_new else named & {self.collection})

    def check_whole(self, given: Collection[str], holder: str, needs: str) -> None:
        """Raise InvalidRequest: of these credentials, in words the holder's, parts are missing; `needs` says what to do."""
        begun = [each for each in self.whole if not set(each).isdisjoint(given)] or (self.whole[:1] if given else ())
        if missing := [name for each in begun for name in each if name not in given]:
            names = " and ".join(name for name in self.credentials if name in given)
            raise InvalidRequest(f"{holder} has {names} but no {' and no '.join(missing)}; {needs}")


def is_same_name(wanted: object, stored: object) -> bool:
    """A stored config without such a name leaves the name to the request."""
    return not stored or text_of(wanted) == text_of(stored)


NOTHING = Binding()
"""Of a type that has no credentials."""


@dataclass(frozen=True, kw_only=True)
class StorageConfig(Fields):
    """The merged config of one request, with its fields."""

    type: str
    bucket: str | None
    is_unsigned: bool = False
    """The request goes to an endpoint that the stored credentials do not belong to."""
    has_own_credentials: bool = False
    """The request brings credentials."""
    requested: frozenset[str] = frozenset()
    """Names of the fields whose value only the request names: neither the stored config nor its `credential_endpoints` do."""

    def required_bucket(self) -> str:
        """The bucket. Raises InvalidRequest when there is none, or its name is none."""
        if not self.bucket:
            raise InvalidRequest(f"no bucket: {self.label} has neither bucket nor default_bucket, and the request names none")
        return checked_bucket(self.bucket, self.label)


def merged(stored: Mapping[str, object], spec: ModelSpec, label: str, bindings: Mapping[str, Binding]) -> StorageConfig:
    """
    The stored config with the request's bucket and parameters on top.

    Bucket, first that is given: `storage_params.bucket`, the modelKey's own `bucket`, the config's
    `bucket`, its `default_bucket`. What a request may change is in `Binding` and in `STORED_ONLY`.

    Raises:
        InvalidRequest: overrides that contradict each other or the config; overrides that no request may make; no storage type.
    """
    values = expanded(stored, label)
    params = {name: value for name, value in spec.storage_params.items() if value.strip()}
    kind = _kind_of(values, params, label, bindings)
    binding = bindings.get(kind, NOTHING)
    is_other_type = text_of(values.get("type")) not in (None, kind)
    if is_other_type:
        values = {name: values[name] for name in _OF_ALL_TYPES if name in values}

    also = (text_of(values.get(ALSO_FOR)) or "").replace(",", " ").split()
    places = {name: is_same for name, is_same in binding.places.items() if name in params}
    requested = frozenset(
        name for name, is_same in places.items() if not any(is_same(params[name], known) for known in (values.get(name), *also) if known)
    )
    leads_elsewhere = "*" not in also and any(not places[name](params[name], values.get(name)) for name in requested)
    is_elsewhere = is_other_type or leads_elsewhere
    own = binding.own({} if is_elsewhere else values, params)
    binding.check_whole(own, "storage_params", f"what {label} has does not complete them")
    if is_elsewhere or own - {binding.collection}:
        for name in (*binding.credentials, *binding.beside, "anonymous"):
            values.pop(name, None)

    is_unsigned = is_elsewhere and not own
    is_own = bool(own) and not binding.holds(values, params)
    bound = () if is_own else (CERTIFICATE,) if is_unsigned else (CERTIFICATE, *binding.fixed)
    _check_overrides(values, params, label, unless_own=bound)
    if not own and not Fields(params, "storage_params").flag("anonymous", default=True):
        del params["anonymous"]  # a request without credentials cannot ask for those of the pod

    if spec.bucket:
        values["bucket"] = spec.bucket
    override(values, params)
    if is_unsigned:
        values["anonymous"] = "true"
    bucket = values.get("bucket") or values.get("default_bucket")
    if bucket is not None and not isinstance(bucket, str):
        raise InvalidRequest(f"{label}: bucket is not a string")
    return StorageConfig(
        values=values, label=label, type=kind, bucket=text_of(bucket),
        is_unsigned=is_unsigned, has_own_credentials=bool(own), requested=requested,
    )  # fmt: skip


def _kind_of(values: Mapping[str, object], params: Mapping[str, str], label: str, bindings: Mapping[str, Binding]) -> str:
    """The storage type. A stored config that has credentials or a place has them for one type, which it must name itself."""
    stored = values.get("type")
    kind = text_of(params.get("type") or stored)
    if kind is None or not isinstance(params.get("type") or stored, str):
        raise InvalidRequest(
            f"Predictor Storage field missing: neither {label} nor storage_params has a storage type, expected for instance type: s3"
        )
    if text_of(stored) is None and any(values.get(name) for each in bindings.values() for name in (*each.credentials, *each.places)):
        raise InvalidRequest(f"{label} has no type, and storage_params cannot tell whose credentials it holds; add a type to {label}")
    return kind


def _check_overrides(values: Mapping[str, object], params: Mapping[str, str], label: str, *, unless_own: Collection[str]) -> None:
    """Raise InvalidRequest when a parameter changes what it may not. A value that is the stored one changes nothing."""
    for name, value in params.items():
        field_names = {name.lower(), name.lower().partition(".")[0]}
        found: object = values
        for step in name.split("."):
            found = found.get(step) if isinstance(found, Mapping) else None
        if text_of(found) == text_of(value):
            continue
        if field_names & set(STORED_ONLY):
            raise InvalidRequest(f"storage_params has {name}, which no request may set; put it into {label}")
        if field_names & set(unless_own):
            raise InvalidRequest(f"storage_params has {name}, which a request may set only beside its own credentials; put it into {label}")


def expanded(stored: Mapping[str, object], label: str) -> dict[str, object]:
    """
    A copy with dotted keys (`headers.Authorization`) as objects: ModelMesh's controller wants strings only in its secret.

    Raises:
        InvalidRequest: a dotted key contradicts another one.
    """
    values = copy.deepcopy({name: value for name, value in stored.items() if "." not in name})
    override(values, {name: value for name, value in stored.items() if "." in name and value not in (None, "")}, label)
    return values


def override(values: dict[str, object], params: Mapping[str, object], what: str = "storage_params") -> None:
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
        for depth, parent in enumerate(parents, 1):
            step = target[parent] = {} if target.get(parent) is None else target[parent]
            if not isinstance(step, dict):
                raise InvalidRequest(f"{what}: {name!r} needs {'.'.join(parents[:depth])!r} to be an object, which it is not")
            target = step
        if not isinstance(target.get(last, ""), str | None):
            raise InvalidRequest(f"{what}: {name!r} would replace a value that is not a string")
        target[last] = params[name]
