"""What our signer of small requests says, botocore's says of the same request at the same moment."""

from __future__ import annotations

import datetime
import string
from unittest import mock
from urllib.parse import quote

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials, ReadOnlyCredentials
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter.errors import InvalidRequest
from adapter.storage.stores.s3 import connection as connection_of
from adapter.storage.stores.s3 import signed
from adapter.storage.stores.s3.amazon import place_of
from tests.unit.storage.rigs import make_config

SAFE = "/~"
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)
ODD = st.text(st.sampled_from("/~ .-_+%?&=#:;,!'()*@\t\n\0\x7fé€𝄞" + string.ascii_letters), min_size=1, max_size=60)
HOSTS = st.sampled_from([
    "https://bucket.s3.eu-west-1.amazonaws.com/", "http://127.0.0.1:9000/bucket/", "https://minio.example/a%20bucket/",
    "http://[::1]:9000/b/", "http://store/b/", "https://store:8443/b/", "https://STORE.example:443/b/",
])  # fmt: skip
VALUES = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=40).map(str.strip).filter(bool)


def botocores(method: str, url: str, headers: dict[str, str], keys: ReadOnlyCredentials, region: str, now: float) -> dict[str, str]:
    """Of the same request, signed at that moment."""
    request = AWSRequest(method, url, headers=headers)
    moment = datetime.datetime.fromtimestamp(now, datetime.UTC)
    with mock.patch("botocore.auth.get_current_datetime", return_value=moment):
        S3SigV4Auth(keys, "s3", region).add_auth(request)
    return {name.lower(): value for name, value in request.headers.items()}


@settings(max_examples=200, deadline=None)
@given(
    base=HOSTS,
    key=TEXT | ODD,
    method=st.sampled_from(["GET", "HEAD"]),
    headers=st.dictionaries(st.sampled_from(["If-Match", "Range", "x-amz-checksum-mode"]), VALUES),
    token=st.none() | VALUES,
    secret=VALUES,
    region=st.sampled_from(["us-east-1", "eu-west-1", "x"]),
    now=st.integers(0, 4_000_000_000),
)
def test_odd_keys_and_headers_are_signed_as_botocore_signs_them(
    base: str, key: str, method: str, headers: dict[str, str], token: str | None, secret: str, region: str, now: int
) -> None:
    keys = Credentials("AKID", secret, token).get_frozen_credentials()
    url = base + quote(key, safe=SAFE)

    ours = signed(method, url, headers, keys, region, now=now)

    theirs = botocores(method, url, headers, keys, region, now)
    assert {name.lower(): value for name, value in ours.items() if name != "Host"} == theirs


@pytest.mark.parametrize("region", ["eu-west-1", "RegionOne"])
def test_requests_are_signed_for_the_region_that_is_configured(region: str) -> None:
    """OpenStack's is `RegionOne`."""
    place = place_of(connection_of(make_config({"region": region, "endpoint_url": "http://h:1"})), "b", region)
    assert place == ("http://h:1/b", region)


@pytest.mark.parametrize("bucket", ["b--use1-az4--x-s3", "arn:aws:s3-outposts:us-east-1:123456789012:outpost/op-1/accesspoint/a"])
def test_a_bucket_that_wants_another_signature_is_refused(bucket: str) -> None:
    with pytest.raises(InvalidRequest, match="wants another signature"):
        place_of(connection_of(make_config({"region": "us-east-1"})), bucket, "us-east-1")
