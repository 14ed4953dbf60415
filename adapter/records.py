"""
What the journal keeps of models, and the digests by which contents are compared: equal is equal, and nothing can be read back.

A spec may hold credentials, so its digest is salted: passwords cannot be tried against a digest without the
salt, which lies in a file that only the adapter's user may read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Literal, NamedTuple

import msgspec

from adapter.model import MAX_SIZE_BYTES, Listing, ModelSpec, Named, SourceFile

SALT_BYTES = 32
SizeSource = Literal["given", "reported", "measured", "estimated", "files"]
"""
Where a size comes from: the model's own parameter, Triton's backend, what was seen of memory, bounds of that, bytes of files.
"""
SEEN: tuple[SizeSource, ...] = ("measured", "reported")
"""Sources that are true of the memory itself."""
MAX_TEXT = 200
"""Characters of a type, a path or a storage key in the journal: they are for people."""
Label = Annotated[str, msgspec.Meta(max_length=MAX_TEXT)]
Digest = Annotated[str, msgspec.Meta(pattern=r"\A[0-9A-Za-z_-]{1,128}\Z")]
"""Also a name of an artifact: never a path."""
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e10)]
"""Since the boot of the kernel."""


SizeBytes = Annotated[int, msgspec.Meta(ge=0, le=MAX_SIZE_BYTES)]


class Content(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a model was loaded from, as digests (`adapter.records`): two equal contents are the same model."""

    spec: Digest
    """Of what was asked, all but the model id."""
    listing: Digest | None
    """Of what storage had; None: it has no versions, so it equals nothing, not even itself."""
    crash: Digest
    """Of type, path, storage key and listing: what Triton's deaths are counted by."""


class Record(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    rename={"model_id": "id", "model_type": "type", "storage_key": "key", "artifact_key": "artifact", "size_bytes": "size"},
):
    """What the journal keeps of one model id, without secrets. Its annotations bound what is read."""

    model_id: str
    state: Annotated[str, msgspec.Meta(pattern=r"\A(?:loaded|lost|loading|unloading|failed|pulling)\Z")]
    """As the lifecycle calls it."""
    since: Seconds
    """When it came into this state."""
    model_type: Label = ""
    path: Label = ""
    """For people, redacted."""
    storage_key: Label | None = None
    content: Content | None = None
    """None while unknown: found in Triton without a record."""
    artifact_key: Digest | None = None
    size_bytes: SizeBytes = 0
    placed: Annotated[str, msgspec.Meta(pattern=r"\A[!-~]{1,128}\Z")] | None = None
    """Identity of the directory in Triton's repository folder, as `ModelRepository.place` gave it: it is compared, and has no other use."""
    confirmed: Seconds = 0.0
    """When it was loaded, or confirmed by an equal load."""
    named: Named | None = None
    """Of a model that a front has loaded."""


class Crashes(msgspec.Struct, frozen=True, kw_only=True, rename={"digest": "crash"}):
    """How often Triton died while it was loading one content."""

    digest: Digest
    """Of type, path, storage key and listing."""
    count: Annotated[int, msgspec.Meta(ge=0, le=10**6)]
    last: Seconds


class Sized(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename={"content": "sized", "model_type": "type", "size_bytes": "size", "predicted_bytes": "predicted", "spread_bytes": "spread"},
):
    """What is remembered of the size of one content."""

    content: Content
    model_type: Label
    """Without options, to compare models of one kind."""
    size_bytes: SizeBytes
    source: SizeSource
    predicted_bytes: SizeBytes
    """What was predicted when it was loaded first."""
    spread_bytes: SizeBytes
    """As in `Measure`."""

    @property
    def is_seen(self) -> bool:
        """Whether the size is true of the memory itself: it was measured, or Triton's backend has reported it."""
        return self.source in SEEN


class Needed(msgspec.Struct, frozen=True, kw_only=True, rename={"base_bytes": "base", "reserve_bytes": "reserve"}):
    """What Triton needs beside the sizes that were told; there is one."""

    needed: Literal["memory"] = "memory"
    base_bytes: SizeBytes
    """With no model."""
    reserve_bytes: SizeBytes
    """The most by which truth was above the base and the sizes that ModelMesh was told."""


Entry = Record | Crashes | Sized | Needed
"""What the journal keeps."""


class Measure(NamedTuple):
    """What one model takes of memory, as far as it was seen."""

    size_bytes: int
    source: SizeSource
    """`measured`, or `estimated`: known only within wide bounds, since others were loaded or unloaded at the same time."""
    spread_bytes: int
    """Of the bounds that it lies in; the size of a measured model is the upper one."""


class Digests:
    """SHA-256 in hex, with one salt for as long as the journal lives."""

    def __init__(self, salt: bytes) -> None:
        self._salt = salt

    def of_spec(self, spec: ModelSpec) -> str:
        """
        Of all that was asked but the model id and its caller's name: two ids with one digest ask for the same.

        A folder counts where there is one: so a spec without one has the digest that older journals hold.
        """
        asked = {name: value for name, value in vars(spec).items() if name not in ("model_id", "named", "folders")}
        return self.of_values(asked | {"folder": str(spec.folders[0])} if spec.folders else asked)

    def of_values(self, values: Mapping[str, object]) -> str:
        """Of any values that JSON can hold; mappings inside may come in any order."""
        return digest_of(json.dumps(values, sort_keys=True, default=dict, ensure_ascii=True), salt=self._salt)

    def of_listing(self, listing: Listing) -> str | None:
        """Of what a store listed; None when a file has no version, for then an equal listing proves nothing."""
        return digest_of(*_lines(listing), salt=self._salt) if listing.is_versioned else None

    def of_crash(self, spec: ModelSpec, listing: Listing) -> str:
        """
        Of what Triton would be given: type, path, storage key, parameters and listing, with versions or without.

        The parameters may lead to another server, which can list what it likes: its model is not that of the storage key.
        """
        params = json.dumps(dict(spec.storage_params), sort_keys=True)
        return digest_of(spec.model_type, spec.path, spec.bucket or "", spec.storage_key or "", params, *_lines(listing), salt=self._salt)


def digest_of(*texts: str, salt: bytes = b"") -> str:
    """SHA-256 in hex of all of them, in this order."""
    found = hashlib.sha256(salt)
    for text in texts:
        found.update(text.encode("utf-8", "surrogatepass"))
        found.update(b"\0")
    return found.hexdigest()


def _lines(listing: Listing) -> list[str]:
    head = [listing.origin, listing.name, str(listing.is_single_file), _line(listing.schema) if listing.schema else ""]
    return [*head, *map(_line, listing.files)]


def _line(file: SourceFile) -> str:
    return f"{file.size_bytes} {file.etag}\0{file.path}"
