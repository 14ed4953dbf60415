"""
Load requests that can never work, and what each is answered: a table, as data.

`words` are what a person must find in the answer. Values that look like `SECRET` stand for
credentials: no answer may quote them.
"""

import json
from dataclasses import dataclass, field
from typing import Any, Literal

SECRET = "hunter2-swordfish"
_LONG_NUMBER = "9" * 5000
_DEEP = "[" * 100_000


@dataclass(frozen=True)
class BadInput:
    """One request and its answer. `decided_by` storage needs an adapter with real storage behind the SPI."""

    name: str
    words: tuple[str, ...]
    model_id: str = "m1"
    model_type: str = "onnx"
    path: str = "models/digits"
    key: str = field(default="{}", repr=False)
    code: str = "INVALID_ARGUMENT"
    decided_by: Literal["spi", "storage"] = "spi"


def _id(name: str, model_id: str, *words: str) -> BadInput:
    return BadInput(name, words, model_id=model_id)


def _raw(name: str, key: str, *words: str) -> BadInput:
    return BadInput(name, ("modelKey", *words), key=key)


def _key(name: str, fields: dict[str, Any], *words: str) -> BadInput:
    return BadInput(name, words, key=json.dumps(fields))


def _path(name: str, path: str, *words: str) -> BadInput:
    return BadInput(name, ("modelPath", *words), path=path)


def _hint(name: str, value: str) -> BadInput:
    return _key(name, {"storage_params": {"adapter.modelSizeBytes": value}}, "adapter.modelSizeBytes", "greater than 0")


def _storage(name: str, fields: dict[str, Any], *words: str) -> BadInput:
    return BadInput(name, words, key=json.dumps(fields), decided_by="storage")


IDS = (
    _id("empty id", "", "id is empty"),
    _id("id dot", ".", "'.'"),
    _id("id dot dot", "..", "'..'"),
    _id("id slash", "/", "'/'"),
    _id("id with slash", "team/model", "'/'"),
    _id("id climbs", "../escape", "'/'"),
    _id("id absolute", "/etc/passwd", "'/'"),
    _id("id with NUL", "a\0b", "NUL"),
    _id("id of 256 letters", "x" * 256, "255 bytes"),
    _id("id of 256 bytes in 128 letters", "é" * 128, "255 bytes"),
    _id("id of 1 MiB", "x" * 2**20, "255 bytes"),
    _id("id of the repository folder", "_triton_models", "reserved"),
    _id("id of the cache folder", "_adapter", "reserved"),
    _id("id of an inner model", "bundle~inner~step", "reserved"),
)

NOT_JSON = (
    _raw("key is prose", f"key={SECRET}", "JSON", "line 1 column 1"),
    _raw("key is cut", '{"storage_key": ', "JSON", "column 17"),
    _raw("key in single quotes", f"{{'storage_key': '{SECRET}'}}", "JSON", "column 2"),
    _raw("key with a trailing comma", '{"a": 1,}', "JSON"),
    _raw("key with two objects", '{}{"model_type":{"name": "tensorflow"}}', "JSON", "extra data"),
    _raw("key with an unterminated string", f'{{"storage_key": "{SECRET}', "JSON", "column 17"),
    _raw("key with a bad escape", '{"storage_key": "\\x41"}', "JSON"),
    _raw("key with a bare newline in a string", f'{{"storage_key": "{SECRET}\n"}}', "JSON"),
    _raw("key with a byte order mark", "\ufeff{}", "JSON"),
    _raw("key with NaN", '{"disk_size_bytes": NaN}', "NaN"),
    _raw("key with Infinity", '{"unknown": [Infinity]}', "Infinity"),
    _raw("key with -Infinity", '{"unknown": -Infinity}', "-Infinity"),
    _raw("key nested too deeply", _DEEP, "nested"),
    _raw("key with a number of 5000 digits", f'{{"disk_size_bytes": {_LONG_NUMBER}}}', "too many digits"),
    _raw("key is an array", f'["{SECRET}"]', "JSON object", "an array"),
    _raw("key is a string", f'"{SECRET}"', "JSON object", "a string"),
    _raw("key is a number", "5", "JSON object", "a number"),
    _raw("key is a boolean", "true", "JSON object", "a boolean"),
    _raw("key is null", "null", "JSON object", "null"),
)

