"""
What an artifact is: whose model, where it lies, and which version of which object each file is. Pure.

Equal identities are equal content for the same owner, so an identity is a key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from adapter.digests import Digests, digest_of
from adapter.model import ModelSpec
from adapter.storage.bucket import StoredObject
from adapter.storage.secret.merging import Binding, StorageConfig

FILES = "files"
"""Folder of an artifact: every file at its listing path."""
SCHEMA = "schema"
"""Beside it: the file that `schema_path` names."""
ARCHIVE = "archive"
"""Stands for all of `files` where they come out of one object."""
_NO_PLACES = ("anonymous", "credential_endpoints", "unpack")
"""Fields that say how a store is asked, or what becomes of the answer."""
_PLAIN = ("addressing_style", "bucket", "ca_bundle", "cabundle_configmap", "certificate", "default_bucket", "region", "type", "verify_ssl")
"""Fields that hold no secret. Beside these, places do not, unless they have a query or a user."""
_SECRET_MARKS = frozenset("?@")


@dataclass(frozen=True)
class Identity:
    """What an artifact is."""

    origin: str
    """As `origin_of`."""
    objects: Mapping[str, StoredObject]
    """Path in the artifact → object: `files/1/model.onnx`, `schema`. Of what was unpacked, `archive` stands for all of `files`."""

    @property
    def is_unpacked(self) -> bool:
        """Whether the files come out of an archive."""
        return ARCHIVE in self.objects

    @cached_property
    def key(self) -> str:
        """SHA-256 in hex."""
        lines = (text for path, stored in sorted(self.objects.items()) for text in (path, stored.key, stored.etag, str(stored.size_bytes)))
        return digest_of(self.origin, *lines)


def origin_of(digests: Digests, config: StorageConfig, binding: Binding, spec: ModelSpec) -> str:
    """
    Digest of a model of one owner. Artifacts of one origin are its versions, and only this owner gets them.

    The owner is the storage key, whatever its credentials are now; a request with credentials of its own is another owner for each
    of them. A server that a request names may list the keys, versions and sizes of anybody's model. So all fields count that decide
    whose objects a request sees: proxies route by scheme, path, query, region, addressing, trusted certificates. Where headers can be
    set, credentials count too: they may choose the file. What may be a secret is salted.
    """
    counts_credentials = config.has_own_credentials or bool(binding.collection)
    plain: dict[str, object] = {
        "config": config.label, "type": config.type, "bucket": config.bucket, "path": spec.path, "schema_path": spec.schema_path,
    }  # fmt: skip
    salted: dict[str, object] = {}
    for name, value in config.values.items():
        is_credential = name in binding.credentials
        if name in _NO_PLACES or (is_credential and name not in binding.places and not counts_credentials):
            continue
        if is_credential or name not in (*_PLAIN, *binding.places) or _SECRET_MARKS.intersection(str(value)):
            salted[name] = value
        else:
            plain[f"values.{name}"] = value
    return digest_of(json.dumps(plain, sort_keys=True), digests.of_values(salted) if salted else "")
