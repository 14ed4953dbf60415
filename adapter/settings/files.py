"""Secrets that a setting holds, or that lie in a small file that another one names; the file is read once, at the start."""

from __future__ import annotations

from pathlib import Path

from adapter.settings.kinds import Secret


def text_of(name: str, value: Secret | None, file: Path | None, most_bytes: int) -> str | None:
    """
    The text of the setting `name`, or the beginning of the file that `<name>_FILE` names; None without either.

    Never waits for a pipe. Raises ValueError in words: both are set, or the file cannot be read as text.
    """
    if value is not None and file is not None:
        raise ValueError(f"{name} and {name}_FILE are both set; set one of them")
    if file is None:
        return None if value is None else value.text
    try:
        if not file.is_file():
            file.stat()
            raise OSError(None, "it is no file")
        with file.open("rb") as opened:
            return opened.read(most_bytes).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ValueError(f"{name}_FILE: {file} cannot be read: {reason}") from error
