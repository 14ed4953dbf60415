"""
A bucket of one of the clouds: signs and sends what a store's own class says, and checks the answers.

The only place where the languages of the clouds, which are pure functions, meet the network. Of the tokens of one
identity, one caller asks for the next one, and the others wait for the same answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar
from urllib.parse import quote, urlencode, urlsplit
from xml.etree.ElementTree import ParseError

from adapter.errors import AdapterError, SourceDenied, SourceUnavailable
from adapter.storage.bucket import PAGE_OBJECTS, Page, Read
from adapter.storage.net.failures import Unanswered
from adapter.storage.net.messages import FREE, TOKEN_BYTES, Access, Guard, Head, Request, Trust, proxy_for
from adapter.storage.secret.merging import StorageConfig
from adapter.storage.stores.answers import OK, PARTIAL, USER_AGENT, Body, Checksums, Where, code_in, etag_of, is_passing
from adapter.storage.stores.clients import Connection, Means
from adapter.waits import instead
from adapter.workers import Stop

PAGE_BYTES = 4 * 1024 * 1024
"""Most that an answer to a listing of 1,000 keys may have; see the stores for what a key can take."""
_MOST_TOKEN_CHARACTERS = 8 * 1024
"""Tokens hold a key, in an encoding of the server's own, and go back in a URL."""
NO_ANSWER = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, ParseError)
"""What readers of an answer raise that is in another language."""
NEVER = 1e12
"""When what does not end ends."""
_EARLY_SECONDS = 300
"""A token is renewed so long before it ends."""


@dataclass(frozen=True)
class Token:
    """What proves who we are, or nothing where none is needed. Never shown."""

    value: Any = field(repr=False)
    """As the store's `sign` takes it."""
    words: str = "the credentials"
    """For people: what requests are made with."""
    ends_at: float = NEVER
    """Seconds since 1970."""
    place: ClassVar[str] = ""
    """As `Tokens`."""

    async def get(self) -> Token:
        """As `Tokens`, for one that does not end."""
        return self


class NoCredentialsError(Exception):
    """This identity gets no credentials. The text is the reason, with `{label}` for the storage config."""


@dataclass(eq=False)
class TokensAwayError(Exception):
    """The giver of tokens, or of other credentials, gave none, which can pass."""

    answer: Unanswered | Head | None = None
    """Why there was none, or the one that refused; None: it was in another language."""
    code: str = ""
    """Of an answer that refused."""


class Tokens:
    """Those of one identity, for one event loop, and the requests for the next one."""

    def __init__(self, ask: Callable[[Tokens], Token], means: Means, trust: Trust, guard: Guard = FREE) -> None:
        """
        Args:
            ask: gets the next token by `send`, in a thread; what it raises, each caller gets.
            means: sends its requests.
            trust: of these.
            guard: of these.
        """
        self.stop = Stop()
        """Of the thread."""
        self.place = self.path = ""
        """What was asked last; the place is host and port."""
        self._ask, self._means, self._trust, self._guard = ask, means, trust, guard
        self._token: Token | None = None
        self._asking: asyncio.Task[Token] | None = None
        self._waiting = 0

    def __str__(self) -> str:
        """What those that wait for a token wait for."""
        return f"an answer of {self.place}, which gives out credentials" if self.place else "credentials"

    def send(
        self, method: str, url: str, headers: Mapping[str, str], body: str | bytes | None = None, *, uses_proxies: bool = True
    ) -> Head:
        """The whole answer. Blocks, until the stop. Raises TokensAwayError: there is none, or one that can pass."""
        _, self.place, self.path, *_ = urlsplit(url)
        access = Access(self._trust, self._guard, proxy_for(url) if uses_proxies else "")
        content, given = body.encode() if isinstance(body, str) else body, {"Accept-Encoding": "identity", **headers}
        request = Request(url, given, access, TOKEN_BYTES, method=method, body=content)
        asked = asyncio.run_coroutine_threadsafe(self._means.engine.fetch(request), self._loop)
        try:
            with self.stop.waking(asked.cancel):
                head = asked.result()
        except Unanswered as failure:
            raise TokensAwayError(failure) from failure
        if is_passing(head.status):
            raise TokensAwayError(head)
        return head

    async def get(self) -> Token:
        """One that is valid for some minutes. Cancelled, it leaves the request for one to those that wait as well."""
        if self._token is not None and self._token.ends_at - time.time() >= _EARLY_SECONDS:
            return self._token
        asking = self._asking = self._asking or asyncio.create_task(self._asked())
        self._waiting += 1
        try:
            with instead(self):
                return await asyncio.shield(asking)
        finally:
            self._waiting -= 1
            if not self._waiting and not asking.done():
                asking.cancel()

    async def _asked(self) -> Token:
        def ask(stop: Stop) -> Token:
            self.stop = stop
            return self._ask(self)

        self._loop = asyncio.get_running_loop()
        try:
            self._token = await self._means.asking.run(ask)
            return self._token
        finally:
            self._asking = None


