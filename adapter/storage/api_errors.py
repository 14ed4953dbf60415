"""
What a failure of a store with an HTTP API of its own means, and its words: Google Cloud Storage and Azure.

Status, the API's short error code and the place are named; the server's message never is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from adapter.errors import AdapterError, InvalidRequest, SourceChanged, SourceDenied, SourceNotFound, SourceUnavailable
from adapter.storage.network import network_words

_CODE = re.compile(r"[A-Za-z][A-Za-z0-9.]{0,63}")
_DENIED_CODES = frozenset({"PublicAccessNotPermitted"})


@dataclass(frozen=True, kw_only=True)
class Where:
    """The bucket or container that was asked, as error texts name it."""

    what: str
    """`bucket 'b'`"""
    host: str
    label: str
    """The storage config that led here."""
    credentials: str
    """What requests are made with: `the service account key`, `no credentials`…"""
    is_unsigned: bool

    @property
    def words(self) -> str:
        """`bucket 'b' at host`."""
        return f"{self.what} at {self.host}"

    def refused(self, status: int, code: str, key: str | None) -> AdapterError:
        """
        The meaning of an error answer.

        Args:
            status: HTTP status.
            code: the API's short code, or nothing.
            key: the listed object that was read; None for a listing.
        """
        named = f"{code}, HTTP {status}" if _CODE.fullmatch(code) else f"HTTP {status}"
        if status in (401, 403) or code in _DENIED_CODES:
            return SourceDenied(f"{self.words} denied access {self._made_with()} ({named})")
        if key is not None and status in (404, 412, 416):
            what = "is gone" if status == 404 else "was replaced"
            return SourceChanged(f"{key!r} {what} since it was listed ({self.words}, {named})")
        if status == 404:
            return SourceNotFound(f"there is no {self.words} ({named})")
        if status >= 500 or status in (408, 429):
            return SourceUnavailable(f"{self.words} cannot be read now ({named})")
        return InvalidRequest(f"{self.words} refused the request ({named})")

    def unreachable(self, error: BaseException) -> SourceUnavailable:
        """The meaning of a request that got no whole answer."""
        return SourceUnavailable(f"{self.words} cannot be reached: {network_words(error)}")

    def no_credentials(self, reason: str) -> SourceDenied:
        """Whoever gives out tokens gave none."""
        return SourceDenied(f"no credentials for {self.words}: {self.credentials} of {self.label} did not work ({reason})")

    def _made_with(self) -> str:
        if self.is_unsigned:
            return f"without credentials: those of {self.label} do not belong to the place that storage_params names"
        return f"with {self.credentials} of {self.label}"
