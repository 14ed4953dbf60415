"""What the files of a model say of themselves."""

from __future__ import annotations

SERVED = ("model.onnx", "weights.bin")


def said(files: dict[str, bytes]) -> str:
    """Which version of which model it is."""
    content = next(content for name, content in sorted(files.items()) if name.endswith(SERVED))
    path, version, _ = content.split(b"#", 2)
    return f"{path.decode()}#{version.decode()}"


def served(files: dict[str, bytes]) -> dict[str, bytes]:
    """By name: only what the adapter does not write itself."""
    return {name.rpartition("/")[2]: content for name, content in files.items() if name.endswith(SERVED)}


def sizes(files: dict[str, bytes]) -> dict[str, int]:
    return {name: len(content) for name, content in files.items()}
