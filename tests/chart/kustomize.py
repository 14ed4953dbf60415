"""The real kustomize, for the plain manifests."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.chart import install


class BuildError(Exception):
    """Kustomize refused a folder; its words."""


def build(folder: Path) -> list[dict[str, Any]]:
    """All objects that `kubectl apply -k` would send. Raises BuildError, CannotRunError."""
    done = subprocess.run([install.kustomize(), "build", folder], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(done.stderr.strip())
    return [found for found in yaml.safe_load_all(done.stdout) if found]
