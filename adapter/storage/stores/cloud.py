"""
A bucket of one of the clouds: signs and sends what a store's own class says, and checks the answers.

The only place where the languages of the clouds, which are pure functions, meet the network. Of the bearer tokens of one
identity, one caller asks for the next one, and the others wait for the same answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from adapter.errors import AdapterError, SourceDenied, SourceUnavailable
from adapter.storage.bucket import PAGE_OBJECTS, Page, Read
from adapter.storage.checksums import Checksum
from adapter.storage.net.failures import Unanswered
from adapter.storage.net.messages import Access, Collected, Head, Request, Sink, proxy_for
from adapter.storage.secret.merging import StorageConfig
from adapter.storage.stores.answers import OK, PARTIAL, Body, Where, etag_of
from adapter.storage.stores.clients import Connection, Means
from adapter.waits import instead

PAGE_BYTES = 4 * 1024 * 1024
"""Most that an answer to a listing of 1,000 keys may have; see the stores for what a key can take."""
_MOST_TOKEN_CHARACTERS = 8 * 1024
"""Tokens hold a key, in an encoding of the server's own, and go back in a URL."""
Sign = Callable[[str, str, Mapping[str, str]], tuple[str, Mapping[str, str]]]
"""Method, URL and headers → the URL and the headers to send."""
NO_ANSWER = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""What readers of an answer raise that is in another language."""
NEVER = 1e12
"""When what does not end ends."""
_EARLY_SECONDS = 300
"""A token is renewed so long before it ends."""


@dataclass(frozen=True)
class Token:
    """What proves who we are. Never shown."""

    value: Any
    ends_at: float = NEVER
    """Seconds since 1970."""

    def __repr__(self) -> str:
        return "<token>"


class Tokens:
    """Of one identity, for one event loop."""

    def __init__(self, ask: Callable[[Callable[[str], None]], Awaitable[Token]], *, early_seconds: float = _EARLY_SECONDS) -> None:
        """
        Args:
            ask: gets the next token, and tells whom it asks (host and port, from any thread); what it raises, each caller gets.
            early_seconds: before its end a token is renewed.
        """
        self._ask = ask
        self._early_seconds = early_seconds
        self._token: Token | None = None
        self._asking: asyncio.Task[Token] | None = None
        self._waiting = 0
        self._giver = ""

    def _asks(self, host: str) -> None:
        self._giver = host

    def __str__(self) -> str:
        """What those that wait for a token wait for."""
        return f"an answer of {self._giver}, which gives out credentials" if self._giver else "credentials"

    async def get(self) -> Any:
        """What is valid for some minutes. Cancelled, it leaves the request for one to those that wait as well."""
        if self._token is None or self._token.ends_at - time.time() < self._early_seconds:
            with instead(self):
                self._token = await self._renewed()
        return self._token.value

    async def _renewed(self) -> Token:
        if self._asking is None:
            self._asking = asyncio.create_task(self._asked())
        asking = self._asking
        self._waiting += 1
        try:
            return await asyncio.shield(asking)
        finally:
            self._waiting -= 1
            if not self._waiting and not asking.done():
                asking.cancel()

    async def _asked(self) -> Token:
        try:
            return await self._ask(self._asks)
        finally:
            self._asking = None


class NoCredentialsError(Exception):
    """This identity gets no credentials. The text is the reason, with `{label}` for the storage config."""


class TokensAwayError(Exception):
    """The giver of tokens, or of other credentials, gave none, which can pass."""

    def __init__(
        self, place: str, failure: Unanswered | None = None, *, head: Head | None = None, code: str = "", gives: str = "tokens"
    ) -> None:
        """
        Args:
            place: host and port.
            failure: why there was no answer.
            head: of an answer that refused; without both the answer was in another language.
            code: of such an answer.
            gives: for people.
        """
        super().__init__(place)
        self.failure = failure
        self._head = head
        self._code = code
        self._giver = f"{place}, which gives out {gives}"

    def meaning(self, where: Where, owner: str) -> AdapterError:
        """For the place that the tokens are for. `owner`: `Google's`."""
        giver = replace(where, words=f"{self._giver} for {where.words},", is_plain_http=False)
        if self.failure is not None:
            error = giver.unreachable(self.failure)
        elif self._head is not None:
            error = giver.refused(self._head, self._code, kind=SourceUnavailable)
        else:
            error = SourceUnavailable(f"{giver.words} gave an answer that is not {owner}", cause=f"its answers are not {owner}")
        if isinstance(error, SourceUnavailable):
            error.is_of_giver = True
        return error


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
    """One bucket: a subclass for each cloud knows its language. See `Bucket` for the contract."""

    owner: ClassVar[str]
    """For people: `Google's`."""
    version: ClassVar[str] = "etag"
    """Header of an answer that has the version of an object, in lower case."""
    version_name: ClassVar[str] = "ETag"
    """For people."""
    continuation: ClassVar[str]
    """Of a listing's query: where the page before has ended."""
    most_name_bytes: ClassVar[int] = 4096
    """Of a key in UTF-8, and of a version."""
    meanings: ClassVar[Mapping[str, type[AdapterError]]] = {}
    """Of the error codes that say more than their status."""

    def __init__(self, client: CloudClient, config: StorageConfig, *, place: str, base: str, words: str) -> None:
        """
        Args:
            client: of its connection.
            config: that names it.
            place: as `Bucket`.
            base: URL of the bucket, without a slash at its end.
            words: as `Bucket`.
        """
        self.kind, self.endpoint, self.place, self.words = client.kind, client.endpoint, place, words
        self._client = client
        self._base = base
        self._access = client.access(base)
        self._where = Where(
            words=words,
            label=config.label,
            credentials=client.credentials,
            is_plain_http=base.startswith("http:"),
            is_unsigned=config.is_unsigned,
        )

    def listing(self, prefix: str, token: str | None, limit: int, *, by_folder: bool) -> str:
        """Target of a listing: path and query below the bucket's base. Pure."""
        raise NotImplementedError

    def query(self, fields: dict[str, str], token: str | None, *, by_folder: bool) -> dict[str, str]:
        """Of a listing: these fields, and those that say how it goes on and whether it is by folder. Pure."""
        return fields | ({"delimiter": "/"} if by_folder else {}) | ({self.continuation: token} if token else {})

    @staticmethod
    def page_of(content: bytes) -> Page:
        """The page in an answer of status 200. Pure. Raises one of `NO_ANSWER`: it is none."""
        raise NotImplementedError

    def object(self, read: Read) -> tuple[str, Mapping[str, str]]:
        """Target and headers for what is missing of a read, of the version that was listed. Pure."""
        raise NotImplementedError

    @staticmethod
    def checksums(headers: Mapping[str, str]) -> Sequence[Checksum]:
        """Of the whole object, from the answer to a read. Pure."""
        raise NotImplementedError

    def is_answer(self, head: Head) -> bool:
        """Whether an answer of status 200 or 206 may be what was asked for."""
        return head.status == PARTIAL

    def code(self, head: Head) -> str:
        """The short code of an error answer, or what is in its place; empty: there is none."""
        return ""

    async def list_page(self, prefix: str, *, token: str | None = None, limit: int = PAGE_OBJECTS, by_folder: bool = False) -> Page:
        """As the Protocol says."""
        answer = _PageAnswer(self._page)
        sign = await self.signer()
        target = self.listing(prefix, token, limit, by_folder=by_folder)
        head = await self._answer(self._request(sign, (target, {}), answer))
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
            body = Body(read, self._where, check=self._check, checksums=self.checksums)
            return self._request(sign, self.object(read), body, most_bytes=read.wanted.size_bytes + PAGE_BYTES, then=asked)

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

    def _page(self, answer: Collected) -> Page | None:
        """The page in an answer; None: the answer is of another status. Raises SourceUnavailable: it is no page."""
        if answer.head.status != OK:
            return None
        if answer.head.headers.get("content-encoding", "").strip().lower() not in ("", "identity"):
            raise self._where.unreachable(Unanswered("its answer has a Content-Encoding that was not asked for"))
        try:
            page = self.page_of(answer.content)
            self._check_page(page)
        except NO_ANSWER as error:
            text = f"{self.words} gave an answer that is not {self.owner}"
            raise SourceUnavailable(text, cause=f"its answers are not {self.owner}") from error
        return page

    def _check_page(self, page: Page) -> None:
        """Raise ValueError for what no cloud has. Small servers do not heed a smaller limit of rows."""
        names = (*page.folders, *(each.key for each in page.objects))
        longest = max((len(text.encode()) for text in (*names, *(each.etag for each in page.objects))), default=0)
        if len(names) > PAGE_OBJECTS or not all(names) or longest > self.most_name_bytes:
            raise ValueError("more rows than a page has, or a name or version that is none")
        if len(page.next_token or "") > _MOST_TOKEN_CHARACTERS or any(not 0 <= each.size_bytes < 2**63 for each in page.objects):
            raise ValueError("a token that is too long, or a size that is none")

    def _check(self, head: Head, read: Read) -> None:
        wanted, version = read.wanted, etag_of(head.headers.get(self.version))
        if wanted.etag and version != wanted.etag:
            if version:  # servers exist that ignore the condition of a request
                raise self._where.changed(wanted.key, f"another {self.version_name}")
            raise self._where.wrong(f"answered without the {self.version_name} of {wanted.key!r} that was listed")
        if not self.is_answer(head):
            raise self._where.other_range(wanted.key)

    def _refused(self, head: Head, key: str | None) -> AdapterError:
        code = self.code(head)
        return self._where.refused(head, code, key=key, kind=self.meanings.get(code))


class _PageAnswer(Collected):
    """An answer to a listing, read in the engine's thread: a thousand rows take 20 ms, in which the event loop would stand still."""

    def __init__(self, read: Callable[[Collected], Page | None]) -> None:
        super().__init__()
        self.page: Page | None = None
        self._read = read

    def end(self) -> None:
        """As `Sink`."""
        self.page = self._read(self)
