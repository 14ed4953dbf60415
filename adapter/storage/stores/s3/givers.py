"""Those who give out credentials (STS, SSO, an instance, a container), and what goes wrong with them that can pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from botocore import exceptions as boto
from botocore.utils import get_environ_proxies

from adapter.storage.wire.botocore_session import CuttableSession
from adapter.storage.wire.dialling import FREE

if TYPE_CHECKING:
    from botocore.awsrequest import AWSPreparedRequest, AWSResponse

_AFTER_CONNECTING = (boto.ReadTimeoutError, boto.ConnectionClosedError)
_FIRST_AWAY_STATUS, _TOO_MANY = 500, 429


@dataclass(frozen=True)
class Trouble:
    """What can pass, of one who gives out credentials."""

    host: str
    error: Exception | None
    """None: there was an answer."""
    status: int
    retry_after: str | None


class Lines:
    """Connections to those who give out credentials, and the last trouble with one of them."""

    def __init__(self, verify: bool | str) -> None:
        self._verify = verify
        self._sessions: dict[object, CuttableSession] = {}
        self.trouble: Trouble | None = None

    def session(self, timeout: object, proxies: dict[str, str]) -> CuttableSession:
        """One for each timeout and set of proxies."""
        key = (timeout, *sorted(proxies.items()))
        if key not in self._sessions:
            made = CuttableSession(FREE, verify=self._verify, proxies=proxies, timeout=timeout, max_pool_connections=1)
            self._sessions.setdefault(key, made)
        return self._sessions[key]

    def close(self) -> None:
        """Close idle ones."""
        for session in list(self._sessions.values()):
            session.close()


class Line:
    """How one kind of them is reached."""

    def __init__(self, lines: Lines, timeout: object, *, has_proxies: bool = True, is_optional: bool = False) -> None:
        """`is_optional`: most pods have nobody there, which is no trouble."""
        self._lines = lines
        self._timeout = timeout
        self._has_proxies = has_proxies
        self._is_optional = is_optional

    def send(self, request: AWSPreparedRequest) -> AWSResponse:
        """The whole answer."""
        url, host = request.url, urlsplit(request.url).netloc
        session = self._lines.session(self._timeout, get_environ_proxies(url) if self._has_proxies else {})
        try:
            answer = session.send(request)
        except (boto.HTTPClientError, boto.ConnectionError) as error:
            # an instance whose hops are limited lets a pod ask for a token (PUT), and never answers
            if not self._is_optional or (isinstance(error, _AFTER_CONNECTING) and request.method == "GET"):
                self._lines.trouble = Trouble(host, error, 0, None)
            raise
        if answer.status_code >= _FIRST_AWAY_STATUS or answer.status_code == _TOO_MANY:
            self._lines.trouble = Trouble(host, None, answer.status_code, answer.headers.get("Retry-After"))
        return answer
