"""
Puts the alternatives into `.parts/peers`, a venv of their own, and builds the adapter in Go: `python -m tests.benchmark.install`.

Their versions are in `scripts/constraints.txt` like all others. A machine for which one has no wheel goes without both;
what is missing is not measured, and the output says so.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from tests.benchmark.go_adapter import MODULE, build
from tests.benchmark.rig import OF_THEIR_VENV, PEERS_PYTHON
from tests.real.children import PARTS, TOP, bare_environment

CONSTRAINTS = TOP / "scripts" / "constraints.txt"
VENV = PEERS_PYTHON.parents[1]


def pins() -> list[str]:
    """Of the alternatives, as pip reads them."""
    lines = CONSTRAINTS.read_text().splitlines()
    return [line for line in lines if line.partition("==")[0] in OF_THEIR_VENV]


def install() -> None:
    """Instant when all is there. Raises CalledProcessError."""
    PARTS.mkdir(exist_ok=True)
    stamp = VENV / "stamp"
    wanted = hashlib.sha256(repr((str(VENV), sys.version, pins())).encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    print(f"parts: {', '.join(pins())}", flush=True)
    shutil.rmtree(VENV, ignore_errors=True)
    commands: list[list[str | Path]] = [
        [sys.executable, "-m", "venv", VENV],
        [PEERS_PYTHON, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--only-binary=:all:", "-c", CONSTRAINTS, *pins()],
    ]
    for command in commands:
        subprocess.run(command, check=True, env=bare_environment(), stdin=subprocess.DEVNULL)
    stamp.write_text(wanted)


def main() -> None:
    """Install, or say what failed and go on."""
    for what, put in ((", ".join(OF_THEIR_VENV), install), (MODULE, build)):
        try:
            put()
        except (subprocess.SubprocessError, OSError) as error:
            print(f"parts: without {what}: {error}", flush=True)


if __name__ == "__main__":
    main()
