"""Bearer tokens of one identity: one caller asks for the next one, the others wait for the same answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from adapter.errors import AdapterError, SourceUnavailable
from adapter.storage.net.failures import Unanswered
from adapter.storage.net.messages import Head
from adapter.storage.stores.answers import Where
from adapter.waits import instead

TOKEN_BYTES = 256 * 1024
"""Most that an answer with a token may have: honest ones have 2 KiB."""
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
    ends_at: float
    """Seconds since 1970."""

    def __repr__(self) -> str:
        return "<token>"


class Tokens:
    """Of one identity, for one event loop."""

    def __init__(self, ask: Callable[[], Awaitable[Token]], *, early_seconds: float = _EARLY_SECONDS) -> None:
        """
        Args:
            ask: gets the next token; what it raises, each caller gets.
            early_seconds: before its end a token is renewed.
        """
        self._ask = ask
        self._early_seconds = early_seconds
        self._token: Token | None = None
        self._asking: asyncio.Task[Token] | None = None
        self._waiting = 0
        self._giver = ""

    def asks(self, host: str) -> None:
        """This giver is asked now. From any thread."""
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
            return await self._ask()
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
