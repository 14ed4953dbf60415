"""
Emulators of cloud stores in `.parts/`: Microsoft's Azurite (runs with node) and fake-gcs-server (built with Go).

Each has a folder of its own and a pinned version. A machine without node or Go goes without: the
tests that need one say why they are skipped; continuous integration has both.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

from tests.real.children import PARTS
from tests.real.install import CannotRunError

AZURITE = "azurite@3.35.0"
FAKE_GCS = "github.com/fsouza/fake-gcs-server@v1.56.1"


def azurite() -> Path:
    """
    The program, to be run with node; installed if it is not there yet.

    Raises:
        CannotRunError: no node, or the package cannot be had.
    """
    folder = PARTS / "azurite"
    command = ["npm", "install", "--no-audit", "--no-fund", "--silent", "--prefix", str(folder), AZURITE]
    _installed(folder, AZURITE, "node", command, {})
    return folder / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"


def fake_gcs() -> Path:
    """
    The program; built if it is not there yet.

    Raises:
        CannotRunError: no Go, or the module cannot be had.
    """
    folder = PARTS / "fake-gcs"
    _installed(folder, FAKE_GCS, "go", ["go", "install", FAKE_GCS], {"GOBIN": str(folder), "GOFLAGS": "-mod=mod"})
    return folder / "fake-gcs-server"


def _installed(folder: Path, version: str, tool: str, command: list[str], env: dict[str, str]) -> None:
    stamp = folder / "stamp"
    if stamp.exists() and stamp.read_text() == version:
        return
    if shutil.which(tool) is None or shutil.which(command[0]) is None:
        raise CannotRunError(f"{version} needs {tool}, which is not installed")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp.exists() and stamp.read_text() == version:
            return
        print(f"parts: {version}", flush=True)
        done = subprocess.run(command, env={**os.environ, **env}, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise CannotRunError(f"{version} could not be installed: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}")
        stamp.write_text(version)


def main() -> None:
    """Install what can be, and say why not."""
    for part in (azurite, fake_gcs):
        try:
            part()
        except CannotRunError as error:
            print(f"parts: without {part.__name__}: {error}", flush=True)
            if os.environ.get("CI"):
                raise


if __name__ == "__main__":
    main()
