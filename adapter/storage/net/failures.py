"""
Why no whole answer came, in words. One table for all stores.

Nothing that a server says is quoted; of libcurl's texts only the reason for which OpenSSL refused a certificate.
"""

from __future__ import annotations

import os
import re
from typing import Any

import pycurl

CONNECT_SECONDS = 3
"""For name, connection and TLS handshake together."""
ANSWER_SECONDS = 10
"""For the whole head of an answer, and then between the bytes of its body."""
CUT = "the connection was cut"
_WEIRD_SERVER_REPLY, _PROXY, _TOO_LARGE = 8, 97, 100
"""Source: curl/curl.h, as the others that pycurl has no name for."""
_CAUSES = {
    pycurl.E_GOT_NOTHING: CUT,
    pycurl.E_SEND_ERROR: CUT,
    pycurl.E_RECV_ERROR: CUT,
    pycurl.E_PARTIAL_FILE: "its answer ended early",
    pycurl.E_SSL_CONNECT_ERROR: "TLS failed; is the endpoint https?",
    pycurl.E_URL_MALFORMAT: "its name is not a host name",
    _WEIRD_SERVER_REPLY: "its answer is not HTTP",
    pycurl.E_UNSUPPORTED_PROTOCOL: "its answer is not HTTP",
    pycurl.E_HTTP2: "its answer is not HTTP",
    pycurl.E_BAD_CONTENT_ENCODING: "its answer has an encoding that was not asked for",
    _TOO_LARGE: "its answer is not HTTP",
}
_PROXY_ERRORS = (pycurl.E_COULDNT_RESOLVE_PROXY, _PROXY)
_CERTIFICATE = re.compile(r"(?:certificate problem|verify result): ([\w ,'/-]{1,80}?)(?: \(\d+\))?$")
_NO_TUNNEL = 400
"""A proxy that makes no tunnel answers CONNECT with such a status, or with a higher one."""


class Unanswered(Exception):
    """No whole answer has come. The text is the cause, for people."""

    can_pass = True
    """Whether the same request may get an answer later."""
    was_connected = False
    """Whether the server took the connection."""


class UnansweredForGood(Unanswered):
    """The certificate is not trusted, the name does not exist."""

    can_pass = False


class TooMuch(UnansweredForGood):
    """The server sent more than the request may take."""

    def __init__(self, what: str, most_bytes: int) -> None:
        """`what`: `headers`, `an error`, `an answer`."""
        size = f"{most_bytes >> 20} MiB" if most_bytes >= 1 << 20 else f"{most_bytes >> 10} KiB"
        super().__init__(f"it sent {what} of more than {size}")


class DeniedAddress(UnansweredForGood):
    """The address may not be connected to for a request."""

    def __init__(self, address: str) -> None:
        super().__init__(f"{address} may not be dialled for a request (REQUEST_ENDPOINTS_DENIED)")


def silent() -> Unanswered:
    """Nothing has come for too long."""
    failure = Unanswered(f"no answer within {ANSWER_SECONDS} s")
    failure.was_connected = True
    return failure


def slow_head() -> Unanswered:
    """Some of the head has come, and it did not end in time."""
    return Unanswered(f"the headers of its answer did not end within {ANSWER_SECONDS} s")


def failure_of(curl: Any, code: int, text: str, *, uses_proxy: bool) -> Unanswered:
    """
    The meaning of a failed transfer, except for a name that was not found (`Names.why_unknown`).

    Args:
        curl: pycurl's handle, after the transfer.
        code: libcurl's result.
        text: libcurl's words.
        uses_proxy: whether the server is reached through one.
    """
    if code == pycurl.E_OPERATION_TIMEDOUT:
        failure = Unanswered(_late(curl))
    elif code == pycurl.E_PEER_FAILED_VERIFICATION:
        failure = UnansweredForGood(_untrusted(text))
    elif code == pycurl.E_COULDNT_CONNECT:
        number = int(curl.getinfo(pycurl.OS_ERRNO))
        failure = Unanswered("the connection was refused" if number == 111 else os.strerror(number) if number else "no connection")
    elif code == pycurl.E_RECV_ERROR and curl.getinfo(pycurl.HTTP_CONNECTCODE) >= _NO_TUNNEL:
        failure = Unanswered("no tunnel was made")
    else:
        failure = Unanswered(_CAUSES.get(code, f"the transfer failed (libcurl {code})"))
        failure.was_connected = bool(curl.getinfo(pycurl.PRETRANSFER_TIME))
    if uses_proxy and (code in _PROXY_ERRORS or not curl.getinfo(pycurl.PRETRANSFER_TIME)):
        return type(failure)(f"{failure} (on the way to the proxy)")
    return failure


def unresolved() -> Unanswered:
    """Name servers said nothing."""
    return Unanswered(f"its name was not resolved within {CONNECT_SECONDS} s (are the name servers away?)")


def _late(curl: Any) -> str:
    if not curl.getinfo(pycurl.NAMELOOKUP_TIME):
        return str(unresolved())
    if not curl.getinfo(pycurl.CONNECT_TIME):
        return f"no connection within {CONNECT_SECONDS} s"
    return f"its TLS handshake did not end within {CONNECT_SECONDS} s"


def _untrusted(text: str) -> str:
    found = _CERTIFICATE.search(text)
    if found is None:
        return "its TLS certificate is for another host name"
    return f"its TLS certificate is not trusted ({found[1]}); a private CA goes into `certificate`"
