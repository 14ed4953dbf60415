"""A real S3 server behind a proxy that spoils answers: each failure becomes the right class, in safe words."""

from __future__ import annotations

import threading
import time

import pytest

from adapter.errors import InvalidRequest, SourceChanged, SourceDenied, SourceNotFound, SourceUnavailable
from adapter.storage import s3
from adapter.storage.connection import connection_of
from adapter.storage.s3 import S3Client
from adapter.storage.bucket import StoredObject
from adapter.workers import Stop, Stopped
from tests.fakes.s3_proxy import Fault

PROMPT_SECONDS = 3
"""Far below the read timeout of 10 s."""


@pytest.fixture
def client_for(s3_server, proxy):
    """Clients of the proxy, with changed fields."""

    def make(**changes):
        config = s3_server.storage_config() | {"endpoint_url": proxy.endpoint_url} | changes
        return S3Client(connection_of(config, "storage config 'k'"), 4)

    return make


@pytest.fixture
def source(client_for, bucket, s3_server):
    """A bucket with one object of 300,000 bytes, behind the proxy."""
    s3_server.put(bucket, "m/file", bytes(range(256)) * 1200)
    return client_for().bucket(bucket, label="storage config 'k'")


def listed(source):
    return source.list_page("m/", Stop()).objects[0]


def read(source, stored, start=0, length=None, stop=None):
    got = bytearray()
    source.read(stored, start, stored.size_bytes if length is None else length, got.extend, stop or Stop())
    return bytes(got)


ANSWERS = [
    (403, "AccessDenied", SourceDenied),
    (403, "SignatureDoesNotMatch", SourceDenied),
    (403, "InvalidAccessKeyId", SourceDenied),
    (403, "RequestTimeTooSkewed", SourceDenied),
    (401, "Unauthorized", SourceDenied),
    (400, "ExpiredToken", SourceDenied),
    (400, "InvalidToken", SourceDenied),
    (404, "NoSuchBucket", SourceNotFound),
    (500, "InternalError", SourceUnavailable),
    (502, "BadGateway", SourceUnavailable),
    (503, "SlowDown", SourceUnavailable),
    (503, "ServiceUnavailable", SourceUnavailable),
    (429, "TooManyRequests", SourceUnavailable),
    (400, "RequestTimeout", SourceUnavailable),
    (301, "PermanentRedirect", InvalidRequest),
    (400, "AuthorizationHeaderMalformed", InvalidRequest),
    (400, "InvalidBucketName", InvalidRequest),
    (405, "MethodNotAllowed", InvalidRequest),
]


@pytest.mark.parametrize(("status", "code", "expected"), ANSWERS)
@pytest.mark.parametrize("call", ["list", "read"])
def test_an_error_answer_is_translated(source, proxy, bucket, status, code, expected, call):
    """Class by meaning; host, bucket and code are named, the server's own words are not."""
    stored = listed(source)
    proxy.next(Fault(status=status, code=code), times=3)  # a redirect makes botocore ask for the region
    with pytest.raises(expected) as caught:
        listed(source) if call == "list" else read(source, stored)
    assert type(caught.value) is expected
    assert f"'{bucket}' at 127.0.0.1:" in caught.value.text
    assert code == "NoSuchBucket" or code in caught.value.text
    assert "secret words" not in caught.value.text
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [(412, "PreconditionFailed", "was replaced"), (404, "NoSuchKey", "is gone"), (416, "InvalidRange", "was replaced")],
)
def test_a_read_that_the_store_refuses_for_its_version_was_changed(source, proxy, status, code, words):
    """412, 404 and 416 on a listed object all mean: list again."""
    stored = listed(source)
    proxy.next(Fault(status=status, code=code))
    with pytest.raises(SourceChanged, match=f"'m/file' {words} since it was listed"):
        read(source, stored, 5, 10)


def test_another_etag_in_the_answer_was_changed(source, proxy):
    """Servers exist that ignore If-Match."""
    stored = listed(source)
    proxy.next(Fault(headers=(("Etag", '"another"'),)))
    with pytest.raises(SourceChanged, match="another ETag"):
        read(source, stored)


def test_a_weak_and_quoted_etag_is_the_same(source, proxy):
    """Marks are not part of the version."""
    stored = listed(source)
    proxy.next(Fault(headers=(("Etag", f'W/"{stored.etag}"'),)))
    assert len(read(source, stored)) == stored.size_bytes


def test_a_range_of_an_object_with_another_size_was_changed(source, proxy):
    """The total in Content-Range must be the listed size."""
    stored = listed(source)
    proxy.next(Fault(headers=(("Content-Range", "bytes 5-14/999"),)))
    with pytest.raises(SourceChanged, match=r"has 999 bytes, but had 307200"):
        read(source, stored, 5, 10)


