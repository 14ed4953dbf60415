"""
Network failures in words, and the timeouts behind them. One table for every client library.

Nothing that a library or a server says is quoted, except what the operating system and OpenSSL say.
"""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Iterator
from typing import TypeVar

from adapter.storage.wire.dialling import DeniedAddress
from adapter.storage.wire.metering import SlowHead, TooMuch, UnaskedEncoding
from adapter.storage.wire.names import SlowName

E = TypeVar("E", bound=BaseException)

CONNECT_TIMEOUT_SECONDS = 3
READ_TIMEOUT_SECONDS = 10
CUT = "the connection was cut"
_CAUSES: tuple[tuple[type[BaseException], str], ...] = (
    (ConnectionRefusedError, "the connection was refused"),
    (ssl.SSLError, "TLS failed; is the endpoint https?"),
    (TimeoutError, f"no answer within {READ_TIMEOUT_SECONDS} s"),
    (ConnectionError, CUT),
    (http.client.IncompleteRead, "its answer ended early"),
    (http.client.HTTPException, "its answer is not HTTP"),
)
_NO_SUCH_NAME = (socket.EAI_NONAME,)
_OTHER_HOST = (62, 64)
"""OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH."""
_FOR_ANOTHER = "its TLS certificate is for another host name"
_OURS = (TooMuch, UnaskedEncoding, DeniedAddress, SlowHead, SlowName)
"""Their texts are written here in wire, and quote nobody."""
_PROXY_ERRORS = {"ProxyError", "ProxyConnectionError"}
"""urllib3's and requests', and botocore's."""
_NO_TUNNEL = "Tunnel connection failed"
"""http.client's; what follows is the proxy's."""
_STAYS = (TooMuch, UnaskedEncoding, DeniedAddress, ssl.SSLCertVerificationError)
_WRONG_NAME, _WRONG_HOST = "LocationParseError", "CertificateError"
"""urllib3's, told by their names: libraries bring their own copies, and a start does not import urllib3."""


def network_words(error: BaseException) -> str:
    """The root cause of a request that got no whole answer."""
    chain = list(_chain(error))
    for cause in chain:
        if words := _exact_words(cause):
            return words
    names = {type(cause).__name__ for cause in chain}
    words = _common_words(chain, names)
    return f"{words} (on the way to the proxy)" if names & _PROXY_ERRORS else words


def can_pass(error: BaseException) -> bool:
    """
    Whether the same request may get an answer later.

    Not when the certificate is not trusted or of another host, the name does not exist, the address is denied, or the
    answer is larger than any honest one. Name servers that cannot tell now (EAI_AGAIN) can.
    """
    return not any(
        isinstance(cause, _STAYS)
        or type(cause).__name__ in (_WRONG_NAME, _WRONG_HOST)
        or (isinstance(cause, socket.gaierror) and cause.errno in _NO_SUCH_NAME)
        for cause in _chain(error)
    )


def root_of(error: BaseException, kind: type[E]) -> E | None:
    """The cause of this kind, if there is one: libraries wrap what wire raises."""
    return next((cause for cause in _chain(error) if isinstance(cause, kind)), None)


def _exact_words(cause: BaseException) -> str | None:
    """Of causes that say what was waited for, or what the bound was."""
    if isinstance(cause, _OURS):
        return str(cause)
    if isinstance(cause, ssl.SSLCertVerificationError):
        if getattr(cause, "verify_code", None) in _OTHER_HOST:
            return _FOR_ANOTHER
        return f"its TLS certificate is not trusted ({cause.verify_message}); a private CA goes into `certificate`"
    if type(cause).__name__ == _WRONG_HOST:
        return _FOR_ANOTHER
    if isinstance(cause, socket.gaierror):
        return _name_words(cause.errno)
    return "its name is not a host name" if type(cause).__name__ == _WRONG_NAME else None


def _common_words(chain: list[BaseException], names: set[str]) -> str:
    if any("ConnectTimeout" in name for name in names):
        return f"no connection within {CONNECT_TIMEOUT_SECONDS} s"
    if any(isinstance(cause, TimeoutError) and "handshake" in str(cause) for cause in chain):  # OpenSSL's words
        return f"its TLS handshake did not end within {CONNECT_TIMEOUT_SECONDS} s"
    for kind, words in _CAUSES:
        if any(isinstance(cause, kind) for cause in chain):
            return words
    if any(isinstance(cause, OSError) and str(cause).startswith(_NO_TUNNEL) for cause in chain):
        return "no tunnel was made"
    strerror = next((cause.strerror for cause in chain if isinstance(cause, OSError) and cause.strerror), None)
    return strerror or type(chain[0]).__name__


def _name_words(code: int | None) -> str:
    if code in _NO_SUCH_NAME:
        return "its name cannot be resolved (there is no such name)"
    if code == socket.EAI_AGAIN:
        return "its name cannot be resolved (name servers cannot tell now)"
    return "its name cannot be resolved"


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception, and all that it was raised for: libraries keep the cause as cause, as context, or as an argument."""
    seen: set[int] = set()
    found: list[BaseException | None] = [error]
    while found:
        cause = found.pop(0)
        if cause is None or id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        named = (getattr(cause, "reason", None), getattr(cause, "inner_exception", None), *cause.args)
        found += [cause.__cause__ or cause.__context__, *(each for each in named if isinstance(each, BaseException))]
