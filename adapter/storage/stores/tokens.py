"""Those who give out bearer tokens, when they give none that can come later: one meaning for every cloud that has them."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import urlsplit

from adapter.errors import AdapterError, SourceUnavailable
from adapter.storage.stores.answers import Where
from adapter.storage.wire.nonsense import is_nonsense

TOKEN_BYTES = 256 * 1024
"""Most that may come from whoever gives out tokens, for one token: up to three answers of 2 KiB, and headers."""


class TokensAwayError(Exception):
    """Whoever gives out tokens gave none, which can pass. Its cause, if it has one, is of the network."""

    def __init__(self, url: str, *, status: int | None = None, retry_after: str | None = None) -> None:
        self.url = url
        self.place = urlsplit(url).netloc.rpartition("@")[2]
        self.status = status
        self.retry_after = retry_after
        super().__init__(self.place)


def tokens_away(where: Where, error: TokensAwayError, cloud: str) -> AdapterError:
    """The meaning of tokens that did not come, for the place that they are for. `cloud`: whose they are: `Google's`."""
    tokens = replace(where, words=f"{error.place}, which gives out tokens for {where.words},", is_plain_http=False)
    if error.status is not None:
        return tokens.refused(error.status, retry_after=error.retry_after)
    cause = error.__cause__ or error
    return not_of(cloud, tokens) if is_nonsense(cause) else tokens.unreachable(cause)


def not_of(cloud: str, where: Where) -> SourceUnavailable:
    """An answer that came whole, and in another language."""
    return SourceUnavailable(f"{where.words} gave an answer that is not {cloud}", cause=f"its answers are not {cloud}")
