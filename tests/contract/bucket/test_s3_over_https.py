"""TLS: a private authority is trusted by the client that names it, and by no other."""

from __future__ import annotations

import pytest

from adapter.errors import InvalidRequest, SourceUnavailable
from adapter.storage.secret import fields
from adapter.workers import Stop
from tests.contract.bucket.conftest import bucket_of
from tests.real.s3 import S3Server


@pytest.fixture(scope="module")
def tls_server():
    """An S3 server with a certificate of its own authority."""
    with S3Server(tls=True) as server:
        server.put("b", "m/file", b"content" * 50_000)
        yield server


def test_the_certificate_of_the_config_is_trusted(tls_server):
    """Listed and read over https."""
    bucket = bucket_of(tls_server.storage_config("b"))
    stored = bucket.list_page("m/", Stop()).objects[0]
    assert bucket.bytes_of(stored, 7, 100_000) == (b"content" * 50_000)[7:100_007]


def test_trust_is_per_client(tls_server):
    """One storage's authority vouches for no other storage. The Go adapter trusted it everywhere."""
    bucket_of(tls_server.storage_config("b")).list_page("m/", Stop())
    other = bucket_of(tls_server.storage_config("b"), certificate="")
    with pytest.raises(SourceUnavailable, match=r"its TLS certificate is not trusted .*; a private CA goes into `certificate`"):
        other.list_page("m/", Stop())


@pytest.mark.parametrize("as_text", [True, False])
def test_ca_bundle_is_a_path_or_the_text(tls_server, tmp_path, as_text):
    """Both ways that KServe's users write it."""
    path = tmp_path / "ca.pem"
    path.write_text(tls_server.ca_pem)
    changes = {"certificate": "", "ca_bundle": tls_server.ca_pem if as_text else str(path)}
    assert bucket_of(tls_server.storage_config("b"), **changes).list_page("m/", Stop()).objects


def test_cabundle_configmap_is_the_mounted_bundle(tls_server, tmp_path, monkeypatch):
    """The bundle is read where KServe mounts it."""
    mounted = tmp_path / "cabundle.crt"
    mounted.write_text(tls_server.ca_pem)
    config = tls_server.storage_config("b") | {"certificate": "", "cabundle_configmap": "my-bundle"}
    monkeypatch.setattr(fields, "MOUNTED_CA_BUNDLE", mounted)
    assert bucket_of(config).list_page("m/", Stop()).objects


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
@pytest.mark.parametrize("value", ["false", "0", False, "False"])
def test_verify_ssl_false_asks_no_questions(tls_server, value):
    """As users of self-signed stores write it."""
    bucket = bucket_of(tls_server.storage_config("b"), certificate="", verify_ssl=value)
    assert bucket.list_page("m/", Stop()).objects


def test_http_to_an_https_port_is_hinted_at(tls_server):
    """The most common slip. Whether its 400 or its reset arrives first is up to the server."""
    config = tls_server.storage_config("b") | {"certificate": "", "endpoint_url": tls_server.endpoint_url.replace("https", "http")}
    with pytest.raises((InvalidRequest, SourceUnavailable), match="is the endpoint https"):
        bucket_of(config).list_page("m/", Stop())


def test_https_to_an_http_port_is_unavailable(s3_server):
    """The other way round."""
    config = s3_server.storage_config("b") | {"endpoint_url": s3_server.endpoint_url.replace("http", "https")}
    with pytest.raises(SourceUnavailable, match="TLS failed"):
        bucket_of(config).list_page("m/", Stop())
