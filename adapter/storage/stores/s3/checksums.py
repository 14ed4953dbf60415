"""
What S3 says of an object's bytes: in listings that there is a checksum of all of them, in answers its value. Pure.

A GET of the whole object tells it with the object. A GET of a range tells nothing, so for an object that comes in parts it is
asked for by itself, where a listing has promised one that can be made of the parts'. An ETag is no checksum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from adapter.storage.checksums import ALGORITHMS, Checksum, readable

ASKING = {"x-amz-checksum-mode": "ENABLED"}
"""Header of the requests whose answers tell checksums."""
_FULL = "FULL_OBJECT"
"""The other type, COMPOSITE, is a checksum of the checksums of parts. Source: Amazon S3 API Reference, `ChecksumType`."""
_NAME = "x-amz-checksum-"


def full_checksum(algorithms: Sequence[str], kind: str | None) -> str:
    """Of a row: the algorithm of one that parts make and that is of the whole object, as `StoredObject.checksum`; else empty."""
    names = {name.lower() for name in algorithms} if kind == _FULL else set()
    return next((name for name in ALGORITHMS if name in names and Checksum(name).is_combined), "")


def checksums_of(headers: Mapping[str, str]) -> tuple[Checksum, ...]:
    """Of the whole object, from an answer whose names of headers are in lower case or have none. Older servers tell no type."""
    if not any(name.lower().startswith(_NAME) for name in headers) or headers.get(f"{_NAME}type", _FULL).strip() != _FULL:
        return ()
    return readable((name, headers.get(_NAME + name)) for name in ALGORITHMS)
