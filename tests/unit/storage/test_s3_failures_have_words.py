"""The tables of S3's failures, without a network: what an exception chain or an error code means."""

from __future__ import annotations

import socket
import ssl

import pytest

from adapter.errors import InvalidRequest, SourceChanged, SourceDenied, SourceNotFound, SourceUnavailable
from adapter.storage.s3_errors import Where, no_credentials, refused, unreachable


def where(**fields):
    base = {"host": "h:9000", "bucket": "b", "region": "r", "label": "storage config 'k'", "is_plain_http": False, "is_unsigned": False}
    return Where(**base | fields)


class ConnectTimeoutError(Exception):
    """As urllib3 and botocore name it."""


class CertificateError(Exception):
    """As urllib3 names another host's certificate."""


def caused(outer: BaseException, *inner: BaseException) -> BaseException:
    """A chain, as libraries make it."""
    error = outer
    for cause in inner:
        error.__cause__ = cause
        error = cause
    return outer


def untrusted() -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError("x")
    error.verify_message = "self-signed certificate"
    return error


CHAINS = [
    (caused(RuntimeError(), socket.gaierror(-2, "x")), "its name cannot be resolved"),
    (caused(RuntimeError(), OSError(), ConnectionRefusedError(111, "x")), "the connection was refused"),
    (caused(RuntimeError(), untrusted()),
     "its TLS certificate is not trusted (self-signed certificate); a private CA goes into `certificate`"),
    (caused(RuntimeError(), CertificateError()), "its TLS certificate is for another host name"),
    (caused(RuntimeError(), ssl.SSLError(1, "x")), "TLS failed; is the endpoint https?"),
    (caused(ConnectTimeoutError(), TimeoutError()), "no connection within 3 s"),
    (caused(RuntimeError(), TimeoutError()), "no answer within 10 s"),
    (caused(RuntimeError(), ConnectionResetError(104, "x")), "the connection was cut"),
    (caused(RuntimeError(), OSError(101, "Network is unreachable")), "Network is unreachable"),
    (RuntimeError("the server said secret words"), "RuntimeError"),
]  # fmt: skip


@pytest.mark.parametrize(("error", "words"), CHAINS)
def test_the_root_cause_is_told(error, words):
    """Not the library's wrapping of it, and no foreign text."""
    failure = unreachable(where(), error)
    assert type(failure) is SourceUnavailable
    assert failure.text == f"bucket 'b' at h:9000 cannot be reached: {words}"


def test_a_chain_that_bites_its_tail_ends():
    """Exceptions can be raised from each other."""
    one, two = RuntimeError(), OSError(5, "Input/output error")
    one.__cause__, two.__cause__ = two, one
    assert "Input/output error" in unreachable(where(), one).text


CODES = [
    (403, "AccessDenied", None, SourceDenied, "denied access with the credentials of storage config 'k' (AccessDenied, HTTP 403)"),
    (404, "NoSuchBucket", "m", SourceNotFound, "there is no bucket 'b' at h:9000"),
    (404, "NoSuchKey", None, SourceNotFound, "nothing is at bucket 'b' at h:9000 (NoSuchKey, HTTP 404)"),
    (404, "404", "m", SourceChanged, "'m' is gone since it was listed (bucket 'b' at h:9000, HTTP 404)"),
    (503, "503", "m", SourceUnavailable, "cannot be read now (HTTP 503)"),
    (400, "KeyTooLongError", None, InvalidRequest, "refused the request (KeyTooLongError, HTTP 400)"),
    (418, "has spaces: AKIA123", None, InvalidRequest, "refused the request (HTTP 418)"),
    (403, "x" * 100, None, SourceDenied, "(HTTP 403)"),
]  # fmt: skip


@pytest.mark.parametrize(("status", "code", "key", "expected", "words"), CODES)
def test_a_code_has_a_meaning_and_is_quoted_only_if_it_is_one(status, code, key, expected, words):
    """Free text in its place could hold anything."""
    failure = refused(where(), status=status, code=code, actual_region=None, key=key)
    assert type(failure) is expected
    assert words in failure.text
    assert "AKIA" not in failure.text


@pytest.mark.parametrize(
    ("region", "words"), [("eu-north-1", "it is in 'eu-north-1'"), (None, "in another region"), ("<script>", "in another region")]
)
def test_another_region_is_named_if_it_is_one(region, words):
    """The header is the server's text."""
    failure = refused(where(), status=301, code="301", actual_region=region, key=None)
    assert type(failure) is InvalidRequest and words in failure.text and "<" not in failure.text


def test_plain_http_is_hinted_at_when_the_server_is_silent():
    """An https port answers http with a bare 400, or by cutting."""
    plain = where(is_plain_http=True)
    assert refused(plain, status=400, code="400", actual_region=None, key=None).text.endswith("; is the endpoint https?")
    assert "https" not in refused(plain, status=400, code="InvalidArgument", actual_region=None, key=None).text
    assert unreachable(plain, ConnectionResetError()).text.endswith("; is the endpoint https?")
    assert "https" not in unreachable(where(), ConnectionResetError()).text


def test_missing_credentials_name_the_config_and_both_ways_out():
    """Keys, or a public bucket."""
    text = no_credentials(where(), "the chain has none").text
    assert "storage config 'k' has no access_key_id and secret_access_key, and the chain has none" in text
    assert 'anonymous "true"' in text
