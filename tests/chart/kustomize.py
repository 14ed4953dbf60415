"""The real kustomize, for the plain manifests."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.real import parts

KUSTOMIZE = "sigs.k8s.io/kustomize/kustomize/v5@v5.8.1"


class BuildError(Exception):
    """Kustomize refused a folder; its words."""


def kustomize() -> Path:
    """
    The program; built if it is not there yet.

    Raises:
        CannotRunError: no Go, or the module cannot be had.
    """
    return parts.go_program("kustomize", KUSTOMIZE).parent / "kustomize"


def build(folder: Path) -> list[dict[str, Any]]:
    """All objects that `kubectl apply -k` would send. Raises BuildError, CannotRunError."""
    done = subprocess.run([kustomize(), "build", folder], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(done.stderr.strip())
    return [found for found in yaml.safe_load_all(done.stdout) if found]
