"""
Emulators of cloud stores in `.parts/`: Microsoft's Azurite (runs with node) and fake-gcs-server (built with Go).

Each has a folder of its own and a pinned version. A machine without node or Go goes without: the
tests that need one are skipped and say what to install; continuous integration has both.
"""

from __future__ import annotations

from pathlib import Path

from tests.real import parts

AZURITE = "azurite@3.35.0"
FAKE_GCS = "github.com/fsouza/fake-gcs-server@v1.56.1"
NODE = "Node.js 18 or newer with npm (Debian, Ubuntu: apt install nodejs npm)"


def azurite() -> Path:
    """
    The program, to be run with node; installed if it is not there yet.

    Raises:
        CannotRunError: no node or npm, or the package cannot be had.
    """
    parts.require("node", AZURITE, NODE)
    command = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", "--prefix", ".", AZURITE]
    return parts.put("azurite", AZURITE, NODE, command) / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"


def fake_gcs() -> Path:
    """
    The program; built if it is not there yet.

    Raises:
        CannotRunError: no Go, or the module cannot be had.
    """
    return parts.go_program("fake-gcs", FAKE_GCS)


if __name__ == "__main__":
    parts.install(azurite, fake_gcs)
