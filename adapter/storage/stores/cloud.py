"""
A bucket of one of the clouds: sends what a dialect says, and checks the answers.

The only place where the clouds' dialects, which are pure, meet the network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from adapter.errors import AdapterError, SourceError, SourceUnavailable
from adapter.storage.bucket import PAGE_OBJECTS, Page, Read
from adapter.storage.checksums import Checksum
from adapter.storage.net.access import Access
from adapter.storage.net.engine import Engine
from adapter.storage.net.failures import Unanswered
from adapter.storage.net.messages import Collected, Head, Request
from adapter.storage.stores.answers import Where, etag_of
from adapter.storage.stores.body import PARTIAL, Body, Part, left_of, written_bytes

PAGE_BYTES = 4 * 1024 * 1024
"""Most that an answer to a listing of 1,000 keys may have; see the dialects for what a key can take."""
_OK = 200
Then = Callable[[], Request | None]
_NO_ENCODINGS = ("", "identity")


@dataclass(frozen=True)
class ListingQuery:
    """What is asked for."""

    prefix: str
    token: str | None
    limit: int
    by_folder: bool


class Dialect(Protocol):
    """What one kind of cloud says and understands. Pure."""

    owner: str
    """For people: `Google's`."""
    version: str
    """Header of an answer that has the version of an object, in lower case."""
    version_name: str
    """For people: `ETag`."""

    def listing(self, wanted: ListingQuery) -> str:
        """Target of a listing: path and query below the bucket's base."""
        ...

    def page_of(self, content: bytes, wanted: ListingQuery) -> Page:
        """The page in an answer of status 200. Raises ValueError: it is none."""
        ...

    def object(self, part: Part) -> tuple[str, Mapping[str, str]]:
        """Target and headers of a read: the part, of the version that was listed."""
        ...

    def checksums(self, headers: Mapping[str, str]) -> Sequence[Checksum]:
        """Of the whole object, from the answer to a read."""
        ...

    def check(self, head: Head, part: Part, where: Where) -> None:
        """What else an answer of status 200 or 206 must be. Raises SourceError."""
        ...

    def code(self, head: Head) -> str:
        """The short code of an error answer, or what is in its place."""
        ...

    def meaning(self, code: str) -> type[AdapterError] | None:
        """Of a code that says more than its status."""
        ...


Sign = Callable[[str, str, Mapping[str, str]], Mapping[str, str]]
"""Method, URL and headers → the headers to send."""


@dataclass(frozen=True, kw_only=True)
class Route:
    """Where requests of a bucket go, and how."""

    base: str
    """URL of the bucket, without a slash at its end."""
    access: Access
    sign: Sign
    query: str = ""
    """Put behind the query of each request: a signature."""


class CloudBucket:
    """One bucket. See `Bucket` for the contract."""

    def __init__(self, *, kind: str, place: str, endpoint: str, dialect: Dialect, where: Where, engine: Engine) -> None:
        self.kind = kind
        self.place = place
        self.endpoint = endpoint
        self.words = where.words
        self._dialect = dialect
        self._where = where
        self._engine = engine

    async def list_page(self, prefix: str, *, token: str | None = None, limit: int = PAGE_OBJECTS, by_folder: bool = False) -> Page:
        """As the Protocol says."""
        wanted = ListingQuery(prefix, token, limit, by_folder)
        answer = _PageAnswer(lambda found: self._page(found, wanted))
        head = await self._answer(_request(await self.route(), self._dialect.listing(wanted), {}, answer, most_bytes=PAGE_BYTES))
        if answer.page is None:
            raise self._refused(head, None)
        return answer.page

    async def read(self, reads: Sequence[Read]) -> None:
        """As the Protocol says. What is asked next is made in the engine's thread."""
        route, left, key = await self.route(), left_of(reads), ""

        def asked() -> Request | None:
            nonlocal key
            if (read := next(left, None)) is None:
                return None
            key, part = read.wanted.key, Part.left_of(read)
            target, headers = self._dialect.object(part)
            body = Body(part, read, self._where, check=lambda head: self._check(head, part), checksums=self._dialect.checksums)
            return _request(route, target, headers, body, most_bytes=read.wanted.size_bytes + PAGE_BYTES, then=asked)

        if (first := asked()) is None:
            return
        head = await self._answer(first, written=written_bytes(reads[0]))
        if head.error or head.status not in (_OK, PARTIAL):
            raise self._refused(head, key)

    async def route(self) -> Route:
        """Where requests go now. Raises SourceError: there are no credentials."""
        raise NotImplementedError

    async def _answer(self, request: Request, *, written: int = 0) -> Head:
        try:
            return await self._engine.fetch(request, written_bytes=written)
        except Unanswered as failure:
            raise self._where.unreachable(failure) from failure

    def _page(self, answer: Collected, wanted: ListingQuery) -> Page | None:
        """The page in an answer; None: the answer is of another status. Raises SourceUnavailable: it is no page."""
        if answer.head.status != _OK:
            return None
        if answer.head.headers.get("content-encoding", "").strip().lower() not in _NO_ENCODINGS:
            raise self._where.unreachable(Unanswered("its answer has a Content-Encoding that was not asked for"))
        try:
            return self._dialect.page_of(answer.content, wanted)
        except (ValueError, RecursionError) as error:
            raise self._not_ours() from error

    def _check(self, head: Head, part: Part) -> None:
        dialect, key = self._dialect, part.wanted.key
        version = etag_of(head.headers.get(dialect.version))
        if part.wanted.etag and version != part.wanted.etag:
            if version:
                raise self._where.other_version(key, dialect.version_name)
            raise self._where.no_version(key, dialect.version_name)
        dialect.check(head, part, self._where)

    def _refused(self, head: Head, key: str | None) -> AdapterError:
        code = self._dialect.code(head)
        return self._where.refused(
            head.status, code, key=key, kind=self._dialect.meaning(code), retry_after=head.headers.get("retry-after")
        )

    def _not_ours(self) -> SourceError:
        return SourceUnavailable(
            f"{self.words} gave an answer that is not {self._dialect.owner}", cause=f"its answers are not {self._dialect.owner}"
        )


class _PageAnswer(Collected):
    """An answer to a listing, read in the engine's thread: a thousand rows take 20 ms, in which the event loop would stand still."""

    def __init__(self, read: Callable[[Collected], Page | None]) -> None:
        super().__init__()
        self.page: Page | None = None
        self._read = read

    def end(self) -> None:
        """As `Sink`."""
        self.page = self._read(self)


def _request(
    route: Route, target: str, headers: Mapping[str, str], sink: Body | Collected, *, most_bytes: int, then: Then | None = None
) -> Request:
    """A signed GET."""
    url = f"{route.base}{target}"
    if route.query:
        url += f"{'&' if '?' in target else '?'}{route.query}"
    given = route.sign("GET", url, {"Accept-Encoding": "identity", **headers})
    return Request(url, given, sink, route.access, most_bytes, then=then)
