"""
A bucket of one of the clouds: signs and sends what a dialect says, and checks the answers.

The only place where the clouds' dialects, which are pure, meet the network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from adapter.errors import AdapterError, SourceDenied, SourceUnavailable
from adapter.storage.bucket import PAGE_OBJECTS, Page, Read
from adapter.storage.checksums import Checksum
from adapter.storage.net.access import Access, proxy_for
from adapter.storage.net.failures import Unanswered
from adapter.storage.net.messages import Collected, Head, Request, Sink
from adapter.storage.secret.merging import StorageConfig
from adapter.storage.stores.answers import OK, PARTIAL, Body, Where, etag_of
from adapter.storage.stores.clients import Connection, Means
from adapter.storage.stores.tokens import NO_ANSWER, NoCredentialsError, TokensAwayError

PAGE_BYTES = 4 * 1024 * 1024
"""Most that an answer to a listing of 1,000 keys may have; see the dialects for what a key can take."""
_NO_ENCODINGS = ("", "identity")
Sign = Callable[[str, str, Mapping[str, str]], tuple[str, Mapping[str, str]]]
"""Method, URL and headers → the URL and the headers to send."""


@dataclass(frozen=True)
class ListingQuery:
    """What is asked for."""

    prefix: str
    token: str | None
    limit: int
    by_folder: bool


class Dialect:
    """What one kind of cloud says and understands. Pure: a subclass for each."""

    owner: ClassVar[str]
    """For people: `Google's`."""
    version: ClassVar[str]
    """Header of an answer that has the version of an object, in lower case."""
    version_name: ClassVar[str]
    """For people: `ETag`."""
    meanings: ClassVar[Mapping[str, type[AdapterError]]] = {}
    """Of the error codes that say more than their status."""

    def listing(self, wanted: ListingQuery) -> str:
        """Target of a listing: path and query below the bucket's base."""
        raise NotImplementedError

    def page_of(self, content: bytes, wanted: ListingQuery) -> Page:
        """The page in an answer of status 200. Raises one of `NO_ANSWER`: it is none."""
        raise NotImplementedError

    def object(self, read: Read) -> tuple[str, Mapping[str, str]]:
        """Target and headers for what is missing of a read, of the version that was listed."""
        raise NotImplementedError

    def checksums(self, headers: Mapping[str, str]) -> Sequence[Checksum]:
        """Of the whole object, from the answer to a read."""
        raise NotImplementedError

    def is_answer(self, head: Head) -> bool:
        """Whether an answer of status 200 or 206 may be what was asked for."""
        return True

    def code(self, head: Head) -> str:
        """The short code of an error answer, or what is in its place; empty: there is none."""
        return ""


class CloudClient:
    """A connection to a cloud: a subclass for each says who we are to it. Kept by `Clients`."""

    kind: ClassVar[str]
    giver: ClassVar[str]
    """For people, of what gives out credentials: `Google's`."""
    credentials = "the credentials"
    """For people: what requests are made with."""

    def __init__(self, connection: Connection, means: Means) -> None:
        self.means = means
        self.host = self.endpoint = connection.host
        """For people; and what shares its fate."""
        self._trust = connection.trust
        self._guard = means.guard_of(connection)

    async def sign(self) -> Sign:
        """How requests are signed now. Raises TokensAwayError, NoCredentialsError, InvalidRequest."""
        raise NotImplementedError

    def access(self, url: str) -> Access:
        """Of a server of this connection."""
        return Access(self._trust, self._guard, proxy_for(url))