class CloudBucket:
    """One bucket: a subclass for each cloud knows its language. See `Bucket` for the contract."""

    kind = ""
    owner: ClassVar[str]
    """For people, of answers: `Google's`."""
    query: ClassVar[Sequence[tuple[str, str]]]
    """Of each listing."""
    limit: ClassVar[str]
    """Of a listing's query: how many rows a page has."""
    most_rows: ClassVar[int] = PAGE_OBJECTS
    """To ask for."""
    continuation: ClassVar[str]
    """Of a listing's query: where the page before has ended."""
    version: ClassVar[str] = "etag"
    """Header of an answer that has the version of an object, in lower case."""
    version_name: ClassVar[str] = "ETag"
    """For people."""
    most_name_bytes: ClassVar[int] = 4096
    """Of a key in UTF-8, and of a version."""
    meanings: ClassVar[Mapping[str, type[AdapterError]]] = {}
    """Of the error codes that say more than their status."""
    listing = ""
    """Path of listings below the bucket's base."""
    page_of: Callable[[bytes], Page]
    """The page in an answer of status 200. Pure. Raises one of `NO_ANSWER`: it is none."""
    object: Callable[[Read], tuple[str, Mapping[str, str]]]
    """Target below the base, and headers, for what is missing of a read, of the version that was listed. Pure."""
    sign: Callable[[Any, str, str, Mapping[str, str]], tuple[str, Mapping[str, str]]]
    """What is to be sent: the value of a token, method, URL and headers → URL and headers. Pure but for the time."""
    checksums: Checksums
    """Of the whole object, from the headers of the answer to a read. Pure."""

    def __init__(
        self, connection: Connection, means: Means, tokens: Token | Tokens, config: StorageConfig, *, place: str, base: str, words: str
    ) -> None:
        """
        Args:
            connection: of the config.
            means: sends the requests.
            tokens: who we are.
            config: that names the bucket.
            place: as `Bucket`.
            base: URL of the bucket, without a slash at its end.
            words: as `Bucket`.
        """
        self.endpoint, self.place, self.words = connection.host, place, words
        self._connection, self._means, self._tokens = connection, means, tokens
        self._where = Where(words, config, base)
        self._turn_to(base)

    async def list_page(self, prefix: str, *, token: str | None = None, limit: int = PAGE_OBJECTS, by_folder: bool = False) -> Page:
        """As the Protocol says."""
        fields = {**dict(self.query), "prefix": prefix, self.limit: str(min(limit, self.most_rows))}
        fields |= ({"delimiter": "/"} if by_folder else {}) | ({self.continuation: token} if token else {})
        target = f"{self.listing}?{urlencode(sorted(fields.items()), quote_via=quote, safe='~')}"
        pages = []

        def parse(head: Head) -> None:  # in the engine's thread: a thousand rows take 20 ms
            if head.status == OK:
                pages.append(self._page(head))

        head = await self._answer(self._request(await self._proof(), (target, {}), then=parse))
        if not pages:
            raise self._refused(head, None)
        return pages[0]

    async def read(self, reads: Sequence[Read]) -> None:
        """As the Protocol says. What is asked next is made in the engine's thread."""
        proof, left, key = await self._proof(), (read for read in reads if read.missing), ""

        def asked(_: Head) -> Request | None:
            nonlocal key
            if (read := next(left, None)) is None:
                return None
            key, most = read.wanted.key, read.wanted.size_bytes + PAGE_BYTES
            body = Body(read, self._where, self._check, self.checksums)
            return self._request(proof, self.object(read), most_bytes=most, sink=body, written_bytes=reads[0].written_bytes, then=asked)

        if (first := asked(Head())) is None:
            return
        head = await self._answer(first)
        if head.status not in (OK, PARTIAL):
            raise self._refused(head, key)

    def _turn_to(self, base: str) -> None:
        self._base = base
        self._access = Access(self._connection.trust, self._means.guard_of(self._connection), proxy_for(base))

    async def _proof(self) -> Any:
        """What requests are signed with now. Raises SourceError: there are no credentials."""
        try:
            token = await self._tokens.get()
        except TokensAwayError as away:
            raise self._away(away) from away
        except NoCredentialsError as error:
            raise SourceDenied(f"no credentials for {self.words}: {str(error).format(label=self._where.config.label)}") from error
        self._where = replace(self._where, credentials=token.words)
        return token.value

    def _away(self, away: TokensAwayError) -> AdapterError:
        giver = replace(self._where, words=f"{self._tokens.place}, which gives out credentials for {self.words},", url="")
        if isinstance(away.answer, Unanswered):
            error = giver.unreachable(away.answer)
        elif away.answer is not None:
            error = giver.refused(away.answer, away.code, kind=SourceUnavailable)
        else:
            error = giver.wrong(f"gave an answer that is not {self.owner}")
        if isinstance(error, SourceUnavailable):
            error.is_of_giver = True
        return error

    def _request(
        self, proof: Any, wanted: tuple[str, Mapping[str, str]], *, method: str = "GET", most_bytes: int = PAGE_BYTES, **how: Any
    ) -> Request:
        """A signed one for a target below the base, with headers. Arguments as of `Request`."""
        target, headers = wanted
        given = {"User-Agent": USER_AGENT, "Accept-Encoding": "identity", **headers}
        return Request(*self.sign(proof, method, f"{self._base}{target}", given), self._access, most_bytes, method=method, **how)

    async def _answer(self, request: Request) -> Head:
        try:
            return await self._means.engine.fetch(request)
        except Unanswered as failure:
            raise self._where.unreachable(failure) from failure

    def _page(self, answer: Head) -> Page:
        """The page in an answer. Raises SourceUnavailable: it is none."""
        if answer.headers.get("content-encoding", "").strip().lower() not in ("", "identity"):
            raise self._where.unreachable(Unanswered("its answer has a Content-Encoding that was not asked for"))
        try:
            page = self.page_of(answer.body)
            names = (*page.folders, *(each.key for each in page.objects))
            longest = max((len(text.encode()) for text in (*names, *(each.etag for each in page.objects))), default=0)
            if len(names) > PAGE_OBJECTS or not all(names) or longest > self.most_name_bytes:
                raise ValueError("more rows than a page has (small servers ignore a smaller limit), or a name that is not valid")
            if len(page.next_token or "") > _MOST_TOKEN_CHARACTERS or any(not 0 <= each.size_bytes < 2**63 for each in page.objects):
                raise ValueError("a token that is too long, or a size that is not a number")
        except NO_ANSWER as error:
            raise self._where.wrong(f"gave an answer that is not {self.owner}") from error
        return page

    def _check(self, head: Head, read: Read) -> None:
        wanted, version = read.wanted, etag_of(head.headers.get(self.version))
        if wanted.etag and version != wanted.etag:
            if version:  # servers exist that ignore the condition of a request
                raise self._where.changed(wanted.key, f"another {self.version_name}")
            raise self._where.wrong(f"answered without the {self.version_name} of {wanted.key!r} that was listed")

    def _refused(self, head: Head, key: str | None) -> AdapterError:
        code = code_in(head)
        return self._where.refused(head, code, key=key, kind=self.meanings.get(code))