WRONG_TYPES = (
    _key("model_type is a number", {"model_type": 1}, "model_type", "a number"),
    _key("model_type is a boolean", {"model_type": True}, "model_type", "a boolean"),
    _key("model_type is an array", {"model_type": [SECRET]}, "model_type", "an array"),
    _key("model_type.name is a number", {"model_type": {"name": 5}}, "model_type.name", "a number"),
    _key("model_type.name is an object", {"model_type": {"name": {"a": SECRET}}}, "model_type.name", "an object"),
    _key("storage_key is a number", {"storage_key": 5}, "storage_key", "a number"),
    _key("storage_key is an object", {"storage_key": {"a": SECRET}}, "storage_key", "an object"),
    _key("STORAGE_KEY is an array", {"STORAGE_KEY": [SECRET]}, "storage_key", "an array"),
    _key("storage_params is a string", {"storage_params": SECRET}, "storage_params", "a string"),
    _key("storage_params is an array", {"storage_params": [SECRET]}, "storage_params", "an array"),
    _key("a storage parameter is a number", {"storage_params": {"bucket": 5}}, "storage_params['bucket']", "a number"),
    _key("a storage parameter is a boolean", {"storage_params": {"verify_ssl": False}}, "storage_params['verify_ssl']", "a boolean"),
    _key("a storage parameter is an object", {"storage_params": {"headers": {"X": SECRET}}}, "storage_params['headers']", "an object"),
    _key("schema_path is a number", {"schema_path": 2}, "schema_path", "a number"),
    _key("schema_path is an array", {"schema_path": [SECRET]}, "schema_path", "an array"),
    _key("bucket is an object", {"bucket": {"name": SECRET}}, "bucket", "an object"),
    _key("disk_size_bytes is a string", {"disk_size_bytes": "60"}, "disk_size_bytes", "a string"),
    _key("disk_size_bytes is a boolean", {"disk_size_bytes": True}, "disk_size_bytes", "a boolean"),
    _key("disk_size_bytes is a fraction", {"disk_size_bytes": 1.5}, "disk_size_bytes", "decimal point"),
    _key("disk_size_bytes is negative", {"disk_size_bytes": -1}, "disk_size_bytes", "from 0"),
    _key("disk_size_bytes needs more than 63 bits", {"disk_size_bytes": 2**63}, "disk_size_bytes", str(2**63 - 1)),
)

WRONG_TEXTS = (
    _key("storage_key with NUL", {"storage_key": "a\0b"}, "storage_key", "NUL"),
    _key("bucket with half a surrogate pair", {"bucket": "b\ud800"}, "bucket", "surrogate"),
    _key("storage parameter with half a surrogate pair", {"storage_params": {"region": "\udc00"}}, "storage_params['region']", "surrogate"),
    _key("storage parameter's name with NUL", {"storage_params": {"a\0": "b"}}, "storage_params", "NUL"),
    _path("path climbs", "../other-bucket/model", "'..'"),
    _path("path climbs in the middle", "models/../../secrets", "'..'"),
    _path("path ends in dot dot", "models/..", "'..'"),
    _path("path with NUL", "models/\0", "NUL"),
    _key("schema_path climbs", {"schema_path": "../../etc/passwd"}, "schema_path", "'..'"),
    _key("schema_path with NUL", {"schema_path": "a\0"}, "schema_path", "NUL"),
)

HINTS = (
    _hint("size hint of nothing", "0"),
    _hint("negative size hint", "-5"),
    _hint("size hint in words", "a lot"),
    _hint("size hint with a fraction of a byte", "1.5"),
    _hint("size hint beyond 63 bits", "9" * 400 + "Ti"),
    _key("unknown parameter of the adapter", {"storage_params": {"adapter.magic": SECRET}}, "'adapter.magic'", "adapter.modelSizeBytes"),
    _key(
        "parameter of the adapter in another case",
        {"storage_params": {"Adapter.modelSizeBytes": "5"}},
        "'Adapter.modelSizeBytes'",
        "adapter.modelSizeBytes",
    ),
)

STORAGE = (
    _storage("unknown storage key", {"storage_key": "no-such-key-here"}, "no-such-key-here"),
    _storage("storage key climbs", {"storage_key": "../secrets"}, "storage_key"),
    _storage("no bucket", {"storage_params": {"type": "s3"}}, "no bucket", "default_bucket"),
    _storage("unknown storage type", {"storage_params": {"type": "ftp"}}, "ftp", "s3"),
    _storage("storage parameter below a text", {"storage_params": {"type": "s3", "type.name": "x"}}, "type"),
)

BAD_INPUTS = IDS + NOT_JSON + WRONG_TYPES + WRONG_TEXTS + HINTS + STORAGE
