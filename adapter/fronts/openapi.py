"""
What a front says of itself at `/openapi.json`: OpenAPI 3.1, made of its routes. Pure.

Source: OpenAPI Specification 3.1.0. Each operation tells its body's schema; answers that are errors are told once, since all have `error`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from adapter.fronts.answers import JSON

PATH = "/openapi.json"
BINARY = "application/octet-stream"
Operation = Mapping[str, Any]
Schema = Mapping[str, Any]
TEXT: Schema = {"type": "string"}
OBJECT: Schema = {"type": "object"}
_PLACES: Mapping[str, Schema] = {"version": {"type": "integer", "minimum": 1}}
"""What stands in a path; all else is text."""
_NAME = re.compile(r"{(\w+)}")


def shaped(*required: str, **properties: Schema) -> Schema:
    """An object with these properties; some are required."""
    return {"type": "object", **({"required": list(required)} if required else {}), "properties": properties}


def listed(entries: Schema) -> Schema:
    """An array of these."""
    return {"type": "array", "items": entries}


def operation(
    summary: str, *, body: Schema | None = None, query: Mapping[str, Schema] | None = None, types: Iterable[str] = (JSON,)
) -> Operation:
    """
    One operation.

    Args:
        summary: a few words.
        body: schema of its JSON body; None: it takes none.
        query: parameters of the query, none of them needed.
        types: content types of the body; what is no JSON is told as bytes.
    """
    found: dict[str, Any] = {"summary": summary}
    if query:
        found["parameters"] = [{"name": name, "in": "query", "schema": schema} for name, schema in query.items()]
    if body is not None:
        content = {kind: {"schema": body} if kind == JSON else {} for kind in types}
        found["requestBody"] = {"required": True, "content": content}
    return found


def document(title: str, operations: Iterable[tuple[str, str, Operation]]) -> Mapping[str, Any]:
    """
    The document of a front.

    Args:
        title: of the front.
        operations: method, path pattern, and what `operation` made.
    """
    paths: dict[str, dict[str, Any]] = {}
    for method, path, about in operations:
        named = [{"name": name, "in": "path", "required": True, "schema": _PLACES.get(name, TEXT)} for name in _NAME.findall(path)]
        parameters = [*named, *about.get("parameters", ())]
        answers = {"200": {"description": "It is so"}, "default": {"$ref": "#/components/responses/Error"}}
        paths.setdefault(path, {})[method.lower()] = {**about, "parameters": parameters, "responses": answers}
    error = {"description": "One line that says why", "content": {JSON: {"schema": shaped("error", error=TEXT)}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": "1"},
        "paths": paths,
        "components": {"responses": {"Error": error}},
    }
