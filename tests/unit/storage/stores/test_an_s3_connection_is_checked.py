"""The fields of a storage config: what they mean, and the sentence that a wrong one gets."""

from __future__ import annotations

import pytest

from adapter.errors import InvalidRequest
from adapter.storage.stores.s3 import S3Connection
from adapter.storage.stores.s3 import connection as connection_of
from tests.real.s3 import S3Server
from tests.unit.storage.rigs import make_config

KEYS = {"access_key_id": "the-key-id", "secret_access_key": "the-secret"}


def connection(**fields) -> S3Connection:
    return connection_of(make_config(fields))


@pytest.fixture(scope="module")
def pem():
    """A certificate as text."""
    server = S3Server(tls=True)  # never started
    yield server.ca_pem
    server.stop()


def test_all_fields_are_read():
    """The names of ModelMesh's secrets."""
    made = connection(**KEYS, session_token="t", endpoint_url="http://minio:9000", region="eu-1", addressing_style="Virtual")
    assert made.key("access_key_id") == "the-key-id"
    assert made.key("secret_access_key") == "the-secret"
    assert made.key("session_token") == "t"
    assert (made.url, made.region, made.addressing_style, made.host) == ("http://minio:9000", "eu-1", "virtual", "minio:9000")


@pytest.mark.parametrize(
    "name", ["access_key_id", "region", "endpoint_url", "certificate", "verify_ssl", "anonymous", "ca_bundle", "addressing_style"]
)
@pytest.mark.parametrize("value", ["", None, "  \n"])
def test_an_empty_string_is_an_absent_key(name, value):
    """Secrets are often filled from templates."""
    assert connection(**{name: value}) == connection()


def test_white_space_around_a_value_is_no_part_of_it():
    """`echo` adds a line end to what people encode."""
    assert connection(**{name: f"{value}\n" for name, value in KEYS.items()}) == connection(**KEYS)


# fields, words of the sentence
WRONG = [
    ({"access_key_id": "the-key-id"}, r"has access_key_id but no secret_access_key; give both keys, or none"),
    ({"secret_access_key": "the-secret"}, r"has secret_access_key but no access_key_id"),
    ({"session_token": "the-token"}, r"has session_token but no access_key_id and no secret_access_key"),
    ({"addressing_style": "dns"}, r"addressing_style is unknown; expected path, virtual or auto"),
    ({"anonymous": "maybe"}, r'anonymous is not a boolean; expected "true" or "false"'),
    ({"verify_ssl": "perhaps"}, r"verify_ssl is not a boolean"),
    ({"region": ["us"]}, r"region is a JSON array, expected a string"),
    ({"access_key_id": {"a": "b"}}, r"access_key_id is a JSON object, expected a string"),
    ({"endpoint_url": "ftp://host"}, r"endpoint_url is not a URL; expected http://host:port"),
    ({"endpoint_url": "http://"}, r"endpoint_url is not a URL"),
    ({"endpoint_url": "http://[::1"}, r"endpoint_url is not a URL"),
    ({"endpoint_url": "http://host:99999"}, r"endpoint_url is not a URL"),
    ({"endpoint_url": "http://user:the-password@host"}, r"endpoint_url holds a user name or password"),
    ({"endpoint_url": "http://host?x=y"}, r"endpoint_url has a query or a fragment"),
    ({"certificate": "x"}, r"certificate: no valid PEM certificate; expected the text of one or more certificates"),
    ({"certificate": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"}, r"certificate: no valid PEM certificate"),
    ({"ca_bundle": "/no/such/file.pem"}, r"ca_bundle: the file cannot be read \(No such file"),
    ({"ca_bundle": "-----BEGIN CERTIFICATE-----"}, r"ca_bundle: no valid PEM certificate"),
    ({"cabundle_configmap": "bundle"}, r"must be mounted at /etc/ssl/custom-certs/cabundle.crt"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "words"), WRONG)
def test_a_wrong_field_is_named(fields, words):
    """With the config that it is in, what is expected, and nothing secret."""
    with pytest.raises(InvalidRequest, match=words) as caught:
        connection(**fields)
    assert caught.value.text.startswith("storage config 'k'")
    for secret in ("the-key-id", "the-secret", "the-token", "the-password"):
        assert secret not in caught.value.text


def test_a_certificate_is_taken_out_of_its_comments(pem):
    """Bundles hold names in every script; OpenSSL wants ASCII."""
    made = connection(certificate=f"# Autorité de certification\n{pem}\nübrig\n{pem}")
    assert made.trust.ca_pem.count("BEGIN CERTIFICATE") == 2
    assert made.trust.ca_pem.isascii()


def test_certificate_beats_ca_bundle(pem):
    """The bundle's file is not even looked for."""
    assert connection(certificate=pem, ca_bundle="/no/such/file").trust == connection(certificate=pem).trust


def test_a_private_key_is_no_certificate(pem):
    """A file that holds other PEM blocks as well is fine, one that holds no certificate is not."""
    key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"
    assert "PRIVATE" not in connection(certificate=key + pem).trust.ca_pem
    with pytest.raises(InvalidRequest):
        connection(certificate=key)


def test_an_endpoint_without_scheme_is_https():
    """As the Go adapter's SDK took it."""
    assert connection(endpoint_url="minio.local:9000").url == "https://minio.local:9000"
