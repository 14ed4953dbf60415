"""
Emulators of cloud stores in `.parts/`: Microsoft's Azurite (runs with node) and fake-gcs-server (built with Go).

Each has a folder of its own and a pinned version. A machine without node or Go goes without: the
tests that need one are skipped and say what to install; continuous integration has both.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.real.children import PARTS
from tests.real.install import CannotRunError

AZURITE = "azurite@3.35.0"
FAKE_GCS = "github.com/fsouza/fake-gcs-server@v1.56.1"
NODE = "Node.js 18 or newer with npm (Debian, Ubuntu: apt install nodejs npm)"
GO = "Go 1.21 or newer (https://go.dev/doc/install)"
SHOWN_LINES = 4


def azurite() -> Path:
    """
    The program, to be run with node; installed if it is not there yet.

    Raises:
        CannotRunError: no node or npm, or the package cannot be had.
    """
    folder = PARTS / "azurite"
    _require("node", AZURITE, NODE)
    command = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", "--prefix", str(folder), AZURITE]
    _install(folder, AZURITE, NODE, command, {})
    return folder / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"


def fake_gcs() -> Path:
    """
    The program; built if it is not there yet.

    Raises:
        CannotRunError: no Go, or the module cannot be had.
    """
    folder = PARTS / "fake-gcs"
    _install(folder, FAKE_GCS, GO, ["go", "install", FAKE_GCS], {"GOBIN": str(folder), "GOFLAGS": "-mod=mod"})
    return folder / "fake-gcs-server"


def _require(program: str, version: str, remedy: str) -> None:
    if shutil.which(program) is None:
        raise CannotRunError(f"{version} needs the command {program}, which is not on the PATH: install {remedy}")


def _install(folder: Path, version: str, remedy: str, command: list[str], env: dict[str, str]) -> None:
    stamp = folder / "stamp"
    if stamp.exists() and stamp.read_text() == version:
        return
    _require(command[0], version, remedy)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp.exists() and stamp.read_text() == version:
            return
        print(f"parts: {version}", flush=True)
        done = subprocess.run(command, env={**os.environ, **env}, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise CannotRunError(f"{version} could not be installed: {_reason(done)}")
        stamp.write_text(version)


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    """What the installer said, in one line; npm begins with the reason, Go with what it downloads."""
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip() and not line.startswith("go: downloading ")]
    return " / ".join(lines[:SHOWN_LINES]) or f"{done.args[0]} ended with code {done.returncode} and without a word"


def main() -> None:
    """Install what can be, and say why not."""
    for part in (azurite, fake_gcs):
        try:
            part()
        except CannotRunError as error:
            if os.environ.get("CI"):
                sys.exit(f"parts: {error}")
            print(f"parts: without {part.__name__}: {error}", flush=True)


if __name__ == "__main__":
    main()
