"""`values.yaml`, its schema and the values files here speak of the same values."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from tests.chart import matrix, render

VALUES: dict[str, Any] = yaml.safe_load((render.CHART / "values.yaml").read_text())
SCHEMA: dict[str, Any] = json.loads((render.CHART / "values.schema.json").read_text())


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        found: Any = SCHEMA
        for step in schema["$ref"].removeprefix("#/").split("/"):
            found = found[step]
        schema = {key: value for key, value in schema.items() if key != "$ref"} | found
    return schema


def shapes(values: Mapping[str, Any], schema: dict[str, Any], above: str = "") -> Iterator[str]:
    """Where values and a schema's properties differ."""
    properties = {name: resolved(inner) for name, inner in resolved(schema).get("properties", {}).items()}
    if properties and not above.startswith(("triton.resources", "adapter.resources")):
        yield from (f"{above}{name} is in the values alone" for name in values.keys() - properties.keys())
    for name, value in values.items():
        if isinstance(value, dict) and name in properties:
            yield from shapes(value, properties[name], f"{above}{name}.")


def test_every_value_is_in_the_schema() -> None:
    assert list(shapes(VALUES, SCHEMA)) == []


def test_every_value_is_set_by_a_values_file() -> None:
    """Parts of a format and of a security context are, in one of them."""
    tried = {path for case in (*matrix.values(), *matrix.refused()) for path in matrix.leaves(yaml.safe_load(case.path.read_text()) or {})}
    wanted = {path for path in matrix.leaves(VALUES) if ".securityContext." not in path and not path.startswith("formats.")}
    wanted |= {"triton.securityContext", "adapter.securityContext"} | {f"formats.{name}" for name in VALUES["formats"]}

    assert sorted(path for path in wanted if not any(f"{each}.".startswith(f"{path}.") for each in tried)) == []
