"""The storage secret and storage_params of any kind: merged, or refused in words without any of their values."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import event
from hypothesis import strategies as st

from adapter.errors import AdapterError
from adapter.model import ModelSpec
from adapter.parameters import split
from adapter.records import Digests
from adapter.storage.cache.record import origin_of
from adapter.storage.secret.config import StorageConfigs
from adapter.storage.secret.merging import merged
from adapter.storage.stores.table import BINDINGS, BUCKETS
from adapter.telemetry.redaction import redact
from tests.builders import a_spec
from tests.fuzz.fuzzing import SECRET, check_words, fuzzed, mutated, texts, trees, wire_texts
from tests.real.blocking import BlockingClients

NAMES = sorted(
    {name for binding in BINDINGS.values() for name in (*binding.places, *binding.credentials, *binding.beside, *binding.fixed)}
    | {
        "type", "bucket", "default_bucket", "anonymous", "unpack", "certificate", "cabundle_configmap", "ca_bundle", "verify_ssl", "region",
        "addressing_style", "credential_endpoints", "container", "headers.Authorization", "headers.X", "headers", "connection_string",
    }
)  # fmt: skip
TYPES = [*BUCKETS, "pvc", "S3", "memory"]
PLACES = [
    "http://127.0.0.1:9", "https://minio.example:9000", "minio:9000", "http://[::1]:1", "http://[", "ftp://x",
    f"https://u:{SECRET}@h/", "https://h/?sig=" + SECRET, "http://h:99999", "//h", "http://", "*", "https://a, https://b", "h\nX-Evil: 1", "https://é.example",
]  # fmt: skip
CREDENTIALS = [
    SECRET, f"{SECRET} ", "-----BEGIN PRIVATE KEY-----\n" + SECRET, json.dumps({"type": "service_account", "private_key": SECRET}),
    f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={SECRET};", "c2VjcmV0", "true", "no",
]  # fmt: skip
SHOWN = ("type", "bucket", "default_bucket", "container", "region", "addressing_style", "cabundle_configmap")
"""Fields that people are told; all others may hold a secret."""
PLAIN = [*TYPES, "b", "", " ", "true", "-", "..", "$root", "eu-west-1"]
values = st.one_of(st.sampled_from([*TYPES, *PLACES, *CREDENTIALS]), trees)
one_stored = st.one_of(
    st.tuples(st.sampled_from(SHOWN), st.sampled_from(PLAIN) | trees),
    st.tuples(st.sampled_from([name for name in NAMES if name not in SHOWN]) | texts.filter(lambda name: name not in SHOWN), values),
)
one_requested = st.one_of(
    st.tuples(st.sampled_from(SHOWN), st.sampled_from(PLAIN) | wire_texts),
    st.tuples(
        st.sampled_from([suffixed for name in NAMES if name not in SHOWN for suffixed in (name, f"{name}.x")]),
        st.sampled_from([*PLACES, *CREDENTIALS]) | wire_texts,
    ),
    st.tuples(wire_texts, wire_texts),
)
stored = st.builds(
    lambda kind, rest: ({"type": kind} if kind else {}) | dict(rest), st.none() | st.sampled_from(TYPES), st.lists(one_stored, max_size=6)
)
HONEST_VALUES = {
    "s3": {"access_key_id": "AKIDEXAMPLE", "secret_access_key": SECRET, "region": "r", "endpoint_url": "http://h:9000"},
    "gcs": {"anonymous": "true"},
    "azure": {"account_name": "account", "account_key": "c2VjcmV0LW9mLXRlc3Rz"},
    "http": {"url": "https://h/x"},
}
nearly_honest = st.builds(
    lambda kind, rest: {"type": kind, "bucket": "b"} | HONEST_VALUES[kind] | dict(rest),
    st.sampled_from(sorted(HONEST_VALUES)),
    st.lists(one_stored, max_size=1),
)
requested = st.lists(one_requested, max_size=4).map(dict)


def spec_of(params: dict[str, str], bucket: str | None, storage_key: str | None = None) -> ModelSpec:
    own, others = split(params)
    return a_spec("m", storage_params=others, bucket=bucket, storage_key=storage_key, **own)


@fuzzed(stored=stored, params=requested, bucket=st.none() | wire_texts)
def test_any_config_and_parameters_are_merged_or_refused_without_their_values(
    stored: dict[str, object], params: dict[str, str], bucket: str | None
) -> None:
    """What is merged never shows a secret, can be told apart, and leaves what was stored as it was."""
    before = json.dumps(stored, sort_keys=True)
    try:
        config = merged(stored, spec_of(params, bucket), "storage config 'k'", BINDINGS)
    except AdapterError as error:
        event("refused")
        check_words(error)
        return
    finally:
        assert json.dumps(stored, sort_keys=True) == before
    assert SECRET not in repr(config)
    binding = BINDINGS.get(config.type)
    if binding is not None:
        digests = Digests(b"salt" * 8)
        spec = spec_of(params, bucket)
        assert origin_of(digests, config, binding, spec) == origin_of(digests, config, binding, spec)


@pytest.fixture(scope="module")
def clients() -> BlockingClients:
    return BlockingClients()


@fuzzed(stored=nearly_honest | nearly_honest | stored, params=st.just({}) | st.lists(one_requested, max_size=1).map(dict) | requested)
def test_any_config_makes_a_client_or_words(clients: BlockingClients, stored: dict[str, object], params: dict[str, str]) -> None:
    """No server is asked yet. What a client says of itself holds no secret."""
    try:
        config = merged(stored, spec_of(params, None), "storage config 'k'", BINDINGS)
        if config.type not in BUCKETS:
            return
        bucket = clients.bucket(config)
    except AdapterError as error:
        event("refused")
        check_words(error)
        return
    event(f"{bucket.kind}: a client")
    told = f"{bucket.kind} {bucket.place} {bucket.words} {bucket.endpoint}"
    assert SECRET not in redact(told), told
    assert "\n" not in told


HONEST = json.dumps({"type": "s3", "bucket": "b", "endpoint_url": "http://h:9000", "access_key_id": "a", "secret_access_key": SECRET})


@fuzzed(
    content=mutated(st.just(HONEST.encode())) | stored.map(lambda found: json.dumps(found).encode()) | st.binary(max_size=100),
    name=st.sampled_from(["k", "default", "default_s3"]),
    storage_key=st.none() | st.just("k") | wire_texts,
    params=requested,
)
async def test_a_secret_of_any_bytes_is_read_or_refused(
    tmp_path: Path, content: bytes, name: str, storage_key: str | None, params: dict[str, str]
) -> None:
    """The parser's own words quote what it read: they are not shown."""
    for old in tmp_path.iterdir():
        old.unlink()
    (tmp_path / name).write_bytes(content)
    configs = StorageConfigs(tmp_path, BINDINGS, None)
    try:
        config = await configs.resolve(spec_of(params, None, storage_key))
    except AdapterError as error:
        event("refused")
        check_words(error)
    else:
        assert SECRET not in repr(config)
