"""The table of answers, without a network: what a status, a code or an exception chain means."""

from __future__ import annotations

import socket
import ssl

import pytest
from botocore.exceptions import ClientError, NoCredentialsError

from adapter.errors import InvalidRequest, SourceChanged, SourceDenied, SourceNotFound, SourceUnavailable
from adapter.storage.stores.answers import Where
from adapter.storage.stores.s3.failures import meaning_of
from adapter.storage.wire.dialling import DeniedAddress
from adapter.storage.wire.metering import TooMuch


def where(**fields):
    base = {
        "words": "bucket 'b' at h:9000", "label": "storage config 'k'", "credentials": "the key",
        "is_plain_http": False, "is_unsigned": False,
    }  # fmt: skip
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
    (caused(RuntimeError(), socket.gaierror(-2, "x")), "its name cannot be resolved (there is no such name)"),
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
    failure = where().unreachable(error)
    assert type(failure) is SourceUnavailable
    assert failure.text == f"bucket 'b' at h:9000 cannot be reached: {words}"


CAN_PASS = [
    (ConnectionRefusedError(111, "x"), True), (TimeoutError(), True), (socket.gaierror(socket.EAI_AGAIN, "x"), True),
    (socket.gaierror(socket.EAI_NONAME, "x"), False), (untrusted(), False),
]  # fmt: skip


@pytest.mark.parametrize(("error", "passes"), CAN_PASS)
def test_what_cannot_pass_is_marked(error, passes):
    """Nobody repeats it; and other loads from there are told the cause without a bucket's name."""
    failure = where().unreachable(caused(RuntimeError(), error))
    assert failure.can_pass is passes
    assert failure.text == f"bucket 'b' at h:9000 cannot be reached: {failure.cause}"


def test_an_address_that_is_denied_is_a_mistake_of_the_request():
    """The address, the endpoint and the setting are named."""
    failure = where().unreachable(caused(RuntimeError(), DeniedAddress("169.254.169.254")))
    assert type(failure) is InvalidRequest
    assert "bucket 'b' at h:9000" in failure.text
    assert "169.254.169.254 may not be dialled for a request (REQUEST_ENDPOINTS_DENIED)" in failure.text


def test_an_answer_without_end_is_not_asked_for_again():
    """It would be as large again."""
    failure = where().unreachable(caused(RuntimeError(), TooMuch("an answer", 4 << 20)))
    assert type(failure) is SourceUnavailable and not failure.can_pass
    assert failure.text == "bucket 'b' at h:9000 cannot be used: it sent an answer of more than 4 MiB"


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("0", 0), ("7", 7), (" 7 ", 7), ("1000000000", 31_622_400), ("9" * 5000, 31_622_400), (None, None), ("", None), ("-1", None),
     ("nan", None), ("inf", None), ("1.5", None), ("1e3", None), ("٣", None), ("²", None), ("Fri, 31 Dec 9999 23:59:59 GMT", None)],
)  # fmt: skip
def test_a_retry_after_is_a_number_of_seconds(header, seconds):
    """At most a year; whatever else is there says nothing."""
    assert where().refused(503, retry_after=header).retry_after_seconds == seconds


def test_a_chain_that_bites_its_tail_ends():
    """Exceptions can be raised from each other."""
    one, two = RuntimeError(), OSError(5, "Input/output error")
    one.__cause__, two.__cause__ = two, one
    assert "Input/output error" in where().unreachable(one).text


# status, key of a listed object, class, words
STATUSES = [
    *((status, key, SourceDenied, "denied access with the key of storage config 'k'") for status in (401, 403, 407) for key in (None, "m")),
    *((status, key, SourceUnavailable, "cannot be read now") for status in (408, 425, 429, 500, 502, 503, 599) for key in (None, "m")),
    *((status, key, InvalidRequest, "refused the request") for status in (300, 304, 400, 405, 418) for key in (None, "m")),
    *((status, None, SourceNotFound, "there is no bucket 'b' at h:9000") for status in (404, 410)),
    *((status, "m", SourceChanged, "'m' has gone after the listing") for status in (404, 410)),
    *((status, "m", SourceChanged, "'m' was replaced after the listing") for status in (412, 416)),
    *((status, None, InvalidRequest, "refused the request") for status in (412, 416)),
]