class CloudBucket:
    """One bucket. See `Bucket` for the contract."""

    def __init__(self, client: CloudClient, config: StorageConfig, *, place: str, base: str, dialect: Dialect, words: str) -> None:
        """
        Args:
            client: of its connection.
            config: that names it.
            place: as `Bucket`.
            base: URL of the bucket, without a slash at its end.
            dialect: of its cloud.
            words: as `Bucket`.
        """
        self.kind, self.endpoint, self.place, self.words = client.kind, client.endpoint, place, words
        self._client = client
        self._base = base
        self._access = client.access(base)
        self._dialect = dialect
        self._where = Where(
            words=words,
            label=config.label,
            credentials=client.credentials,
            is_plain_http=base.startswith("http:"),
            is_unsigned=config.is_unsigned,
        )

    async def list_page(self, prefix: str, *, token: str | None = None, limit: int = PAGE_OBJECTS, by_folder: bool = False) -> Page:
        """As the Protocol says."""
        wanted = ListingQuery(prefix, token, limit, by_folder)
        answer = _PageAnswer(lambda found: self._page(found, wanted))
        sign = await self.signer()
        head = await self._answer(self._request(sign, (self._dialect.listing(wanted), {}), answer))
        if answer.page is None:
            raise self._refused(head, None)
        return answer.page

    async def read(self, reads: Sequence[Read]) -> None:
        """As the Protocol says. What is asked next is made in the engine's thread."""
        sign, left, key = await self.signer(), (read for read in reads if read.missing), ""

        def asked() -> Request | None:
            nonlocal key
            if (read := next(left, None)) is None:
                return None
            key = read.wanted.key
            body = Body(read, self._where, check=self._check, checksums=self._dialect.checksums)
            return self._request(sign, self._dialect.object(read), body, most_bytes=read.wanted.size_bytes + PAGE_BYTES, then=asked)

        if (first := asked()) is None:
            return
        head = await self._answer(first, written=reads[0].written_bytes)
        if head.error or head.status not in (OK, PARTIAL):
            raise self._refused(head, key)

    async def signer(self) -> Sign:
        """What signs requests now. Raises SourceError: there are no credentials."""
        client = self._client
        try:
            sign = await self._sign()
        except TokensAwayError as error:
            raise error.meaning(self._where, client.giver) from error
        except NoCredentialsError as error:
            raise SourceDenied(f"no credentials for {self.words}: {str(error).format(label=self._where.label)}") from error
        self._where = replace(self._where, credentials=client.credentials)
        return sign

    async def _sign(self) -> Sign:
        return await self._client.sign()

    def _request(
        self, sign: Sign, wanted: tuple[str, Mapping[str, str]], sink: Sink, *, most_bytes: int = PAGE_BYTES, method: str = "GET",
        then: Callable[[], Request | None] | None = None,
    ) -> Request:  # fmt: skip
        """A signed one for a target below the base, with headers. Arguments as of `Request`."""
        target, headers = wanted
        url, given = sign(method, f"{self._base}{target}", {"Accept-Encoding": "identity", **headers})
        return Request(url, given, sink, self._access, most_bytes, method, then=then)

    async def _answer(self, request: Request, *, written: int = 0) -> Head:
        try:
            return await self._client.means.engine.fetch(request, written_bytes=written)
        except Unanswered as failure:
            raise self._where.unreachable(failure) from failure

    def _page(self, answer: Collected, wanted: ListingQuery) -> Page | None:
        """The page in an answer; None: the answer is of another status. Raises SourceUnavailable: it is no page."""
        if answer.head.status != OK:
            return None
        if answer.head.headers.get("content-encoding", "").strip().lower() not in _NO_ENCODINGS:
            raise self._where.unreachable(Unanswered("its answer has a Content-Encoding that was not asked for"))
        try:
            return self._dialect.page_of(answer.content, wanted)
        except NO_ANSWER as error:
            owner = self._dialect.owner
            raise SourceUnavailable(f"{self.words} gave an answer that is not {owner}", cause=f"its answers are not {owner}") from error

    def _check(self, head: Head, read: Read) -> None:
        dialect, wanted = self._dialect, read.wanted
        version = etag_of(head.headers.get(dialect.version))
        if wanted.etag and version != wanted.etag:
            if version:  # servers exist that ignore the condition of a request
                raise self._where.changed(wanted.key, f"another {dialect.version_name}")
            raise self._where.wrong(f"answered without the {dialect.version_name} of {wanted.key!r} that was listed")
        if not dialect.is_answer(head):
            raise self._where.other_range(wanted.key)

    def _refused(self, head: Head, key: str | None) -> AdapterError:
        code = self._dialect.code(head)
        return self._where.refused(head, code, key=key, kind=self._dialect.meanings.get(code))


class _PageAnswer(Collected):
    """An answer to a listing, read in the engine's thread: a thousand rows take 20 ms, in which the event loop would stand still."""

    def __init__(self, read: Callable[[Collected], Page | None]) -> None:
        super().__init__()
        self.page: Page | None = None
        self._read = read

    def end(self) -> None:
        """As `Sink`."""
        self.page = self._read(self)
