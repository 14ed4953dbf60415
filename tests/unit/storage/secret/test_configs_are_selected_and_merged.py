"""Which storage config a request gets, and what its own parameters may change."""

from __future__ import annotations

import json

import pytest

from adapter.errors import InvalidRequest
from adapter.storage.secret.config import StorageConfigs
from adapter.storage.secret.merging import merged, override
from adapter.storage.stores.table import BINDINGS
from adapter.workers import Workers
from tests.builders import a_spec

STORED = {
    "type": "s3",
    "access_key_id": "the-id",
    "secret_access_key": "the-secret",
    "endpoint_url": "http://h",
    "default_bucket": "default",
}


@pytest.fixture
def threads():
    """For reading files."""
    workers = Workers("secret", 2)
    yield workers
    workers.close()


@pytest.fixture
def secret(tmp_path, threads):
    """A mounted secret as Kubernetes mounts it: links into a hidden folder."""
    real = tmp_path / "..2026_01_01"
    real.mkdir()
    (tmp_path / "..data").symlink_to(real.name)

    def write(name: str, content: object) -> None:
        (real / name).write_text(content if isinstance(content, str) else json.dumps(content))
        if not (tmp_path / name).is_symlink():
            (tmp_path / name).symlink_to(f"..data/{name}")

    configs = StorageConfigs(tmp_path, BINDINGS, threads)
    configs.write = write
    return configs


# name, secret, request, type and bucket that result
SELECTIONS = [
    ("single file, parameters", {"myStorage": STORED},
     {"storage_key": "myStorage", "storage_params": {"bucket": "bucket1"}}, "s3", "bucket1"),
    ("top-level bucket", {"myStorage": STORED}, {"storage_key": "myStorage", "bucket": "bucket1"}, "s3", "bucket1"),
    ("default bucket", {"myStorage": STORED}, {"storage_key": "myStorage"}, "s3", "default"),
    ("parameters alone", {}, {"storage_params": {"type": "generic"}}, "generic", None),
    ("default of a type", {"default_test-type": {"type": "test-type", "default": "typed"}},
     {"storage_params": {"type": "test-type"}}, "test-type", None),
    ("no fall-back from a type to the default", {"default": {"type": "s3", "bucket": "x"}}, {"storage_params": {"type": "s3"}}, "s3", None),
    ("default", {"default": STORED}, {}, "s3", "default"),
    ("empty storage key is an absent one", {"default": STORED}, {"storage_key": ""}, "s3", "default"),
    ("top-level bucket without one in the config", {"s": {"type": "s3", "endpoint_url": "http://h"}},
     {"storage_key": "s", "bucket": "bk"}, "s3", "bk"),
    ("empty bucket in the config", {"s": STORED | {"bucket": ""}}, {"storage_key": "s"}, "s3", "default"),
    ("bucket beats default bucket", {"s": STORED | {"bucket": "own"}}, {"storage_key": "s"}, "s3", "own"),
    ("parameters beat the top-level bucket", {"s": STORED},
     {"storage_key": "s", "bucket": "b1", "storage_params": {"bucket": "b2"}}, "s3", "b2"),
    ("empty parameter is an absent one", {"s": STORED | {"bucket": "own"}},
     {"storage_key": "s", "storage_params": {"bucket": ""}}, "s3", "own"),
    ("null in the config is absent", {"s": STORED | {"bucket": None}}, {"storage_key": "s"}, "s3", "default"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "files", "request_fields", "kind", "bucket"), SELECTIONS, ids=[row[0] for row in SELECTIONS])
async def test_the_config_of_a_request(secret, name, files, request_fields, kind, bucket):
    """File by key, by type, or the default; bucket by nearness to the request."""
    for key, content in files.items():
        secret.write(key, content)
    config = await secret.resolve(a_spec("model.zip", **request_fields))
    assert (config.type, config.bucket) == (kind, bucket)


async def test_a_key_that_does_not_exist_names_those_that_do(secret):
    """Kubernetes' own hidden entries are not among them."""
    secret.write("localMinIO", STORED)
    secret.write("other", STORED)
    with pytest.raises(InvalidRequest, match=r"there is no storage config 'nope'; storage keys that exist: 'localMinIO', 'other'$"):
        await secret.resolve(a_spec(storage_key="nope"))


async def test_no_secret_at_all_is_said(tmp_path, threads):
    """The mount is optional."""
    configs = StorageConfigs(tmp_path / "absent", BINDINGS, threads)
    with pytest.raises(InvalidRequest, match="the mounted storage secret has no keys at all"):
        await configs.resolve(a_spec(storage_key="nope"))
    assert await configs.keys() == []


