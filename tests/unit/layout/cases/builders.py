"""Builders for layout tests: listings from path names, configs as messages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from google.protobuf import json_format, text_format
from tritonclient.grpc import model_config_pb2

from adapter.layout import rules
from adapter.model import Layout, Listing, ModelSpec, SourceFile

SCHEMA = SourceFile("_schema.json", 2, "schema-1")


def cases(name: str) -> list[dict[str, Any]]:
    """The cases of one file, each with a name."""
    return json.loads((Path(__file__).parent / f"{name}.json").read_text())


def named(case: dict[str, Any]) -> str:
    """What pytest shows of a case."""
    return case["name"]


def a_file(path: str) -> SourceFile:
    """A file as a store lists it."""
    return SourceFile(path, 1, f"etag-{path}")


def a_listing(paths: Iterable[str], *, single_file: bool = False, has_schema: bool = False) -> Listing:
    """A model with these files."""
    files = tuple(a_file(path) for path in sorted(paths))
    name = files[0].path if single_file and files else "model"
    return Listing("s3://bucket/model", name, single_file, files, SCHEMA if has_schema else None)


def a_spec(model_type: str = "", model_id: str = "m", schema_path: str | None = None) -> ModelSpec:
    """A model of this type."""
    return ModelSpec(model_id=model_id, model_type=model_type, path="model", schema_path=schema_path)


def planned(
    model_type: str,
    paths: Iterable[str],
    *,
    single_file: bool = False,
    config: str | None = None,
    schema: Any = None,
    model_id: str = "m",
) -> Layout:
    """`rules.plan` over path names; the schema is JSON's object."""
    listing = a_listing(paths, single_file=single_file, has_schema=schema is not None)
    contents = {SCHEMA: json.dumps(schema).encode()} if schema is not None else {}
    if config is not None:
        contents[a_file("config.pbtxt")] = config.encode()
    return rules.plan(a_spec(model_type, model_id, "model/_schema.json" if schema is not None else None), listing, contents)


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
