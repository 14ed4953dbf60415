"""
What an artifact is: where its model lies, and which version of which object each file is. Pure.

Equal identities are equal content, so an identity is a key. Who may have the artifact is another question:
a `reader` stands for the credentials, and all else of a storage config, with which a model was asked for.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from adapter.digests import Digests
from adapter.model import ModelSpec
from adapter.storage.bucket import Bucket, StoredObject
from adapter.storage.secret.binding import Binding
from adapter.storage.secret.merging import StorageConfig

DIGEST = "[0-9a-f]{64}"
"""Pattern of a key, and of a reader."""
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
        return _digest(self.origin, *lines)


def origin_of(server: str, bucket: Bucket, model: str, reader: str = "") -> str:
    """
    Digest of where a model lies. Artifacts of one origin are versions of one model.

    Args:
        server: as `server_of`. The bucket's own `endpoint` is for people: two servers may have one.
        bucket: where the model was found.
        model: the listing's `origin`.
        reader: as `reader_of`, where versions mean nothing to another one.
    """
    return _digest(server, bucket.kind, bucket.endpoint, bucket.place, model, reader)


def server_of(digests: Digests, config: StorageConfig, binding: Binding) -> str:
    """
    Digest of all that decides whose objects a request sees: every field of the merged config that only says who asks left out.

    A server that a request names may list the keys, versions and sizes of anybody's model. So its scheme, path and query
    count, its region, addressing and trusted certificates, and every header but `Authorization`: proxies route by any of them.
    What may be a secret is salted.
    """
    plain: dict[str, object] = {"type": config.type, "bucket": config.bucket}
    salted: dict[str, object] = {}
    for name, value in config.values.items():
        if name in _NO_PLACES or (name in binding.credentials and name not in (*binding.places, binding.collection)):
            continue
        if name == binding.collection and isinstance(value, Mapping):
            salted |= {f"{name}.{key}": each for key, each in value.items() if key.lower() != "authorization"}
        elif name in binding.credentials or name not in (*_PLAIN, *binding.places) or _SECRET_MARKS.intersection(str(value)):
            salted[name] = value
        else:
            plain[name] = value
    return _digest(json.dumps(plain, sort_keys=True), digests.of_values(salted) if salted else "")


def reader_of(digests: Digests, config: StorageConfig, spec: ModelSpec) -> str:
    """Salted digest of who asks for what: all of the merged config, credentials too, and the paths."""
    return digests.of_values(
        {
            "values": config.values,
            "type": config.type,
            "bucket": config.bucket,
            "is_unsigned": config.is_unsigned,
            "path": spec.path,
            "schema_path": spec.schema_path,
        }
    )


def _digest(*texts: str) -> str:
    found = hashlib.sha256()
    for text in texts:
        found.update(text.encode("utf-8", "surrogatepass"))
        found.update(b"\0")
    return found.hexdigest()