async def test_many_keys_are_not_all_listed(secret):
    """The text is stored by ModelMesh."""
    for number in range(50):
        secret.write(f"k{number:02}", STORED)
    with pytest.raises(InvalidRequest, match=r"'k19' and 30 more$"):
        await secret.resolve(a_spec(storage_key="nope"))


BROKEN = [
    ("the-secret {", "is not JSON"),
    ('["the-secret"]', "is not a JSON object"),
    ("", "is not JSON"),
    ("[" * 100_000, "is not JSON"),
]


@pytest.mark.parametrize(("content", "words"), BROKEN)
async def test_a_broken_config_is_named_and_not_quoted(secret, content, words):
    """Half a secret is a secret."""
    secret.write("s", content)
    with pytest.raises(InvalidRequest, match=f"storage config 's' {words}; expected an object of strings") as caught:
        await secret.resolve(a_spec(storage_key="s"))
    assert "the-secret" not in caught.value.text
    assert caught.value.__cause__ is None


async def test_a_config_that_cannot_be_read_is_named(secret, tmp_path):
    """A directory, for instance."""
    (tmp_path / "folder").mkdir()
    with pytest.raises(InvalidRequest, match="storage config 'folder' cannot be read: Is a directory"):
        await secret.resolve(a_spec(storage_key="folder"))


@pytest.mark.parametrize("content", ["{", "[]", "null"])
async def test_a_broken_default_is_as_good_as_none(secret, content, capsys):
    """As in the Go adapter, but somebody is told."""
    secret.write("default_s3", content)
    secret.write("default", content)
    config = await secret.resolve(a_spec(storage_params={"bucket": "b", "type": "s3"}))
    assert config.bucket == "b"
    with pytest.raises(InvalidRequest, match="Predictor Storage field missing"):
        await secret.resolve(a_spec())
    assert "storage.default_config_ignored" in capsys.readouterr().out


async def test_no_type_is_said_in_the_words_that_tests_of_modelmesh_know(secret):
    """Source: modelmesh-serving `fvt/predictor/predictor_test.go`."""
    secret.write("s", {"bucket": "b"})
    for fields in ({"storage_key": "s"}, {}, {"storage_params": {"bucket": "b"}}):
        with pytest.raises(InvalidRequest, match=r"^Predictor Storage field missing"):
            await secret.resolve(a_spec(**fields))


def test_a_bucket_that_is_no_string_is_refused():
    """The store would be asked for something strange."""
    with pytest.raises(InvalidRequest, match="bucket is not a string"):
        merged({"type": "s3", "bucket": {"a": "b"}}, a_spec(), "storage config 's'", BINDINGS)


def test_a_config_shows_no_values():
    """Its repr may reach a log."""
    assert "the-secret" not in repr(merged(STORED, a_spec(), "x", BINDINGS))


# input, overrides, output (None: refused)
OVERRIDES = [
    ({"key": "value", "another_key": "another value"}, {"key": "simple"}, {"key": "simple", "another_key": "another value"}),
    ({}, {"key": "create_me"}, {"key": "create_me"}),
    ({"struct": {"param": "param_value"}}, {"struct.key": "create_me"}, {"struct": {"key": "create_me", "param": "param_value"}}),
    ({"array": ["key"], "some_other_key": "value"}, {"array.key": "value"}, None),
    ({}, {"a.b.c": "deep"}, {"a": {"b": {"c": "deep"}}}),
    ({"a": {"b": "old"}}, {"a.b": "new"}, {"a": {"b": "new"}}),
    ({"a": None}, {"a": "new"}, {"a": "new"}),
    ({"a": None}, {"a.b": "new"}, {"a": {"b": "new"}}),
    ({"a": {"b": "x"}}, {"a": "flat"}, None),
    ({"a": ["x"]}, {"a": "flat"}, None),
    ({"a": 7}, {"a": "8"}, None),
    ({"a": True}, {"a": "false"}, None),
    ({"a": "text"}, {"a.b": "x"}, None),
    ({}, {"a": "x", "a.b": "y"}, None),
    ({}, {"a.b": "y", "a": "x"}, None),
    ({}, {"a..b": "y"}, None),
    ({}, {".a": "y"}, None),
    ({}, {"a.": "y"}, None),
    ({}, {"": "y"}, None),
]  # fmt: skip


@pytest.mark.parametrize(("values", "params", "expected"), OVERRIDES)
def test_overrides_by_dot_path(values, params, expected):
    """New or string values only; what contradicts is refused, in whatever order it comes; values are never quoted."""
    if expected is not None:
        override(values, params)
        assert values == expected
        return
    with pytest.raises(InvalidRequest, match=r"^storage_params: '") as caught:
        override(values, params)
    assert not {"flat", "'x'", "'y'"} & set(caught.value.text.split())
