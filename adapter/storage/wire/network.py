"""
Network failures in words, and the timeouts behind them. One table for every client library.

Nothing that a library or a server says is quoted, except what the operating system and OpenSSL say.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator

CONNECT_TIMEOUT_SECONDS = 3
READ_TIMEOUT_SECONDS = 10
CUT = "the connection was cut"
_CAUSES: tuple[tuple[type[BaseException], str], ...] = (
    (socket.gaierror, "its name cannot be resolved"),
    (ConnectionRefusedError, "the connection was refused"),
    (ssl.SSLError, "TLS failed; is the endpoint https?"),
    (TimeoutError, f"no answer within {READ_TIMEOUT_SECONDS} s"),
    (ConnectionError, CUT),
)


def network_words(error: BaseException) -> str:
    """The root cause of a request that got no whole answer."""
    chain = list(_chain(error))
    names = {type(cause).__name__ for cause in chain}
    for cause in chain:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its TLS certificate is not trusted ({cause.verify_message}); a private CA goes into `certificate`"
    if "CertificateError" in names:
        return "its TLS certificate is for another host name"
    if any("ConnectTimeout" in name for name in names):
        return f"no connection within {CONNECT_TIMEOUT_SECONDS} s"
    if any(isinstance(cause, TimeoutError) and "handshake" in str(cause) for cause in chain):  # OpenSSL's words
        return f"its TLS handshake did not end within {CONNECT_TIMEOUT_SECONDS} s"
    for kind, words in _CAUSES:
        if any(isinstance(cause, kind) for cause in chain):
            return words
    strerror = next((cause.strerror for cause in chain if isinstance(cause, OSError) and cause.strerror), None)
    return strerror or type(error).__name__


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
