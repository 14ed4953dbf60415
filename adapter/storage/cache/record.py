"""
What an artifact is: whose model, where it lies, which version of which object each file is; and its record on the volume.

`meta.json` is written once, when the artifact is made: what it is, and how each file looked when it was whole. Its time
of modification is that of the owner's last listing, in seconds since the boot; 0 after a refusal. It is hostile on
reading, since a Triton that runs as root can write the volume: the record is bounded, of the right types, and its paths
stay below the artifact. What takes a folder blocks, and runs in threads.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated

import msgspec

from adapter.model import MAX_SIZE_BYTES, Listing, ModelSpec
from adapter.paths import directories_of, path_problem
from adapter.records import Digests, digest_of
from adapter.storage.bucket import StoredObject
from adapter.storage.secret.merging import Binding, StorageConfig
from adapter.volume.boot import boot_id
from adapter.volume.trees import read_below

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
FORMAT = 4
NAME = "meta.json"
MODE = 0o600
MAX_BYTES = 8 * 1024 * 1024
"""Of one record: about 25,000 files. What has more is not kept."""
_Number = Annotated[int, msgspec.Meta(ge=0, le=MAX_SIZE_BYTES)]


@dataclass(frozen=True)
class Identity:
    """What an artifact is."""

    origin: str
    """As `origin_of`."""
    objects: Mapping[str, StoredObject]
    """Path in the artifact → object: `files/1/model.onnx`, `schema`. Of what was unpacked, `archive` stands for all of `files`."""

    @property
    def is_versioned(self) -> bool:
        """False: two of them cannot be told apart."""
        return all(stored.is_versioned for stored in self.objects.values())

    @cached_property
    def key(self) -> str:
        """SHA-256 in hex; without versions a random one, so that it is made for one load alone."""
        if not self.is_versioned:
            return secrets.token_hex(8)
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


class Unusable(Exception):
    """This artifact cannot be used. The text is the kind of reason, for one log line for all of a kind: `another boot`."""


class KeptFile(msgspec.Struct, frozen=True, array_like=True):
    """One file of an artifact, as it was when it was whole."""

    path: Annotated[str, msgspec.Meta(pattern=f"^({FILES}/|{SCHEMA}$)")]
    """Below the artifact: `files/1/model.onnx`, `schema`."""
    key: str
    """Of the object that it comes from; empty where it was unpacked: no object has such a key."""
    version: Annotated[str, msgspec.Meta(min_length=1)]
    size_bytes: _Number
    """Of the file."""
    mtime_ns: _Number


class ArtifactRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The record of one artifact."""

    format: int = FORMAT
    boot_id: str
    key: str
    origin: str
    listing: Listing
    """All that the store had when the artifact was made, so that it can be told while the store is away."""
    files: Annotated[tuple[KeptFile, ...], msgspec.Meta(min_length=1)]


def read(folder: Path) -> tuple[ArtifactRecord, dict[int, int]]:
    """
    The record of the artifact in this folder, which is whole, and its files as `check` gives them.

    Raises:
        Unusable: there is none, or it is not ours, or of another boot or format; or a file is not what it says.
    """
    try:
        record = parse(read_below(folder, NAME, MAX_BYTES), folder.name.partition(".")[0])
    except OSError as error:
        raise Unusable("no record") from error
    return record, check(folder, record)


def parse(content: bytes, key: str) -> ArtifactRecord:
    """As `read`, of what is in the file."""
    try:
        record = msgspec.json.decode(content, type=ArtifactRecord)
        if record.format != FORMAT:
            raise Unusable("another format")
        if record.boot_id != boot_id():
            raise Unusable("another boot")
        listing = record.listing
        listed = listing.files if listing.schema is None else (*listing.files, listing.schema)
        paths = [listing.name, *(file.path for file in listed), *(file.path for file in record.files)]
        is_odd = any(map(path_problem, paths)) or not all(0 <= file.size_bytes <= MAX_SIZE_BYTES for file in listed)
    except (ValueError, RecursionError) as error:  # what msgspec raises is a ValueError
        raise Unusable("a damaged record") from error
    if is_odd or record.key != key:
        raise Unusable("a damaged record")
    return record


def check(folder: Path, record: ArtifactRecord) -> dict[int, int]:
    """
    Whether every file is what the record says, looked at without following a link.

    Returns:
        Inode → bytes of the files.

    Raises:
        Unusable: a file is another one, or is not there.
    """
    try:
        for directory in directories_of(file.path for file in record.files):
            if not stat.S_ISDIR(os.lstat(f"{folder}/{directory}").st_mode):
                raise Unusable("a damaged file")
        found: dict[int, int] = {}
        for file in record.files:
            state = os.lstat(f"{folder}/{file.path}")
            if not stat.S_ISREG(state.st_mode) or (state.st_size, state.st_mtime_ns) != (file.size_bytes, file.mtime_ns):
                raise Unusable("a damaged file")
            found[state.st_ino] = state.st_size
    except (OSError, ValueError) as error:
        raise Unusable("a damaged file") from error
    return found


def recorded(folder: Path, identity: Identity, listing: Listing) -> tuple[ArtifactRecord, dict[int, int]]:
    """The record of an artifact that has just been made, and inode → bytes of its files. Raises OSError."""
    objects = dict(identity.objects)
    if packed := objects.pop(ARCHIVE, None):
        objects |= {f"{FILES}/{file.path}": replace(packed, key="", size_bytes=file.size_bytes) for file in listing.files}
    looked = [(path, each, os.lstat(f"{folder}/{path}")) for path, each in sorted(objects.items())]
    files = tuple(KeptFile(path, each.key, each.etag, each.size_bytes, state.st_mtime_ns) for path, each, state in looked)
    record = ArtifactRecord(boot_id=boot_id(), key=identity.key, origin=identity.origin, listing=listing, files=files)
    return record, {state.st_ino: state.st_size for _, _, state in looked}


def confirm(folder: Path, seconds: float) -> None:
    """Write down when the artifact was confirmed. Raises OSError."""
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.utime(NAME, (seconds, seconds), dir_fd=held, follow_symlinks=False)
    finally:
        os.close(held)
