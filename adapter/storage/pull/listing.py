"""
Which objects make up a model: the rules from a model path to a Listing.

An object whose key is exactly the path is the model. Else everything below `path/` is, all pages. So a sibling
(`resnet-v2/` beside `resnet/`) never leaks in, and an object wins over a folder of its name. Zero-byte objects are
files; only keys that end in `/` are markers. What could not be a file on disk refuses the whole model.

One listing tells both: of all keys that start with the path, without a slash. Where siblings fill its first page, the folder is
listed by itself. Knows no store.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

from adapter.errors import InvalidRequest, SourceDenied, SourceNotFound, SourceUnavailable
from adapter.model import Listing, SourceFile
from adapter.paths import TreeTooLarge, directories_of, path_problem
from adapter.storage.bucket import Bucket, Page, StoredObject
from adapter.storage.search import MAX_OBJECTS, Search, clean_path, shown
from adapter.workers import Workers

MAX_PAGES = 10_000
"""Of a listing, empty ones included: a hundred times what the largest model has in pages of 1,000."""
MAX_NAMES_BYTES = 48 * 1024 * 1024
"""Most memory that paths and versions of a model's files may take together; 100,000 files have about 25 MiB of them."""
_NEAR_MISSES = 3
_COMPARED_CHARACTERS = 48
"""Of a name, where near ones are looked for: the time that comparing takes grows faster than the square of that."""
_FEW = 20
"""Rows that ascend, of a store that sorts; siblings that are remembered as hints."""


async def find_model(bucket: Bucket, search: Search, threads: Workers) -> FoundModel:
    """
    List the model that is searched for. The paths of the search are relative to the bucket's root; leading slashes mean nothing.

    Args:
        bucket: where the model is.
        search: what is searched for.
        threads: that sort what was listed, where it is much.

    Raises:
        InvalidRequest: the path, or a key below it, cannot be a file on disk.
        SourceNotFound: nothing is there.
        SourceError: as the bucket.
    """
    key = clean_path(search.spec.path, "modelPath")
    listed = _Listed(bucket, search, threads, key, f"{key}/", f"{bucket.place}/{key}")
    await listed.find()
    files, single, prefix = listed.files, listed.single, listed.prefix
    name, schema, described = key.rpartition("/")[2], None, None
    if single is not None:
        if problem := path_problem(name):
            raise InvalidRequest(f"the key {shown(key)} cannot be a file on disk: it {problem}")
        prefix, files = key.removesuffix(name), (SourceFile(name, single.size_bytes, single.etag),)
        search.saw(files[0])
    if not files:
        raise await _nothing(bucket, key, "model", listed.beside)
    if schema_path := search.spec.schema_path:
        path = clean_path(schema_path, "schema_path")
        known = next((file for file in files if prefix + file.path == path), None)
        schema = StoredObject(path, known.size_bytes, known.etag) if known else await _exact(bucket, path, "schema")
        described = SourceFile(path.rpartition("/")[2], schema.size_bytes, schema.etag)
    listing = Listing(origin=listed.origin, name=name, is_single_file=single is not None, files=files, schema=described)
    return FoundModel(bucket, listing, prefix, single, schema)


def _ascends(page: Page) -> bool:
    keys = [stored.key for stored in page.objects if not stored.key.endswith("/")]  # Azure sorts the names of folders without it
    return len(keys) >= _FEW and all(one < other for one, other in pairwise(keys))


@dataclass(frozen=True)
class FoundModel:
    """What lies at a path, one object or files below it, and where its files come from."""

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


