"""
What was asked and what was listed, as digests: equal is equal, and nothing can be read back.

A spec may hold credentials, so its digest is salted: passwords cannot be tried against a digest without the
salt, which lies in a file that only the adapter's user may read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from adapter.model import Listing, ModelSpec, SourceFile

SALT_BYTES = 32


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
