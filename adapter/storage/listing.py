"""
Which objects make up a model: the rules from a model path to a Listing.

Prefix first: everything below `path/`, all pages. Else the object whose key is exactly the path. So a
sibling (`resnet-v2/` beside `resnet/`) never leaks in, and a folder wins over an object of its name.
Zero-byte objects are files; only keys that end in `/` are markers. What could not be a file on disk
refuses the whole model. Blocks; runs in threads; knows nothing of any one store.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass

from adapter.errors import InvalidRequest, SourceNotFound
from adapter.model import Listing, SourceFile
from adapter.storage.source import ObjectSource, StoredObject
from adapter.workers import Stop

MAX_OBJECTS = 100_000
MAX_NAME_BYTES = 255
"""Of one path segment. Source: Linux NAME_MAX."""
_FEW = 20
_NEAR_MISSES = 3
_SHOWN_CHARACTERS = 200


class Tally:
    """What a listing under way has seen, for somebody who will not wait for its end."""

    def __init__(self) -> None:
        self.seen_bytes = 0


@dataclass(frozen=True, kw_only=True)
class FoundModel:
    """A listing, and where its files come from."""

    listing: Listing
    prefix: str
    """What a file's path is put behind to make its key."""
    single: StoredObject | None
    """Of a model that is one object."""
    schema: StoredObject | None

    def stored(self, file: SourceFile) -> StoredObject:
        """The object of a listed file."""
        if self.schema is not None and file == self.listing.schema:
            return self.schema
        return self.single or StoredObject(self.prefix + file.path, file.size_bytes, file.etag)


def find_model(source: ObjectSource, path: str, schema_path: str | None, tally: Tally, stop: Stop) -> FoundModel:
    """
    List the model at this path.

    Args:
        source: the bucket.
        path: as ModelMesh sent it; relative to the bucket, leading slashes mean nothing.
        schema_path: likewise, from the bucket's root and not from the path.
        tally: told what is seen on the way.
        stop: ends it between and within pages.

    Raises:
        InvalidRequest: the path, or a key below it, cannot be a file on disk.
        SourceNotFound: nothing is there.
        SourceError: as the source.
    """
    key = clean_path(path, "modelPath")
    name = key.rpartition("/")[2]
    prefix = f"{key}/"
    files = _below(source, prefix, tally, stop)
    single = None
    if not files:
        prefix = key[: len(key) - len(name)]
        single = _exact(source, key, "model", stop)
        _check_name(name, key)
        tally.seen_bytes += single.size_bytes
        files = (SourceFile(name, single.size_bytes, single.etag),)
    schema = described = None
    if schema_path:
        schema = _exact(source, clean_path(schema_path, "schema_path"), "schema", stop)
        described = SourceFile(schema.key.rpartition("/")[2], schema.size_bytes, schema.etag)
    listing = Listing(origin=f"{source.place}/{key}", name=name, is_single_file=single is not None, files=files, schema=described)
    return FoundModel(listing=listing, prefix=prefix, single=single, schema=schema)


def clean_path(path: str, what: str) -> str:
    """
    The path without leading and trailing slashes.

    Raises:
        InvalidRequest: empty, or with a segment that leads elsewhere.
    """
    key = path.strip("/")
    if not key:
        raise InvalidRequest(f"{what} is empty; expected the path of an object or folder in the bucket")
    if "\0" in key:
        raise InvalidRequest(f"{what} contains a NUL byte")
    if {".", ".."} & set(key.split("/")):
        raise InvalidRequest(f"{what} {_shown(path)} has a '.' or '..' in it; expected the path of an object or folder in the bucket")
    return key


def path_problem(path: str) -> str | None:
    """Why a relative key cannot be a path of a file below the model, or None."""
    if path.startswith("/"):
        return "is absolute"
    for segment in path.split("/"):
        if not segment:
            return "has an empty segment"
        if segment in (".", ".."):
            return f"has a {segment!r} in it"
        if len(segment.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES:
            return f"has a segment of more than {MAX_NAME_BYTES} bytes"
    return "contains a NUL byte" if "\0" in path else None


def sorted_files(files: list[SourceFile], origin: str) -> tuple[SourceFile, ...]:
    """
    By path, once each.

    Raises:
        InvalidRequest: one path is a file and a directory.
    """
    paths = {file.path for file in files}
    directories: set[str] = set()
    for file in files:
        parent = file.path.rpartition("/")[0]
        while parent and parent not in directories:
            directories.add(parent)
            parent = parent.rpartition("/")[0]
    if both := sorted(paths & directories):
        raise InvalidRequest(f"{origin} holds {_shown(both[0])} both as an object and as a folder, which no file system can")
    return tuple(sorted(files, key=lambda file: file.path))


def _below(source: ObjectSource, prefix: str, tally: Tally, stop: Stop) -> tuple[SourceFile, ...]:
    origin = f"{source.place}/{prefix.rstrip('/')}"
    files = []
    for stored in _all_pages(source, prefix, stop):
        if stored.key.endswith("/") or not stored.key.startswith(prefix):
            continue
        path = stored.key[len(prefix) :]
        if problem := path_problem(path):
            raise InvalidRequest(f"the key {_shown(stored.key)} in {source.place} cannot be a file on disk: below the model it {problem}")
        files.append(SourceFile(path, stored.size_bytes, stored.etag))
        tally.seen_bytes += stored.size_bytes
        if len(files) > MAX_OBJECTS:
            raise InvalidRequest(f"{origin} holds more than {MAX_OBJECTS} objects; is it really one model?")
    return sorted_files(files, origin)


def _all_pages(source: ObjectSource, prefix: str, stop: Stop) -> Iterator[StoredObject]:
    token: str | None = None
    while True:
        stop.check()
        page = source.list_page(prefix, stop, token=token)
        yield from page.objects
        token = page.next_token
        if token is None:
            return


def _exact(source: ObjectSource, key: str, what: str, stop: Stop) -> StoredObject:
    page = source.list_page(key, stop, limit=_FEW)
    for stored in page.objects:
        if stored.key == key:
            return stored
    near = _near_misses(source, key, [stored.key for stored in page.objects], stop)
    hint = f"; close to it: {', '.join(_shown(name) for name in near)}" if near else ""
    raise SourceNotFound(f"there is no {what} at {_shown(key)} in {source.place}{hint}")


def _near_misses(source: ObjectSource, key: str, same_start: list[str], stop: Stop) -> list[str]:
    """Names that go on where the path ends, then names in its folder that look alike."""
    parent = key[: key.rfind("/") + 1]
    page = source.list_page(parent, stop, by_folder=True)
    beside = [*page.folders, *(stored.key for stored in page.objects)]
    longer = [name[: name.find("/", len(key)) + 1] or name for name in same_start if not name.startswith(f"{key}/")]
    alike = difflib.get_close_matches(key, [name.rstrip("/") for name in beside], n=_NEAR_MISSES)
    folders = {name.rstrip("/"): name for name in beside}
    return list(dict.fromkeys([*longer, *(folders[name] for name in alike)]))[:_NEAR_MISSES]


def _check_name(name: str, key: str) -> None:
    if problem := path_problem(name):
        raise InvalidRequest(f"the key {_shown(key)} cannot be a file on disk: it {problem}")


def _shown(key: str) -> str:
    return repr(key if len(key) <= _SHOWN_CHARACTERS else f"{key[:_SHOWN_CHARACTERS]}…")
