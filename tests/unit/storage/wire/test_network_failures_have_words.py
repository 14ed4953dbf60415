"""The root cause of a request that got no whole answer, under whatever a library has put over it."""

import socket
import ssl

import pytest

from adapter.storage.wire.network import CONNECT_TIMEOUT_SECONDS, READ_TIMEOUT_SECONDS, network_words


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
        (socket.gaierror(-2, "Name or service not known"), "its name cannot be resolved"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (ValueError("hunter2"), "RuntimeError"),
    ],
)
def test_the_root_cause_is_told(cause: Exception, words: str) -> None:
    assert network_words(under_a_library(cause)) == words
