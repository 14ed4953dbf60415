"""Stored keys never go to an endpoint that a request names, nor do those of the default chain."""

from __future__ import annotations

import pytest

from adapter.errors import InvalidRequest
from adapter.storage.secret.merging import merged
from adapter.storage.stores.s3 import connection as connection_of
from adapter.storage.stores.table import BINDINGS, BUCKETS
from tests.builders import a_spec
from tests.unit.storage.rigs import make_config

STORED = {
    "type": "s3", "bucket": "b", "access_key_id": "stored-id", "secret_access_key": "stored-secret", "session_token": "stored-token",
    "endpoint_url": "https://ours:9000",
}  # fmt: skip


def reached(stored, **params):
    config = merged(stored, a_spec(storage_params=params), "storage config 's'", BINDINGS)
    return config, connection_of(config)


@pytest.mark.parametrize("also", ["*", "https://evil", "https://x, https://evil", "https://x https://evil https://y"])
@pytest.mark.parametrize(("kind", "place"), [("http", "url"), ("s3", "endpoint_url"), ("gcs", "endpoint_url")])
def test_the_stored_config_may_allow_more_endpoints(kind, place, also):
    """By a key that a request cannot bring."""
    stored = {"type": kind, place: "https://ours", "headers": {"A": "stored-h"}, "access_key_id": "stored-i", "credential_endpoints": also}
    config = merged(stored, a_spec(storage_params={place: "https://evil"}), "storage config 's'", BINDINGS)
    assert "stored-" in repr(dict(config.values)) and not config.is_unsigned


def test_dotted_keys_that_contradict_are_refused():
    """Named, not quoted."""
    with pytest.raises(InvalidRequest, match=r"^storage config 's': 'headers\.A' needs 'headers' to be an object"):
        merged({"type": "http", "headers": "the-secret", "headers.A": "x"}, a_spec(), "storage config 's'", BINDINGS)


# type, stored config, parameters, words of the refusal
REFUSED = [
    ("s3", STORED, {"session_token": "t"}, "storage_params has session_token but no access_key_id and no secret_access_key; "
     "what storage config 's' has does not complete them"),
    ("s3", STORED, {"access_key_id": "i", "session_token": "t"},
     "storage_params has access_key_id and session_token but no secret_access_key"),
    ("azure", {"account_key": "k"}, {"tenant_id": "t"}, "storage_params has tenant_id but no client_id and no client_secret"),
    ("azure", {"account_key": "k", "account_name": "a"}, {"sas_token": "t", "client_id": "i"},
     "storage_params has sas_token and client_id but no tenant_id and no"),
    ("http", {"client_certificate": "c", "client_key": "k"}, {"client_certificate": "own"},
     "storage_params has client_certificate but no client_key"),
    ("http", {"url": "https://h", "headers.A": "b"}, {"headers.HOST": "evil"},
     "storage_params has headers.HOST, which a request may set only beside its own credentials; put it into storage config 's'"),
    ("s3", STORED, {"verify_ssl": "false"}, "storage_params has verify_ssl, which no request may set; put it into storage config 's'"),
    ("s3", STORED, {"certificate.x": "y"}, "storage_params has certificate.x, which a request may set only beside its own credentials"),
    ("s3", {"endpoint_url": "https://h"}, {"anonymous": "perhaps"}, "storage_params: anonymous is not a boolean"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "stored", "params", "words"), REFUSED)
def test_a_refusal_says_what_to_do(kind, stored, params, words):
    """Which field, and where it belongs; no value."""
    with pytest.raises(InvalidRequest, match=words) as caught:
        BUCKETS[kind].connection(
            merged({"type": kind, "account_name": "a", **stored}, a_spec(storage_params=params), "storage config 's'", BINDINGS)
        )
    assert "evil" not in caught.value.text


@pytest.mark.parametrize("params", [{"type": "s3"}, {"type": "http", "url": "https://evil"}])
@pytest.mark.parametrize(
    "stored", [{"endpoint_url": "https://ours"}, {"headers.A": "b"}, {"type": "", "access_key_id": "i"}, {"type": ["s3"], "url": "u"}]
)
def test_a_request_cannot_say_whose_stored_credentials_are(stored, params):
    """A file with credentials or a place and without a type could be read as any."""
    with pytest.raises(InvalidRequest, match="storage config 's' has no type, and storage_params cannot tell whose credentials it holds"):
        merged(stored, a_spec(storage_params=params), "storage config 's'", BINDINGS)


AMAZONS = ("arn:aws:s3:us-east-1:123456789012:accesspoint/evil", "x--use1-az4--x-s3", "evil-o0b1d075431d83bebde8xz5w8ij--op-s3")


@pytest.mark.parametrize("bucket", AMAZONS)
def test_a_bucket_does_not_lead_away_from_the_endpoint(bucket):
    """botocore sends the signed request to `evil-123456789012.ours`, or to Amazon, whatever the addressing style."""
    with pytest.raises(InvalidRequest, match="the bucket's name is of a form that Amazon alone has, and would lead away from endpoint_url"):
        reached(STORED, bucket=bucket)
    for amazon in ({"endpoint_url": "https://s3.us-east-1.amazonaws.com"}, {"endpoint_url": ""}):
        assert reached(STORED | amazon, bucket=bucket)[1].key("access_key_id")


@pytest.mark.parametrize(
    "endpoint", ["https://ours:9000\\evil", "https://ou\trs:9000", "https://ours:9000\n", "https://ours\u212a:9000", "https://ours\x00"]
)
def test_an_endpoint_that_libraries_read_differently_is_refused(endpoint):
    """One drops a character, another one takes it for a part of the host."""
    with pytest.raises(InvalidRequest, match="endpoint_url is not a URL"):
        connection_of(make_config({"type": "s3", "endpoint_url": f"x{endpoint}" if "://" not in endpoint else endpoint + "x"}))


OWN_KEYS = {"access_key_id": "own-id", "secret_access_key": "own-secret"}


@pytest.mark.parametrize("params", [{"endpoint_url": "https://theirs"}, OWN_KEYS, {"endpoint_url": "https://theirs", **OWN_KEYS}])
def test_the_host_behind_a_place_is_free_where_nothing_stored_goes(params):
    """A request may address its own store as it likes, or any with its own keys."""
    assert reached(STORED, addressing_style="virtual", **params)[1].addressing_style == "virtual"
