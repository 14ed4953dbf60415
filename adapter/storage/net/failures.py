"""
Why no whole answer came, in words. One table for all stores.

Nothing that a server says is quoted; of libcurl's texts only the reason for which OpenSSL refused a certificate.
"""

from __future__ import annotations

import os
import re
import socket
from typing import Any

import pycurl

CONNECT_SECONDS = 3
"""For name, connection and TLS handshake together."""
ANSWER_SECONDS = 10
"""For the whole head of an answer, and then between the bytes of its body."""
CUT = "the connection was cut"
_UNRESOLVED = f"its name was not resolved within {CONNECT_SECONDS} s (are the name servers away?)"
_NAMES_AWAY = "its name cannot be resolved (name servers cannot tell now)"
_NOT_HTTP = "its answer is not HTTP"
_WEIRD_SERVER_REPLY, _PROXY, _TOO_LARGE = 8, 97, 100
"""Source: curl/curl.h, as the others that pycurl has no name for."""
_CAUSES = {
    pycurl.E_GOT_NOTHING: CUT,
    pycurl.E_SEND_ERROR: CUT,
    pycurl.E_RECV_ERROR: CUT,
    pycurl.E_PARTIAL_FILE: "its answer ended early",
    pycurl.E_SSL_CONNECT_ERROR: "TLS failed; is the endpoint https?",
    pycurl.E_URL_MALFORMAT: "its name is not a host name",
    _WEIRD_SERVER_REPLY: _NOT_HTTP,
    pycurl.E_UNSUPPORTED_PROTOCOL: _NOT_HTTP,
    pycurl.E_HTTP2: _NOT_HTTP,
    pycurl.E_BAD_CONTENT_ENCODING: "its answer has an encoding that was not asked for",
    _TOO_LARGE: _NOT_HTTP,
}
_CERTIFICATE = re.compile(r"(?:certificate problem|verify result): ([\w ,'/-]{1,80}?)(?: \(\d+\))?$")


class Unanswered(Exception):
    """No whole answer has come. The text is the cause, for people."""

    def __init__(self, cause: str, *, can_pass: bool = True, was_connected: bool = False) -> None:
        """
        Args:
            cause: in words.
            can_pass: whether the same request may get an answer later.
            was_connected: whether the server took the connection.
        """
        super().__init__(cause)
        self.can_pass = can_pass
        self.was_connected = was_connected


class UnknownName(Unanswered):
    """libcurl found no address, and does not tell why (the engine asks once more)."""


class TooMuch(Unanswered):
    """The server sent more than the request may take."""

    def __init__(self, what: str, most_bytes: int) -> None:
        """`what`: `headers`, `an error`, `an answer`."""
        size = f"{most_bytes >> 20} MiB" if most_bytes >= 1 << 20 else f"{most_bytes >> 10} KiB"
        super().__init__(f"it sent {what} of more than {size}", can_pass=False)


class DeniedAddress(Unanswered):
    """The address may not be connected to for a request."""

    def __init__(self, address: str) -> None:
        super().__init__(f"{address} may not be dialled for a request (REQUEST_ENDPOINTS_DENIED)", can_pass=False)


def unresolved(error: OSError | UnicodeError) -> Unanswered:
    """Why the system's resolver, or the time, has given no address of a name."""
    if isinstance(error, TimeoutError):
        return Unanswered(_UNRESOLVED)
    if not isinstance(error, socket.gaierror):
        return Unanswered("its name is not a host name", can_pass=False)
    if error.errno == socket.EAI_NONAME:
        return Unanswered("its name cannot be resolved (there is no such name)", can_pass=False)
    return Unanswered(_NAMES_AWAY if error.errno == socket.EAI_AGAIN else "its name cannot be resolved")


def failure_of(curl: Any, code: int, text: str, *, uses_proxy: bool) -> Unanswered:
    """
    The meaning of a failed transfer.

    Args:
        curl: pycurl's handle, after the transfer.
        code: libcurl's result.
        text: libcurl's words.
        uses_proxy: whether the server is reached through one.
    """
    if code in (pycurl.E_COULDNT_RESOLVE_HOST, pycurl.E_COULDNT_RESOLVE_PROXY):
        return UnknownName(_NAMES_AWAY)
    was_connected = code != pycurl.E_COULDNT_CONNECT and bool(curl.getinfo(pycurl.PRETRANSFER_TIME))
    cause = _cause(curl, code, text)
    if uses_proxy and (code == _PROXY or not was_connected):
        cause += " (on the way to the proxy)"
    return Unanswered(cause, can_pass=code != pycurl.E_PEER_FAILED_VERIFICATION, was_connected=was_connected)


def _cause(curl: Any, code: int, text: str) -> str:
    if code == pycurl.E_OPERATION_TIMEDOUT:
        if not curl.getinfo(pycurl.NAMELOOKUP_TIME):
            return _UNRESOLVED
        what = "its TLS handshake did not end" if curl.getinfo(pycurl.CONNECT_TIME) else "no connection"
        return f"{what} within {CONNECT_SECONDS} s"
    if code == pycurl.E_PEER_FAILED_VERIFICATION:
        found = _CERTIFICATE.search(text)
        problem = "is for another host name" if found is None else f"is not trusted ({found[1]}); a private CA goes into `certificate`"
        return f"its TLS certificate {problem}"
    if code == pycurl.E_COULDNT_CONNECT:
        number = int(curl.getinfo(pycurl.OS_ERRNO))
        return "the connection was refused" if number == 111 else os.strerror(number) if number else "no connection"
    if code == pycurl.E_RECV_ERROR and curl.getinfo(pycurl.HTTP_CONNECTCODE) >= 400:
        return "no tunnel was made"
    return _CAUSES.get(code, f"the transfer failed (libcurl {code})")