@dataclass
class _Listed:
    """What the pages of a listing tell: one object, or files below the path."""

    bucket: Bucket
    search: Search
    threads: Workers
    key: str
    prefix: str
    origin: str
    single: StoredObject | None = None
    files: tuple[SourceFile, ...] = ()
    """Sorted."""
    beside: list[str] = field(default_factory=list)
    """The first keys that go on where the path ends, without a slash."""
    seen: list[SourceFile] = field(default_factory=list)
    names_bytes: int = 0

    async def find(self) -> None:
        """
        From the pages of one listing, or of two.

        Raises:
            InvalidRequest: too much for one model, or no file on disk.
            SourceUnavailable: a key was listed twice, or the listing has no end.
            SourceError: as the bucket.
        """
        try:
            if await self._has_listed(self.key):
                return
        except (SourceDenied, InvalidRequest) as refusal:
            if self.seen:
                raise
            # leave may be for the folder alone, and S3's directory buckets take no prefix without a slash
            try:
                await self._has_listed(self.prefix)
            except SourceUnavailable as away:
                raise refusal from away  # what was said last holds: a kept copy is for credentials that were not refused
            if not self.files:
                raise
        else:
            await self._has_listed(self.prefix)

    async def _has_listed(self, prefix: str) -> bool:
        """
        See every page to the last one. False: siblings fill the first ones.

        A page may be empty (stores pass over what was deleted) or hold folder markers alone, but not for ever.
        """
        self.search.seen_bytes = 0
        self.seen, self.names_bytes = [], 0
        token: str | None = None
        tokens: set[int] = set()
        while True:
            page = await self.bucket.list_page(prefix, token=token)
            self.single = next((stored for stored in page.objects if stored.key == self.key), None)
            if self.single is not None:
                return True
            await self.threads.run_large(partial(self._see, page), len(page.objects))
            self.beside += [stored.key for stored in page.objects if not stored.key.startswith(self.prefix)][: _FEW - len(self.beside)]
            token = page.next_token
            if token is None:
                break
            if self.beside and prefix == self.key and _ascends(page):  # an object of the path's own name would have come first
                return False
            if hash(token) in tokens or len(tokens) >= MAX_PAGES:
                raise SourceUnavailable(f"{self.bucket.words} gave a listing of {shown(prefix)} without an end")
            tokens.add(hash(token))
        self.files = await self.threads.run_large(self._sorted, len(self.seen))
        return True

    def _see(self, page: Page) -> None:
        for stored in page.objects:
            if stored.key.endswith("/") or not stored.key.startswith(self.prefix):
                continue
            path = stored.key.removeprefix(self.prefix)
            if problem := path_problem(path):
                where = f"the key {shown(stored.key)} in {self.bucket.place}"
                raise InvalidRequest(f"{where} cannot be a file on disk: below the model it {problem}")
            file = SourceFile(path, stored.size_bytes, stored.etag)
            self.seen.append(file)
            self.search.saw(file)
            self.names_bytes += sys.getsizeof(path) + sys.getsizeof(stored.etag)
            if self.names_bytes > MAX_NAMES_BYTES:
                raise InvalidRequest(f"{self.origin} has names of more than {MAX_NAMES_BYTES >> 20} MiB together; is it really one model?")
            if len(self.seen) > MAX_OBJECTS:
                raise InvalidRequest(f"{self.origin} holds more than {MAX_OBJECTS} objects; is it really one model?")

    def _sorted(self) -> tuple[SourceFile, ...]:
        paths = {file.path for file in self.seen}
        if len(paths) != len(self.seen):
            raise SourceUnavailable(f"{self.bucket.words} listed a key below {shown(self.prefix)} twice")
        try:
            folders = directories_of(paths)
        except TreeTooLarge as problem:
            raise InvalidRequest(f"{self.origin} {problem}; is it really one model?") from problem
        if both := folders & paths:
            raise InvalidRequest(f"{self.origin} holds {shown(min(both))} both as an object and as a folder, which no file system can")
        return tuple(sorted(self.seen, key=lambda file: file.path))


async def _exact(bucket: Bucket, key: str, what: str) -> StoredObject:
    page = await bucket.list_page(key, limit=_FEW)
    for stored in page.objects:
        if stored.key == key:
            return stored
    raise await _nothing(bucket, key, what, [stored.key for stored in page.objects])


async def _nothing(bucket: Bucket, key: str, what: str, same_start: Iterable[str]) -> SourceNotFound:
    """
    Names names that go on where the path ends (`same_start`: keys that were listed), then names in its folder that look alike.

    One listing. Raises as the bucket.
    """
    parent = key[: key.rfind("/") + 1]
    page = await bucket.list_page(parent, by_folder=True)
    beside = {_compared(name, parent): name for name in (*page.folders, *(stored.key for stored in page.objects))}
    longer = [name[: name.find("/", len(key)) + 1] or name for name in same_start if not name.startswith(f"{key}/")]
    alike = [beside[name] for name in difflib.get_close_matches(_compared(key, parent), list(beside), n=_NEAR_MISSES)]
    near = list(dict.fromkeys(longer + alike))[:_NEAR_MISSES]
    hint = f"; close to it: {', '.join(shown(name) for name in near)}" if near else ""
    return SourceNotFound(f"there is no {what} at {shown(key)} in {bucket.place}{hint}")


def _compared(name: str, parent: str) -> str:
    return name.removeprefix(parent).rstrip("/")[:_COMPARED_CHARACTERS]