@pytest.mark.parametrize("size", [b"short", bytes(400_000)])
def test_a_whole_object_of_another_size_was_changed(source, proxy, size):
    """Also where the store has no ETag that would tell."""
    stored = listed(source)
    proxy.next(Fault(body=size))
    with pytest.raises(SourceChanged, match=f"has {len(size)} bytes, but had 307200"):
        read(source, StoredObject(stored.key, stored.size_bytes, ""))


def test_a_store_that_ignores_ranges_is_not_believed(source, proxy):
    """Another range than the one that was asked for would be written to the wrong place."""
    stored = listed(source)
    proxy.next(Fault(headers=(("Content-Range", "bytes 0-307199/307200"),)))
    with pytest.raises(SourceUnavailable, match="did not answer the range"):
        read(source, stored, 5, 10)


@pytest.mark.parametrize("fault", [Fault(cut_after_bytes=100_000), Fault(reset_after_bytes=100_000), Fault(reset_after_bytes=-1)])
def test_a_body_that_ends_early_is_unavailable_and_what_came_is_right(source, proxy, fault):
    """Truncated, reset in the body, reset before the headers: nothing wrong reaches the sink."""
    stored = listed(source)
    proxy.next(fault)
    got = bytearray()
    with pytest.raises(SourceUnavailable):
        source.read(stored, 0, stored.size_bytes, got.extend, Stop())
    assert bytes(got) == (bytes(range(256)) * 1200)[: len(got)]
    assert len(got) <= 100_000


@pytest.mark.parametrize("after_bytes", [-1, 0, 100_000])
@pytest.mark.parametrize("call", ["list", "read"])
def test_a_stop_wakes_a_call_that_hangs(source, proxy, call, after_bytes):
    """Before the headers, after them, and in the body: the socket is cut, the thread ends."""
    stored = listed(source)
    proxy.next(Fault(hang_after_bytes=min(after_bytes, 50) if call == "list" else after_bytes))
    stop, ended = Stop(), []

    def work() -> None:
        try:
            source.list_page("m/", stop) if call == "list" else read(source, stored, stop=stop)
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    assert proxy.hanging.wait(10)
    begun = time.monotonic()
    stop.set()
    thread.join(PROMPT_SECONDS)
    assert not thread.is_alive()
    assert time.monotonic() - begun < PROMPT_SECONDS
    assert type(ended[0]) is Stopped


def test_a_stop_before_the_socket_is_known_is_not_lost(client_for, bucket, proxy):
    """It comes while the request is being sent: nobody waits for the answer then."""
    client, stop = client_for(), Stop()
    client.boto.meta.events.register_first("before-send.s3", lambda **_: stop.set())
    proxy.next(Fault(hang_after_bytes=-1))
    begun = time.monotonic()
    with pytest.raises(Stopped):
        client.bucket(bucket).list_page("m/", stop)
    assert time.monotonic() - begun < PROMPT_SECONDS


def test_a_broken_environment_is_a_matter_of_credentials(monkeypatch):
    """A profile that does not exist, for instance."""
    monkeypatch.setenv("AWS_PROFILE", "no-such-profile")
    with pytest.raises(SourceDenied, match=r"the default credential chain failed \(ProfileNotFound\)"):
        S3Client(connection_of({}, "x"), 4)


def test_a_client_works_on_after_a_stop(source, proxy):
    """A cut socket does not come back from the pool."""
    stored = listed(source)
    proxy.next(Fault(hang_after_bytes=1000))
    stop = Stop()
    ended = []

    def work() -> None:
        with pytest.raises(Stopped):
            read(source, stored, stop=stop)
        ended.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    assert proxy.hanging.wait(10)
    stop.set()
    thread.join(PROMPT_SECONDS)
    assert ended
    assert read(source, stored) == bytes(range(256)) * 1200


def test_a_hang_becomes_unavailable_by_itself(source, proxy, monkeypatch):
    """Nobody waits for ever: the read timeout is ours."""
    monkeypatch.setattr(s3, "READ_TIMEOUT_SECONDS", 0.3)
    config = {"type": "s3", "endpoint_url": proxy.endpoint_url, "anonymous": "true"}
    client = S3Client(connection_of(config, "test"), 4)
    proxy.next(Fault(hang_after_bytes=-1))
    with pytest.raises(SourceUnavailable, match=r"cannot be reached: no answer within"):
        client.bucket("b").list_page("m/", Stop())


def test_an_answer_that_is_not_s3s_is_unavailable(source, proxy):
    """A login page of some proxy: broken XML, and XML that botocore takes for an empty listing."""
    proxy.next(Fault(body=b"<html><p>Welcome</html>"))
    with pytest.raises(SourceUnavailable):
        listed(source)
    proxy.next(Fault(body=b"<html><p>Welcome</p></html>"))
    with pytest.raises(SourceUnavailable, match="not S3's"):
        listed(source)


@pytest.mark.parametrize("after_bytes", [0, 100, 400])
def test_half_a_listing_is_unavailable(source, proxy, after_bytes):
    """A body that ends early must not look like a bucket with less in it, or with nothing."""
    proxy.next(Fault(cut_after_bytes=after_bytes))
    with pytest.raises(SourceUnavailable):
        listed(source)


