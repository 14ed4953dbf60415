"""Builders for layout tests: listings from path names, configs as messages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from google.protobuf import json_format, text_format
from tritonclient.grpc import model_config_pb2

from adapter.layout import rules
from adapter.model import Layout, SourceFile
from adapter.volume.trees import HEAD_BYTES, TAIL_BYTES, Ends
from tests.builders import a_file, a_listing, a_spec

SCHEMA = SourceFile("_schema.json", 2, "schema-1")


def planned(
    model_type: str,
    paths: Iterable[str],
    *,
    single_file: bool = False,
    config: str | None = None,
    schema: Any = None,
    model_id: str = "m",
    allow_decoupled: bool = False,
) -> Layout:
    """`rules.plan` over path names; the schema is JSON's object."""
    listing = a_listing(paths, is_single_file=single_file, schema=None if schema is None else SCHEMA)
    contents = {SCHEMA: json.dumps(schema).encode()} if schema is not None else {}
    if config is not None:
        contents[a_file("config.pbtxt")] = config.encode()
    return rules.plan(
        a_spec(
            "model",
            model_id=model_id,
            model_type=model_type,
            schema_path=None if schema is None else "model/_schema.json",
            allow_decoupled=allow_decoupled,
        ),
        listing,
        contents,
    )


def finished(found: Layout, content: bytes) -> Layout:
    """`rules.finished`, with this content in every file that is asked for."""
    return rules.finished(found, {file: ends_of(content) for file in rules.asked(found)})


def ends_of(content: bytes) -> Ends:
    """What `read_ends` reads of a file with this content."""
    return Ends(content[:HEAD_BYTES], content[-TAIL_BYTES:], len(content))


def placed(found: Layout) -> dict[str, str]:
    """Placed path → path in the listing."""
    return {path: file.path for path, file in found.links.items()}


def config_of(content: bytes | str) -> model_config_pb2.ModelConfig:
    """A config.pbtxt as Triton's own message; fails on what Triton could not parse."""
    text = content if isinstance(content, str) else content.decode()
    return text_format.Parse(text, model_config_pb2.ModelConfig())


def config_from(fields: Mapping[str, Any]) -> model_config_pb2.ModelConfig:
    """Triton's message from JSON's form of its fields."""
    return json_format.ParseDict(dict(fields), model_config_pb2.ModelConfig())
