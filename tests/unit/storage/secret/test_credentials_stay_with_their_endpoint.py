"""Stored keys never go to an endpoint that a request names, nor do those of the default chain."""

from __future__ import annotations

import pytest

from adapter.errors import InvalidRequest
from adapter.storage.secret.merging import merged
from adapter.storage.stores.s3.config import connection_of
from adapter.storage.stores.table import BINDINGS
from tests.builders import a_spec

STORED = {
    "type": "s3", "bucket": "b", "access_key_id": "stored-id", "secret_access_key": "stored-secret", "session_token": "stored-token",
    "endpoint_url": "https://ours:9000",
}  # fmt: skip


def reached(stored, **params):
    config = merged(stored, a_spec(storage_params=params), "storage config 's'", BINDINGS)
    return config, connection_of(config)


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


# type, stored config, parameters that lead elsewhere, parameters that do not
BOUND = [
    ("http", {"url": "https://ours/base?q", "headers": {"Authorization": "stored-h"}, "client_certificate": "stored-c",
              "client_key": "stored-k"},
     [{"url": "https://evil/base"}, {"url": "http://ours/base"}, {"url": "https://ours:444"}, {"url": "https://ours@evil"}, {"url": "https://"}],
     [{"url": "https://ours/other?sig=1"}, {"url": "https://OURS:443"}, {"headers.X": "own"}, {}]),
    ("http", {"url": "https://ours", "headers.Authorization": "stored-h"},
     [{"url": "https://evil"}, {"url": "https://evil", "headers.X": "own"}],
     [{"headers.X": "own"}, {"url": "https://ours"}]),
    ("http", {"headers.Authorization": "stored-h"}, [{"url": "https://evil"}], [{}]),
    ("gcs", {"private_key": "stored-k", "client_email": "stored-e"},
     [{"endpoint_url": "http://evil"}, {"token_uri": "https://evil/token"}],
     [{"bucket": "other"}, {}]),
    ("gcs", {"private_key": "stored-k", "client_email": "stored-e", "token_uri": "https://ours/token", "endpoint_url": "https://ours"},
     [{"endpoint_url": "http://ours"}, {"token_uri": "https://evil/token"}],
     [{"token_uri": "https://ours/token"}, {"endpoint_url": "https://ours/"}]),
    ("azure", {"account_name": "ours", "client_secret": "stored-s", "client_id": "stored-i", "tenant_id": "stored-t"},
     [{"account_name": "evil"}, {"endpoint_url": "https://evil"}, {"tenant_id": "evil"}],
     [{"account_name": "ours"}, {"container": "other"}, {"tenant_id": "stored-t"}]),
    ("azure", {"connection_string": "stored-c", "account_key": "stored-k", "sas_token": "stored-s"},
     [{"endpoint_url": "https://evil"}], [{"account_name": "any"}, {}]),
]  # fmt: skip


def all_text(config):
    return repr(dict(config.values))


@pytest.mark.parametrize(("kind", "stored", "params"), [(k, s, p) for k, s, elsewhere, _ in BOUND for p in elsewhere])
def test_no_type_carries_its_secrets_elsewhere(kind, stored, params):
    """Not one of them, and the pod's own identity neither."""
    config = merged({"type": kind, **stored}, a_spec(storage_params=params), "storage config 's'", BINDINGS)
    assert "stored-" not in all_text(config)
    brings_own = bool({name.partition(".")[0] for name in params} & set(BINDINGS[kind].credentials))
    assert config.is_unsigned is not brings_own
    assert config.is_unsigned is (config.values.get("anonymous") == "true")


@pytest.mark.parametrize(("kind", "stored", "params"), [(k, s, p) for k, s, _, here in BOUND for p in here])
def test_every_type_keeps_them_at_home(kind, stored, params):
    """What does not say where requests go is a request's to choose."""
    config = merged({"type": kind, **stored}, a_spec(storage_params=params), "storage config 's'", BINDINGS)
    assert all_text(config).count("stored-") == repr(stored).count("stored-")
    assert not config.is_unsigned


@pytest.mark.parametrize("also", ["*", "https://evil", "https://x, https://evil", "https://x https://evil https://y"])
@pytest.mark.parametrize(("kind", "place"), [("http", "url"), ("s3", "endpoint_url"), ("gcs", "endpoint_url")])
def test_the_stored_config_may_allow_more_endpoints(kind, place, also):
    """By a key that a request cannot bring."""
    stored = {"type": kind, place: "https://ours", "headers": {"A": "stored-h"}, "access_key_id": "stored-i", "credential_endpoints": also}
    config = merged(stored, a_spec(storage_params={place: "https://evil"}), "storage config 's'", BINDINGS)
    assert "stored-" in all_text(config) and not config.is_unsigned


def test_a_request_cannot_allow_itself_more_endpoints():
    """Neither alone nor on top of the stored list."""
    for also in ({}, {"credential_endpoints": "https://x"}):
        stored = {"type": "http", "url": "https://ours", "headers": {"A": "stored-h"}, **also}
        params = {"url": "https://evil", "credential_endpoints": "*"}
        assert "stored-" not in all_text(merged(stored, a_spec(storage_params=params), "storage config 's'", BINDINGS))


def test_another_type_gets_no_stored_secrets():
    """Its fields may mean something else there."""
    stored = {"type": "azure", "account_name": "a", "client_secret": "stored-s", "headers": {"A": "stored-h"}, "private_key": "stored-k"}
    config = merged(stored, a_spec(storage_params={"type": "http", "url": "https://evil"}), "storage config 's'", BINDINGS)
    assert config.type == "http" and "stored-" not in all_text(config)


def test_dotted_keys_are_objects():
    """The controller's secret holds strings only: one object in it stops the reconcile of every runtime."""
    stored = {"type": "http", "url": "https://ours", "headers.Authorization": "one", "headers.X": "two"}
    config = merged(stored, a_spec(storage_params={"headers.X": "own"}), "storage config 's'", BINDINGS)
    assert config.values["headers"] == {"Authorization": "one", "X": "own"}


def test_dotted_keys_that_contradict_are_refused():
    """Named, not quoted."""
    with pytest.raises(InvalidRequest, match=r"^storage config 's': 'headers\.A' needs 'headers' to be an object"):
        merged({"type": "http", "headers": "the-secret", "headers.A": "x"}, a_spec(), "storage config 's'", BINDINGS)
