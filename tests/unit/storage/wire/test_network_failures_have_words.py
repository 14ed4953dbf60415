"""The root cause of a request that got no whole answer, under whatever a library has put over it."""

import http.client
import socket
import ssl

import pytest
from urllib3.exceptions import LocationParseError, MaxRetryError, ProxyError
from urllib3.util.ssl_match_hostname import CertificateError

from adapter.storage.wire.dialling import DeniedAddress
from adapter.storage.wire.metering import SlowHead, TooMuch, UnaskedEncoding
from adapter.storage.wire.names import SlowName
from adapter.storage.wire.network import CONNECT_TIMEOUT_SECONDS, READ_TIMEOUT_SECONDS, can_pass, network_words


def silent_handshake() -> TimeoutError:
    """What Python's ssl raises when nobody answers the handshake."""
    ours, theirs = socket.socketpair()
    ours.settimeout(0.01)
    with ours, theirs, pytest.raises(TimeoutError) as failed:
        ssl.create_default_context().wrap_socket(ours, server_hostname="store")
    return failed.value


def under_a_library(cause: BaseException) -> Exception:
    try:
        raise RuntimeError("no text of a library is quoted") from cause
    except RuntimeError as error:
        return error


def test_a_handshake_that_nobody_answers_ends_with_the_time_to_connect() -> None:
    """Not with the time to read, which is longer and begins later."""
    assert network_words(under_a_library(silent_handshake())) == f"its TLS handshake did not end within {CONNECT_TIMEOUT_SECONDS} s"


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        (TimeoutError("timed out"), f"no answer within {READ_TIMEOUT_SECONDS} s"),
        (ConnectionRefusedError(111, "Connection refused"), "the connection was refused"),
        (ConnectionResetError(104, "Connection reset by peer"), "the connection was cut"),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "its name cannot be resolved (there is no such name)"),
        (socket.gaierror(socket.EAI_AGAIN, "Try again"), "its name cannot be resolved (name servers cannot tell now)"),
        (socket.gaierror(socket.EAI_FAIL, "Non-recoverable failure"), "its name cannot be resolved"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (ValueError("hunter2"), "RuntimeError"),
    ],
)
def test_the_root_cause_is_told(cause: Exception, words: str) -> None:
    assert network_words(under_a_library(cause)) == words


STAYS = [
    TooMuch("an answer", 4 << 20), UnaskedEncoding(), DeniedAddress("127.0.0.1"), ssl.SSLCertVerificationError("x"), CertificateError("x"),
    socket.gaierror(socket.EAI_NONAME, "x"), LocationParseError("x"),
]  # fmt: skip
PASSES = [
    SlowHead(10), SlowName(3), socket.gaierror(socket.EAI_AGAIN, "x"), TimeoutError(), ConnectionRefusedError(), ssl.SSLError("x"),
    http.client.IncompleteRead(b""), OSError(113, "No route to host"),
]  # fmt: skip


@pytest.mark.parametrize("cause", STAYS, ids=repr)
def test_what_stays_is_not_repeated(cause: Exception) -> None:
    """An untrusted certificate, a name that does not exist, an address that is denied, a flood."""
    assert not can_pass(under_a_library(cause))


@pytest.mark.parametrize("cause", PASSES, ids=repr)
def test_what_can_pass_is(cause: Exception) -> None:
    """A name server that cannot tell now is no answer."""
    assert can_pass(under_a_library(cause))


def test_a_cause_is_found_however_a_library_keeps_it() -> None:
    """As its cause, its context, an argument, or in a field; a circle of causes ends."""
    cause = DeniedAddress("::1")
    words = "::1 may not be dialled for a request (REQUEST_ENDPOINTS_DENIED)"
    field = RuntimeError("x")
    field.inner_exception = cause  # type: ignore[attr-defined]  # as azure-core does
    circle = RuntimeError("x")
    circle.__cause__ = circle
    circle.args = (circle, cause)
    for error in (RuntimeError("x", cause), MaxRetryError(None, "/", cause), field, circle, under_a_library(cause)):  # type: ignore[arg-type]
        assert network_words(error) == words


def test_trouble_with_a_proxy_is_told_as_such() -> None:
    """The endpoint is not to blame, and the proxy's own words are not quoted."""
    refused = ProxyError("x", ConnectionRefusedError(111, "Connection refused"))
    assert network_words(refused) == "the connection was refused (on the way to the proxy)"
    no_tunnel = ProxyError("x", OSError("Tunnel connection failed: 403 hunter2"))
    assert network_words(no_tunnel) == "no tunnel was made (on the way to the proxy)"


def test_a_certificate_of_another_host_is_no_matter_of_trust() -> None:
    """OpenSSL raises the same for both."""
    mismatch = ssl.SSLCertVerificationError("x")
    mismatch.verify_code, mismatch.verify_message = 62, "Hostname mismatch"
    assert network_words(mismatch) == "its TLS certificate is for another host name"
