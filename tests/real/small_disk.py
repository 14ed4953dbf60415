"""A real file system that is small: what a full volume says and does is the kernel's word."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """8 MiB and 200 inodes, mounted at this folder, which is made; skips the test where nothing can be mounted."""
    folder.mkdir()
    command: list[str | Path] = ["mount", "-t", "tmpfs", "-o", "size=8m,nr_inodes=200", "tmpfs", folder]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
