"""Bearer tokens never go over plain http, except to a loopback address that the stored config names."""

from __future__ import annotations

import pytest

from adapter.errors import InvalidRequest
from adapter.storage.secret.merging import StorageConfig, merged
from adapter.storage.stores.table import BINDINGS, BUCKETS
from tests.builders import a_spec

LABEL = "storage config 'k'"
AZURE_KEY = {"account_name": "a", "account_key": "c2VjcmV0"}
PRINCIPAL = {"tenant_id": "t", "client_id": "i", "client_secret": "the-secret"}
GCS_KEY = {"bucket": "b", "client_email": "e", "private_key": "the-secret"}
LOOPBACK = ("http://127.0.0.1:9000", "http://127.8.9.10", "http://localhost:9000", "http://[::1]:9000")
ELSEWHERE = ("http://minio:9000", "http://10.0.0.1", "http://localhost.evil", "http://127.0.0.1.evil", "http://[fe80::1]", "http://0.0.0.0")


def read(kind: str, stored: dict[str, str], **params: str) -> tuple[StorageConfig, object]:
    config = merged({"type": kind, **stored}, a_spec(storage_params=params), LABEL, BINDINGS)
    return config, BUCKETS[kind].connection(config)


# type, credentials of which a token is made (or that are one), the field of the place, what the text names
TOKENS = [
    ("gcs", GCS_KEY, "endpoint_url", "the bearer token of the private_key"),
    ("gcs", GCS_KEY, "token_uri", "the bearer token of the private_key"),
    ("azure", PRINCIPAL, "endpoint_url", "the bearer token of the client_secret"),
    ("azure", {"sas_token": "sv=1&sig=the-secret"}, "endpoint_url", "the sas_token"),
]
SIGNERS = [("s3", {"access_key_id": "i", "secret_access_key": "the-secret"}), ("azure", AZURE_KEY)]


@pytest.mark.parametrize("place", ELSEWHERE)
@pytest.mark.parametrize(("kind", "keys", "field", "token"), TOKENS)
def test_a_stored_token_stays_off_plain_http(kind: str, keys: dict[str, str], field: str, token: str, place: str) -> None:
    """The text names the field, the token and what would help."""
    with pytest.raises(
        InvalidRequest, match=rf"^{LABEL}: {field} is plain http, and {token} would be readable on the way; use https"
    ) as caught:
        read(kind, {**keys, field: place})
    assert "the-secret" not in caught.value.text


@pytest.mark.parametrize("place", [*LOOPBACK, "https://minio:9000", "minio"])
@pytest.mark.parametrize(("kind", "keys", "field", "token"), TOKENS)
def test_a_stored_place_may_be_loopback_or_https(kind: str, keys: dict[str, str], field: str, token: str, place: str) -> None:
    """Emulators and sidecars are on loopback."""
    read(kind, {**keys, field: place})


@pytest.mark.parametrize("place", [*LOOPBACK, *ELSEWHERE])
@pytest.mark.parametrize(("kind", "keys", "field", "token"), TOKENS)
def test_a_request_names_no_loopback_for_tokens(kind: str, keys: dict[str, str], field: str, token: str, place: str) -> None:
    """Its own tokens neither: the rule is about the wire."""
    with pytest.raises(InvalidRequest, match=f"{field} is plain http"):
        read(kind, {"bucket": "b"}, **keys, **{field: place})


@pytest.mark.parametrize("also", ["http://theirs", "*", "http://127.0.0.1:1"])
def test_credential_endpoints_open_no_plain_http(also: str) -> None:
    """A place that is allowed to see tokens must still be https, or a loopback address by its name."""
    place = also if also != "*" else "http://127.0.0.1:1"
    stored = {**GCS_KEY, "credential_endpoints": also}
    if also == "http://127.0.0.1:1":
        read("gcs", stored, endpoint_url=place)
        return
    with pytest.raises(InvalidRequest, match="endpoint_url is plain http"):
        read("gcs", stored, endpoint_url=place)


@pytest.mark.parametrize(("kind", "keys"), SIGNERS)
def test_keys_that_sign_may_go_over_plain_http(kind: str, keys: dict[str, str]) -> None:
    """They never travel: many stores inside of a cluster speak plain http."""
    read(kind, {**keys, "endpoint_url": "http://minio:9000"})


# connection string, whether it is refused
STRINGS = [
    ("AccountName=a;SharedAccessSignature=sig=x;BlobEndpoint=http://h", True),
    ("SHAREDACCESSSIGNATURE=sig=x;blobendpoint=HTTP://h", True),
    ("AccountName=a;SharedAccessSignature=sig=x;DefaultEndpointsProtocol=http;EndpointSuffix=h", True),
    ("SharedAccessSignature=sig=x;BlobEndpoint=https://h;BlobSecondaryEndpoint=http://h", False),  # which is not asked
    ("AccountKey=c2VjcmV0;SharedAccessSignature=sig=x;BlobEndpoint=http://h", True),
    ("AccountName=a;AccountKey=c2VjcmV0;BlobEndpoint=http://h/a?sv=1&sig=x", True),
    ("SharedAccessSignature=sig=x;BlobEndpo\u0131nt=http://h", True),
    ("SharedAccessSignature=sig=x;BlobEndpoint=h/a", False),
    ("SharedAccessSignature=sig=x;BlobEndpoint=http://127.0.0.1:10000/a", False),
    ("AccountName=a;SharedAccessSignature=sig=x", False),
    ("AccountName=a;AccountKey=c2VjcmV0;BlobEndpoint=http://h", False),
    ("UseDevelopmentStorage=true", False),
]


@pytest.mark.parametrize(("text", "is_refused"), STRINGS)
def test_a_connection_string_is_looked_into(text: str, is_refused: bool) -> None:
    """It holds a place and a token in one."""
    if not is_refused:
        read("azure", {"connection_string": text})
        return
    with pytest.raises(InvalidRequest, match="connection_string is plain http, and the shared access signature in it would"):
        read("azure", {"connection_string": text})


def test_an_endpoint_in_a_connection_string_is_checked_as_any_other() -> None:
    """A password in it would be shown with the name of the place."""
    with pytest.raises(InvalidRequest, match="connection_string holds a user name or password") as caught:
        read("azure", {"connection_string": "AccountName=a;AccountKey=c2VjcmV0;BlobEndpoint=https://me:hidden@h/a"})
    assert "hidden" not in caught.value.text
