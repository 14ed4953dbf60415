"""What stands for the two images: the programs that a container finds by name, and the machine's files that these need."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tests.real import install
from tests.real.children import PARTS, TOP

BIN = "/opt/image/bin"


@dataclass(frozen=True)
class Image:
    """A container's root holds the machine's `/usr` and `/etc`, and this."""

    program: str
    """Is found in PATH."""
    script: str
    user: int
    """Of a container that names none."""
    paths: tuple[str, ...]
    """Shown where they are on this machine."""
    files: dict[str, Path] = field(default_factory=dict)
    """Path in the container → file of this machine."""


def triton() -> Image:
    """Root's, as NVIDIA's image is. Its `tritonserver` knows its own backends, as the one of the image does."""
    env = "\n".join(
        f"export {name}='{install.environment()[name]}'" for name in ("LD_LIBRARY_PATH", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    )
    path = f"export PATH={install.VENV / 'bin'}:$PATH"
    script = f'#!/bin/sh\n{env}\n{path}\nexec {install.server()} --backend-directory={install.BACKENDS} "$@"\n'
    return Image("tritonserver", script, 0, _reachable(sys.base_prefix, PARTS))


def adapter() -> Image:
    """Ours: the sources that are tested, and the files of its own that the image has."""
    script = f'#!/bin/sh\nexport PYTHONPATH={TOP}\nexec {sys.executable} -m adapter "$@"\n'
    own = {f"/opt/app/{path.name}": path for path in (TOP / "deploy" / "image").iterdir() if os.access(path, os.X_OK) and path.is_file()}
    return Image("modelmesh-triton-adapter", script, 1000, _reachable(sys.base_prefix, sys.prefix, TOP), own)


def _reachable(*paths: str | Path) -> tuple[str, ...]:
    """Each as it is named and as what it leads to, the outer ones first, without those inside of another or of `/usr`."""
    wanted = sorted({str(each) for path in paths for each in (path, Path(path).resolve())})
    kept: list[str] = []
    for path in wanted:
        if not any(Path(path).is_relative_to(outer) for outer in (*kept, "/usr")):
            kept.append(path)
    return tuple(kept)
