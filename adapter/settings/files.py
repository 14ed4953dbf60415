"""Small files that a setting names, read once, at the start."""

from __future__ import annotations

from pathlib import Path


def content(path: Path, most_bytes: int) -> str:
    """The beginning of a text file. Never waits for a pipe. Raises OSError, UnicodeDecodeError."""
    if not path.is_file():
        path.stat()
        raise OSError(None, "it is no file")
    with path.open("rb") as file:
        return file.read(most_bytes).decode()


def why_not(error: OSError | UnicodeDecodeError) -> str | None:
    """In words, what `content` has raised."""
    return error.strerror if isinstance(error, OSError) else "it is no text"