@pytest.mark.parametrize(("status", "key", "expected", "words"), STATUSES)
def test_a_status_has_a_meaning(status, key, expected, words):
    """The same for every store."""
    failure = where().refused(status, key=key)
    assert type(failure) is expected
    assert words in failure.text and f"HTTP {status})" in failure.text


@pytest.mark.parametrize(("code", "named"), [("KeyTooLongError", "(KeyTooLongError, HTTP 418)"), ("has spaces: AKIA123", "(HTTP 418)"),
                                             ("x" * 100, "(HTTP 418)"), ("418", "(HTTP 418)")])  # fmt: skip
def test_a_code_is_quoted_only_if_it_is_one(code, named):
    """Free text in its place could hold anything."""
    assert where().refused(418, code).text.endswith(named)


def test_an_unsigned_request_says_why():
    """Credentials stay with their endpoint, and the person who wonders is told."""
    text = where(is_unsigned=True).refused(403).text
    assert (
        "denied access without credentials: the credentials of storage config 'k' do not belong to the place that storage_params names"
        in text
    )


def test_plain_http_is_hinted_at_when_the_server_is_silent():
    """A port for https answers http with a bare 400, or hangs up."""
    plain = where(is_plain_http=True)
    assert plain.refused(400, "400").text.endswith("; is the endpoint https?")
    assert "https" not in plain.refused(400, "InvalidArgument").text
    assert plain.unreachable(ConnectionResetError()).text.endswith("; is the endpoint https?")
    assert "https" not in where().unreachable(ConnectionResetError()).text


def s3_refusal(status, code, region=None):
    headers = {"x-amz-bucket-region": region} if region else {}
    answer = {"Error": {"Code": code, "Message": "secret words"}, "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": headers}}
    return ClientError(answer, "ListObjectsV2")


S3_CODES = [
    (400, "ExpiredToken", None, SourceDenied, "denied access with the key of storage config 'k' (ExpiredToken, HTTP 400)"),
    (404, "NoSuchBucket", "m", SourceNotFound, "there is no bucket 'b' at h:9000"),
    (404, "NoSuchKey", "m", SourceChanged, "'m' has gone after the listing (bucket 'b' at h:9000, NoSuchKey, HTTP 404)"),
    (404, "404", "m", SourceChanged, "'m' has gone after the listing (bucket 'b' at h:9000, HTTP 404)"),
    (400, "RequestTimeout", "m", SourceUnavailable, "cannot be read now (RequestTimeout, HTTP 400)"),
    (409, "OperationAborted", None, SourceUnavailable, "cannot be read now"),
    (400, "AuthorizationHeaderMalformed", None, InvalidRequest, "is not in region 'r', the bucket is in another region"),
]


@pytest.mark.parametrize(("status", "code", "key", "expected", "words"), S3_CODES)
def test_a_code_of_s3_says_more_than_the_status(status, code, key, expected, words):
    """Some do."""
    failure = meaning_of(s3_refusal(status, code), where(), "r", key)
    assert type(failure) is expected
    assert words in failure.text and "secret" not in failure.text


@pytest.mark.parametrize(
    ("region", "words"), [("eu-north-1", "the bucket is in 'eu-north-1'"), (None, "in another region"), ("<script>", "in another region")]
)
def test_another_region_is_named_if_it_is_one(region, words):
    """The header is the server's text."""
    failure = meaning_of(s3_refusal(301, "301", region), where(), "r", None)
    assert type(failure) is InvalidRequest and words in failure.text and "<" not in failure.text


def test_missing_credentials_name_the_config_and_both_ways_out():
    """Keys, or a public bucket."""
    failure = meaning_of(NoCredentialsError(), where(), "r", None)
    assert type(failure) is SourceDenied
    assert "storage config 'k' has no access_key_id and secret_access_key, and the default credential chain" in failure.text
    assert 'anonymous "true"' in failure.text
