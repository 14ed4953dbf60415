"""
What an answer of a store means, and its words: the one table of HTTP statuses.

Status, the store's short error code and the place are named; what a server says never is, for it can
echo a key or a signature.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from adapter.errors import AdapterError, InvalidRequest, SourceChanged, SourceDenied, SourceNotFound, SourceUnavailable
from adapter.storage.net.failures import CUT, DeniedAddress, TooMuch, Unanswered

USER_AGENT = "modelmesh-triton-adapter"
"""There are servers that refuse requests without one."""
GONE = (404, 410)
REDIRECTS = (301, 302, 303, 307, 308)
_DENIED = (401, 403, 407)
_PASSING = (408, 425, 429)
_YEAR_SECONDS = 366 * 24 * 3600.0
_CODE = re.compile(r"[A-Za-z][A-Za-z0-9.]{0,63}")


@dataclass(frozen=True, kw_only=True)
class Where:
    """What was asked, as error texts name it."""

    words: str
    """`bucket 'b' at host:port`"""
    label: str
    """The storage config that led here."""
    credentials: str
    """What requests are made with: `the service account key`, `no credentials`…"""
    is_plain_http: bool
    is_unsigned: bool

    def refused(
        self, status: int, code: str = "", *, key: str | None = None, kind: type[AdapterError] | None = None, retry_after: str | None = None
    ) -> AdapterError:
        """
        The meaning of an error answer.

        Args:
            status: HTTP status.
            code: the store's short error code, or whatever it has in its place.
            key: the listed object that was read; None for a listing.
            kind: what the code means, where it says more than the status does.
            retry_after: the answer's header of that name.
        """
        is_code = _CODE.fullmatch(code) is not None
        named = f"{code}, HTTP {status}" if is_code else f"HTTP {status}"
        kind = kind or _kind_of(status, is_listed=key is not None)
        if kind is SourceDenied:
            return SourceDenied(f"{self.words} denied access {self._made_with()} ({named})")
        if kind is SourceChanged and key is not None:
            return self.changed(key, named, "has gone" if status in GONE else "was replaced")
        if kind is SourceNotFound:
            return SourceNotFound(f"there is no {self.words} ({named})")
        if kind is SourceUnavailable:
            return SourceUnavailable(f"{self.words} cannot be read now ({named})", retry_after_seconds=_seconds(retry_after), cause=named)
        return InvalidRequest(f"{self.words} refused the request ({named}){'' if is_code else self._hint}")

    def unreachable(self, failure: Unanswered) -> AdapterError:
        """The meaning of a request that got no whole answer."""
        cause = str(failure)
        if isinstance(failure, DeniedAddress):
            return InvalidRequest(f"{self.words} cannot be asked: {cause}; storage_params may not name this endpoint")
        problem = "cannot be used" if isinstance(failure, TooMuch) else "cannot be reached"
        hint = self._hint if cause == CUT else ""
        return SourceUnavailable(f"{self.words} {problem}: {cause}{hint}", can_pass=failure.can_pass, cause=cause)

    def wrong(self, what: str) -> SourceUnavailable:
        """An answer that is not what was asked for, which can pass: `ended the body of 'k' 5 bytes early`."""
        return SourceUnavailable(f"{self.words} {what}")

    def other_range(self, key: str) -> SourceUnavailable:
        """The body has other bytes than the bytes that were asked for."""
        return self.wrong(f"did not answer the range of {key!r} that was asked for")

    def ended_early(self, key: str, missing: int) -> SourceUnavailable:
        """A body without its last bytes."""
        return SourceUnavailable(f"{self.words} ended the body of {key!r} {missing} bytes early", cause="its answers end early")

    def changed(self, key: str, why: str, what: str = "was replaced") -> SourceChanged:
        """The object is not the listed one. `why`: `another ETag`."""
        return SourceChanged(f"{key!r} {what} after the listing ({self.words}, {why})")

    def _made_with(self) -> str:
        if self.is_unsigned:
            return f"without credentials: the credentials of {self.label} do not belong to the place that storage_params names"
        return f"with {self.credentials} of {self.label}"

    @property
    def _hint(self) -> str:
        """A port for https answers plain http with a bare 400, or hangs up."""
        return "; is the endpoint https?" if self.is_plain_http else ""


def etag_of(text: str | None) -> str:
    """An ETag without its quotes and its mark of weakness; empty where there is none."""
    return (text or "").removeprefix("W/").strip('"')


def is_passing(status: int) -> bool:
    """Whether the same request may be answered another time."""
    return status >= 500 or status in _PASSING


def _kind_of(status: int, *, is_listed: bool) -> type[AdapterError]:
    if status in _DENIED:
        return SourceDenied
    if status in GONE:
        return SourceChanged if is_listed else SourceNotFound
    if is_listed and status in (412, 416):
        return SourceChanged
    return SourceUnavailable if is_passing(status) else InvalidRequest


def _seconds(retry_after: str | None) -> float | None:
    """A `Retry-After` in seconds, at most a year; its other form, a date, needs a clock that is right."""
    text = (retry_after or "").strip()
    return min(float(text), _YEAR_SECONDS) if text.isascii() and text.isdecimal() else None
