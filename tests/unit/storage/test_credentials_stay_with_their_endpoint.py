"""Stored keys never go to an endpoint that a request names, nor do those of the default chain."""

from __future__ import annotations

import pytest

from adapter.errors import InvalidRequest
from adapter.storage.connection import connection_of
from adapter.storage.credentials import merged
from tests.unit.storage.beds import make_spec

STORED = {
    "type": "s3", "bucket": "b", "access_key_id": "stored-id", "secret_access_key": "stored-secret", "session_token": "stored-token",
    "endpoint_url": "https://ours:9000",
}  # fmt: skip


def reached(stored, **params):
    config = merged(stored, make_spec(storage_params=params), "storage config 's'")
    return config, connection_of(config.values, config.label)


@pytest.mark.parametrize(
    "endpoint", ["http://evil", "https://ours", "http://ours:9000", "https://ours.evil:9000", "https://ours:9000/x", "evil"]
)
def test_another_endpoint_gets_no_stored_keys(endpoint):
    """Requests are unsigned: the default chain's credentials must not go there either."""
    config, connection = reached(STORED, endpoint_url=endpoint)
    assert connection.is_anonymous and config.is_unsigned
    assert connection.access_key_id is connection.secret_access_key is connection.session_token is None
    assert not [value for value in config.values.values() if "stored-" in str(value)]


@pytest.mark.parametrize("endpoint", ["https://ours:9000", "https://OURS:9000/", "ours:9000"])
def test_the_same_endpoint_keeps_them(endpoint):
    """Written differently, meaning the same."""
    config, connection = reached(STORED, endpoint_url=endpoint)
    assert connection.access_key_id.reveal() == "stored-id"
    assert connection.session_token.reveal() == "stored-token"
    assert not config.is_unsigned


def test_an_endpoint_where_none_is_stored_is_another():
    """The keys are Amazon's then."""
    stored = {name: value for name, value in STORED.items() if name != "endpoint_url"}
    config, connection = reached(stored, endpoint_url="http://evil")
    assert config.is_unsigned and connection.access_key_id is None


def test_an_empty_endpoint_is_none():
    """It must not turn the stored one off: the keys would go to Amazon."""
    _, connection = reached(STORED, endpoint_url="")
    assert connection.endpoint_url == "https://ours:9000"
    assert connection.access_key_id.reveal() == "stored-id"


def test_a_request_may_bring_its_own_keys():
    """All of them: no stored token is mixed in."""
    config, connection = reached(STORED, endpoint_url="http://theirs", access_key_id="own-id", secret_access_key="own-secret")
    assert connection.access_key_id.reveal() == "own-id"
    assert connection.session_token is None
    assert not connection.is_anonymous and not config.is_unsigned


def test_half_a_pair_for_another_endpoint_is_refused():
    """It must not be completed with the stored half."""
    with pytest.raises(InvalidRequest, match="has access_key_id but no secret_access_key"):
        reached(STORED, endpoint_url="http://theirs", access_key_id="own-id")


def test_no_stored_config_at_all_is_unsigned_too():
    """An endpoint of the request's own, and nothing else: not the pod's identity."""
    config, connection = reached({}, type="s3", endpoint_url="http://theirs", bucket="b")
    assert config.is_unsigned and connection.is_anonymous


def test_anonymous_false_does_not_bring_the_chain_back():
    """A request cannot ask for the pod's identity."""
    _, connection = reached(STORED, endpoint_url="http://theirs", anonymous="false")
    assert connection.is_anonymous


def test_other_parameters_keep_the_stored_keys():
    """Bucket and region are a request's to choose."""
    _, connection = reached(STORED, bucket="other", region="eu-1")
    assert connection.secret_access_key.reveal() == "stored-secret"
