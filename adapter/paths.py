"""Relative paths of a model's files: what a file system can hold below the model. Pure."""

from __future__ import annotations

from collections.abc import Iterable

MAX_NAME_BYTES = 255
"""Of one segment. Source: Linux NAME_MAX."""


def directories_of(paths: Iterable[str]) -> set[str]:
    """All directories that files at these paths lie in, at any depth."""
    found: set[str] = set()
    for path in paths:
        parent = path.rpartition("/")[0]
        while parent and parent not in found:
            found.add(parent)
            parent = parent.rpartition("/")[0]
    return found


def path_problem(path: str) -> str | None:
    """Why no file can lie at this path below a model, or None. Follows `it`: `has an empty segment`."""
    if path.startswith("/"):
        return "is absolute"
    for segment in path.split("/"):
        if not segment:
            return "has an empty segment"
        if segment in (".", ".."):
            return f"has a {segment!r} in it"
        if len(segment.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES:
            return f"has a segment of more than {MAX_NAME_BYTES} bytes"
    return "contains a NUL byte" if "\0" in path else None
