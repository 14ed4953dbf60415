"""
Clients of HTTP of other projects, each in a venv of its own in `.parts/clients/`: `python -m tests.fronts.install`.

Their requirements contradict each other and ours. A test runs a client as a process: `python("kserve")` is its interpreter.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from tests.real import parts

CLIENTS: Mapping[str, tuple[str, ...]] = {
    "kserve": ("kserve==0.21.0",),
    "text-generation": ("text-generation==0.7.0", "huggingface-hub==0.36.0"),
    "huggingface-hub": ("huggingface-hub==2.4.0",),
    "openai": ("openai==3.57.0",),
    "langchain": ("langchain-openai==1.7.4",),
    "schemathesis": ("schemathesis==4.32.5",),
}
"""Name of a venv → what is in it."""
REMEDY = "Python with its module venv (Debian, Ubuntu: apt install python3-venv)"


def python(name: str) -> Path:
    """
    The interpreter of a client's venv; installed if it is not there yet.

    Raises:
        CannotRunError: the packages cannot be had.
    """
    wanted = CLIENTS[name]
    pip = "venv/bin/python -m pip --quiet --disable-pip-version-check install --only-binary=:all:"
    version = f"{' '.join(wanted)} for Python {sys.version_info.major}.{sys.version_info.minor}"
    commands = [sys.executable, "-m", "venv", "--clear", "venv"], ["sh", "-c", f"{pip} {' '.join(wanted)}"]
    folder = parts.put(f"clients/{name}", version, REMEDY, *commands)
    return folder / "venv" / "bin" / "python"


def main() -> None:
    """Install each of them, or say why not."""
    for name in CLIENTS:

        def client(name: str = name) -> Path:
            return python(name)

        client.__name__ = name
        parts.install(client)


if __name__ == "__main__":
    main()