def test_a_listing_without_an_end_is_unavailable(source, proxy):
    """Truncated, but no token: taking the part for the whole would lose files."""
    text = b"<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>"
    proxy.next(Fault(body=text))
    with pytest.raises(SourceUnavailable, match="cut its listing short"):
        listed(source)


def test_wrong_keys_are_denied(client_for, bucket):
    """The real server's own refusal; neither key appears."""
    source = client_for(secret_access_key="a-wrong-secret-key").bucket(bucket, label="storage config 'k'")
    with pytest.raises(
        SourceDenied, match=r"denied access with the credentials of storage config 'k' \(SignatureDoesNotMatch, HTTP 403\)"
    ) as caught:
        listed(source)
    assert "a-wrong-secret-key" not in caught.value.text


def test_an_unsigned_request_says_why(client_for, bucket):
    """Credentials stay with their endpoint, and the person who wonders is told."""
    source = client_for(access_key_id="", secret_access_key="", anonymous="true").bucket(
        bucket, label="storage config 'k'", is_unsigned=True
    )
    with pytest.raises(SourceDenied, match="was not signed, because storage_params names an endpoint_url"):
        listed(source)


def test_no_credentials_anywhere_says_which_config_lacks_which_keys(proxy, bucket, monkeypatch):
    """No keys: the default chain is asked, and it has none."""
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", "/nonexistent")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    source = S3Client(connection_of({"endpoint_url": proxy.endpoint_url}, "x"), 4).bucket(bucket, label="storage config 'k'")
    with pytest.raises(SourceDenied, match="storage config 'k' has no access_key_id and secret_access_key"):
        listed(source)
    assert proxy.requests == []


def test_the_default_chain_signs_when_the_config_has_no_keys(s3_server, bucket, monkeypatch):
    """Keys in the environment (or a web identity, or an instance role) are enough."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.secret_key)
    s3_server.put(bucket, "m/file", b"content")
    source = S3Client(connection_of({"endpoint_url": s3_server.endpoint_url}, "x"), 4).bucket(bucket)
    assert listed(source).size_bytes == 7


@pytest.mark.parametrize(
    ("endpoint", "words"),
    [
        ("http://127.0.0.1:1", "the connection was refused"),
        ("http://name.invalid", "its name cannot be resolved"),
    ],
)
def test_a_server_that_is_away_is_unavailable(endpoint, words):
    """Refused, or without a name."""
    source = S3Client(connection_of({"endpoint_url": endpoint, "anonymous": "true"}, "x"), 4).bucket("b")
    with pytest.raises(SourceUnavailable, match=f"cannot be reached: {words}"):
        source.list_page("m/", Stop())


@pytest.mark.parametrize("name", ["", "UPPER case!", "a/b", "x" * 300])
def test_a_bucket_name_that_cannot_be_is_invalid(s3_client, name):
    """Refused before the network."""
    with pytest.raises(InvalidRequest, match="not a valid bucket name"):
        s3_client.bucket(name).list_page("m/", Stop())


def test_a_region_that_is_none_is_invalid():
    """It becomes part of a host name."""
    with pytest.raises(InvalidRequest, match=r"'evil.example/' is not a region"):
        S3Client(connection_of({"region": "evil.example/", "anonymous": "true"}, "x"), 4).bucket("b").list_page("m/", Stop())


def test_the_wrong_region_is_named_with_the_right_one(source, proxy):
    """The answer's header tells where the bucket is."""
    proxy.next(Fault(status=301, code="PermanentRedirect", headers=(("x-amz-bucket-region", "eu-north-1"),)), times=4)
    with pytest.raises(
        InvalidRequest, match=r"is not in region 'us-east-1', it is in 'eu-north-1' \(PermanentRedirect, HTTP 301\); set `region`"
    ):
        listed(source)


def test_a_request_of_nothing_asks_nothing(source, proxy):
    """S3 has no empty range."""
    source.read(StoredObject("m/empty", 0, "e"), 0, 0, bytearray().extend, Stop())
    assert proxy.requests == []


def test_a_proxy_of_the_environment_is_used(s3_server, proxy, bucket, monkeypatch):
    """Its meaning stays botocore's business."""
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", proxy.endpoint_url)
    s3_server.put(bucket, "m/file", b"content")
    source = S3Client(connection_of(s3_server.storage_config(), "x"), 4).bucket(bucket)
    assert read(source, listed(source)) == b"content"
    assert [line.split("?")[0] for line in proxy.requests] == [
        f"GET {s3_server.endpoint_url}/{bucket}", f"GET {s3_server.endpoint_url}/{bucket}/m/file"]  # fmt: skip


def test_addressing_follows_the_config(client_for, proxy, bucket, s3_server):
    """Path style by default with an endpoint of one's own."""
    s3_server.put(bucket, "m/file", b"content")
    listed(client_for().bucket(bucket))
    assert proxy.requests[-1].startswith(f"GET /{bucket}?")
