"""What is odd about S3: codes that say more than the status, answers that look right and are not, credentials from a chain."""

from __future__ import annotations

import pytest

from adapter.errors import InvalidRequest, SourceChanged, SourceDenied, SourceNotFound, SourceUnavailable
from adapter.workers import Stop
from tests.contract.bucket.conftest import bucket_of, spoiled_rig
from tests.fakes.s3_proxy import Fault


@pytest.fixture
def spoiled(request):
    """A bucket of a real S3 server with one object of 307,200 bytes, behind a proxy."""
    yield from spoiled_rig(request, "s3")


ANSWERS = [
    (403, "AccessDenied", SourceDenied),
    (403, "SignatureDoesNotMatch", SourceDenied),
    (403, "InvalidAccessKeyId", SourceDenied),
    (403, "RequestTimeTooSkewed", SourceDenied),
    (400, "ExpiredToken", SourceDenied),
    (400, "InvalidToken", SourceDenied),
    (404, "NoSuchBucket", SourceNotFound),
    (503, "SlowDown", SourceUnavailable),
    (400, "RequestTimeout", SourceUnavailable),
    (301, "PermanentRedirect", InvalidRequest),
    (400, "AuthorizationHeaderMalformed", InvalidRequest),
    (400, "InvalidBucketName", InvalidRequest),
]


@pytest.mark.parametrize(("status", "code", "expected"), ANSWERS)
@pytest.mark.parametrize("call", ["list", "read"])
def test_an_error_answer_is_translated(spoiled, status, code, expected, call):
    """Class by meaning; host, bucket and code are named, the server's own words are not."""
    stored = spoiled.listed()
    spoiled.proxy.next(Fault(status=status, code=code), times=3)  # a redirect makes botocore ask for the region
    with pytest.raises(expected) as caught:
        spoiled.call(call, stored)
    assert type(caught.value) is expected
    assert f"'{spoiled.config['bucket']}' at 127.0.0.1:" in caught.value.text
    assert code == "NoSuchBucket" or code in caught.value.text
    assert "secret words" not in caught.value.text


def test_another_etag_in_the_answer_was_changed(spoiled):
    """Servers exist that ignore If-Match."""
    stored = spoiled.listed()
    spoiled.proxy.next(Fault(headers=(("Etag", '"another"'),)))
    with pytest.raises(SourceChanged, match="another ETag"):
        spoiled.read(stored)


def test_a_weak_and_quoted_etag_is_the_same(spoiled):
    """Marks are not part of the version."""
    stored = spoiled.listed()
    spoiled.proxy.next(Fault(headers=(("Etag", f'W/"{stored.etag}"'),)))
    assert len(spoiled.read(stored)) == stored.size_bytes


def test_a_broken_environment_is_a_matter_of_credentials(monkeypatch):
    """A profile that does not exist, for instance."""
    monkeypatch.setenv("AWS_PROFILE", "no-such-profile")
    with pytest.raises(SourceDenied, match=r"^no credentials for .*Amazon S3: .*the default credential chain failed \(ProfileNotFound\)"):
        bucket_of({"bucket": "b"}).list_page("m/", Stop())
    with pytest.raises(InvalidRequest, match="AWS_PROFILE names a profile that does not exist"):
        bucket_of({"bucket": "b", "anonymous": "true"}).list_page("m/", Stop())


def test_an_answer_that_is_not_s3s_is_unavailable(spoiled):
    """A login page of some proxy: broken XML, and XML that botocore takes for an empty listing."""
    spoiled.proxy.next(Fault(body=b"<html><p>Welcome</html>"))
    with pytest.raises(SourceUnavailable):
        spoiled.listed()
    spoiled.proxy.next(Fault(body=b"<html><p>Welcome</p></html>"))
    with pytest.raises(SourceUnavailable, match="not S3's"):
        spoiled.listed()


NO_KEYS = {"access_key_id": "", "secret_access_key": ""}


@pytest.mark.usefixtures("bare_environment")
def test_no_credentials_anywhere_says_which_config_lacks_which_keys(spoiled):
    """No keys: the default chain is asked, and has no keys."""
    with pytest.raises(SourceDenied, match="storage config 'k' has no access_key_id and secret_access_key"):
        spoiled.through_proxy(**NO_KEYS).list_page("m/", Stop())
    assert spoiled.proxy.requests == []


@pytest.mark.usefixtures("bare_environment")
def test_the_default_chain_signs_when_the_config_has_no_keys(spoiled, s3_server, monkeypatch):
    """Keys in the environment (or a web identity, or an instance role) are enough."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.secret_key)
    assert spoiled.through_proxy(**NO_KEYS).list_page("m/", Stop()).objects


@pytest.mark.parametrize("name", ["UPPER case!", "a/b", "x" * 300])
def test_a_bucket_name_that_cannot_be_is_invalid(name):
    """Refused before the network."""
    with pytest.raises(InvalidRequest, match="not a valid bucket name"):
        bucket_of({"bucket": name, "anonymous": "true"}).list_page("m/", Stop())


def test_a_region_that_cannot_be_is_invalid():
    """It becomes part of a host name."""
    with pytest.raises(InvalidRequest, match=r"'evil.example/' is not a region"):
        bucket_of({"bucket": "b", "region": "evil.example/", "anonymous": "true"}).list_page("m/", Stop())


def test_the_wrong_region_is_named_with_the_right_one(spoiled):
    """The answer's header tells where the bucket is."""
    spoiled.proxy.next(Fault(status=301, code="PermanentRedirect", headers=(("x-amz-bucket-region", "eu-north-1"),)), times=4)
    with pytest.raises(
        InvalidRequest, match=r"is not in region 'us-east-1', the bucket is in 'eu-north-1' \(PermanentRedirect, HTTP 301\); set `region`"
    ):
        spoiled.listed()


def test_addressing_follows_the_config(spoiled):
    """Path style by default with an endpoint of one's own."""
    spoiled.listed()
    assert spoiled.proxy.requests[-1].startswith(f"GET /{spoiled.config['bucket']}?")


def test_two_regions_of_amazon_share_no_trouble():
    """What has one `endpoint` is away together; the words stay as they are."""
    keys = {"type": "s3", "bucket": "b", "access_key_id": "k", "secret_access_key": "s"}
    buckets = [bucket_of({**keys, "region": region}) for region in ("us-east-1", "eu-west-1")]
    assert [bucket.endpoint for bucket in buckets] == ["Amazon S3 (us-east-1)", "Amazon S3 (eu-west-1)"]
    assert {bucket.words for bucket in buckets} == {"bucket 'b' at Amazon S3"}
