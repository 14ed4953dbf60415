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
from tests.builders import a_listing, a_spec

PYTHON = 'backend: "python"'
OTHERS = {"a/config.pbtxt": PYTHON, "a/1/model.py": "x", "b/config.pbtxt": f'{PYTHON} name: "b"', "b/1/model.py": "x"}
"""Two models of a bundle."""
SCHEMA = SourceFile("_schema.json", 2, "schema-1")


def planned(model_type: str, paths: Iterable[str], *, schema: Any = None, allow_decoupled: bool = False) -> Layout:
    """`rules.plan` over path names; the schema is JSON's object."""
    has_schema = schema is not None
    spec = a_spec(model_type=model_type, schema_path="model/_schema.json" if has_schema else None, allow_decoupled=allow_decoupled)
    listing = a_listing(paths, schema=SCHEMA if has_schema else None)
    return rules.plan(spec, listing, {SCHEMA: json.dumps(schema).encode()} if has_schema else {})


def finished(found: Layout, content: bytes) -> Layout:
    """`rules.finished`, with this content in every file that is asked for."""
    return rules.finished(found, {file: ends_of(content) for file in rules.asked(found)})


def ends_of(content: bytes) -> Ends:
    """What `read_ends` reads of a file with this content."""
    return Ends(content[:HEAD_BYTES], content[-TAIL_BYTES:], len(content))


def placed(found: Layout) -> dict[str, str]:
    """Placed path → path in the listing."""
    return {path: file.path for path, file in found.links.items()}


def steps(*names: str) -> str:
    """The config of an ensemble over these."""
    return 'platform: "ensemble" ensemble_scheduling { ' + " ".join(f'step {{ model_name: "{name}" }}' for name in names) + " }"


def bls(*names: str) -> str:
    """The config of a Python model that calls these."""
    return PYTHON + "".join(f' parameters {{ key: "bls_model.{name}" value {{ string_value: "{name}" }} }}' for name in names)


def config_of(content: bytes | str) -> model_config_pb2.ModelConfig:
    """A config.pbtxt as Triton's own message; fails on what Triton could not parse."""
    text = content if isinstance(content, str) else content.decode()
    return text_format.Parse(text, model_config_pb2.ModelConfig())


def config_from(fields: Mapping[str, Any]) -> model_config_pb2.ModelConfig:
    """Triton's message from JSON's form of its fields."""
    return json_format.ParseDict(dict(fields), model_config_pb2.ModelConfig())
