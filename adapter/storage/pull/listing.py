"""
Which objects make up a model: the rules from a model path to a Listing.

Prefix first: everything below `path/`, all pages. Else the object whose key is exactly the path. So a
sibling (`resnet-v2/` beside `resnet/`) never leaks in, and a folder wins over an object of its name.
Zero-byte objects are files; only keys that end in `/` are markers. What could not be a file on disk
refuses the whole model. Blocks; runs in threads; knows no store.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from adapter.errors import InvalidRequest, SourceNotFound, SourceUnavailable
from adapter.model import Listing, SourceFile
from adapter.paths import TreeTooLarge, directories_of, path_problem
from adapter.storage.bucket import Bucket, StoredObject
from adapter.storage.search import MAX_OBJECTS, Search, clean_path, shown
from adapter.workers import Stop

MAX_PAGES = 10_000
"""Of a listing, empty ones included: a hundred times what the largest model has in pages of 1,000."""
MAX_NAMES_BYTES = 48 * 1024 * 1024
"""Most memory that paths and versions of a model's files may take together; 100,000 files have about 25 MiB of them."""
_FEW = 20
_NEAR_MISSES = 3
_COMPARED_CHARACTERS = 48
"""Of a name, where near ones are looked for: the time that comparing takes grows faster than the square of that."""


@dataclass(frozen=True, kw_only=True)
class FoundModel:
    """A listing, and where its files come from."""

    bucket: Bucket
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


def find_model(bucket: Bucket, search: Search, stop: Stop) -> FoundModel:
    """
    List the model that is searched for. The paths of the search are relative to the bucket's root; leading slashes mean nothing.

    Raises:
        InvalidRequest: the path, or a key below it, cannot be a file on disk.
        SourceNotFound: nothing is there.
        SourceError: as the bucket.
    """
    key = clean_path(search.spec.path, "modelPath")
    name = key.rpartition("/")[2]
    prefix = f"{key}/"
    files = _below(bucket, prefix, search, stop)
    single = None
    if not files:
        prefix = key[: len(key) - len(name)]
        single = _exact(bucket, key, "model", stop)
        if problem := path_problem(name):
            raise InvalidRequest(f"the key {shown(key)} cannot be a file on disk: it {problem}")
        files = (SourceFile(name, single.size_bytes, single.etag),)
        search.saw(files[0])
    schema = described = None
    if search.spec.schema_path:
        schema = _exact(bucket, clean_path(search.spec.schema_path, "schema_path"), "schema", stop)
        described = SourceFile(schema.key.rpartition("/")[2], schema.size_bytes, schema.etag)
    listing = Listing(origin=f"{bucket.place}/{key}", name=name, is_single_file=single is not None, files=files, schema=described)
    return FoundModel(bucket=bucket, listing=listing, prefix=prefix, single=single, schema=schema)


def _below(bucket: Bucket, prefix: str, search: Search, stop: Stop) -> tuple[SourceFile, ...]:
    origin = f"{bucket.place}/{prefix.rstrip('/')}"
    files, names_bytes = [], 0
    for stored in _all_pages(bucket, prefix, stop):
        if stored.key.endswith("/") or not stored.key.startswith(prefix):
            continue
        path = stored.key[len(prefix) :]
        if problem := path_problem(path):
            raise InvalidRequest(f"the key {shown(stored.key)} in {bucket.place} cannot be a file on disk: below the model it {problem}")
        files.append(SourceFile(path, stored.size_bytes, stored.etag))
        search.saw(files[-1])
        names_bytes += sys.getsizeof(path) + sys.getsizeof(stored.etag)
        if names_bytes > MAX_NAMES_BYTES:
            raise InvalidRequest(f"{origin} has names of more than {MAX_NAMES_BYTES >> 20} MiB together; is it really one model?")
        if len(files) > MAX_OBJECTS:
            raise InvalidRequest(f"{origin} holds more than {MAX_OBJECTS} objects; is it really one model?")
    if len({file.path for file in files}) != len(files):
        raise SourceUnavailable(f"{bucket.words} listed a key below {shown(prefix)} twice")
    try:
        folders = directories_of(file.path for file in files)
    except TreeTooLarge as problem:
        raise InvalidRequest(f"{origin} {problem}; is it really one model?") from problem
    if both := folders.intersection(file.path for file in files):
        raise InvalidRequest(f"{origin} holds {shown(min(both))} both as an object and as a folder, which no file system can")
    return tuple(sorted(files, key=lambda file: file.path))


def _all_pages(bucket: Bucket, prefix: str, stop: Stop) -> Iterator[StoredObject]:
    """
    Every page to the last one. Raises SourceUnavailable for a listing that has no end.

    A page may be empty (stores pass over what was deleted) or hold folder markers alone, but not for ever.
    """
    token: str | None = None
    seen: set[int] = set()
    while True:
        stop.check()
        page = bucket.list_page(prefix, stop, token=token)
        yield from page.objects
        token = page.next_token
        if token is None:
            return
        if hash(token) in seen or len(seen) >= MAX_PAGES:
            raise SourceUnavailable(f"{bucket.words} gave a listing of {shown(prefix)} without an end")
        seen.add(hash(token))


def _exact(bucket: Bucket, key: str, what: str, stop: Stop) -> StoredObject:
    page = bucket.list_page(key, stop, limit=_FEW)
    for stored in page.objects:
        if stored.key == key:
            return stored
    near = _near_misses(bucket, key, [stored.key for stored in page.objects], stop)
    hint = f"; close to it: {', '.join(shown(name) for name in near)}" if near else ""
    raise SourceNotFound(f"there is no {what} at {shown(key)} in {bucket.place}{hint}")


def _near_misses(bucket: Bucket, key: str, same_start: list[str], stop: Stop) -> list[str]:
    """Names that go on where the path ends, then names in its folder that look alike."""
    parent = key[: key.rfind("/") + 1]
    page = bucket.list_page(parent, stop, by_folder=True)
    beside = {_compared(name, parent): name for name in (*page.folders, *(stored.key for stored in page.objects))}
    longer = [name[: name.find("/", len(key)) + 1] or name for name in same_start if not name.startswith(f"{key}/")]
    alike = difflib.get_close_matches(_compared(key, parent), _while_wanted(beside, stop), n=_NEAR_MISSES)
    return list(dict.fromkeys([*longer, *(beside[name] for name in alike)]))[:_NEAR_MISSES]


def _compared(name: str, parent: str) -> str:
    return name.removeprefix(parent).rstrip("/")[:_COMPARED_CHARACTERS]


def _while_wanted(names: Iterable[str], stop: Stop) -> Iterator[str]:
    for name in names:
        stop.check()
        yield name
