"""The samples of `deploy/samples`, read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

SAMPLES = Path(__file__).parents[2] / "deploy" / "samples"
SECRET = SAMPLES / "storage-config.yaml"


def documents(folder: str = "*") -> dict[str, dict[str, Any]]:
    """Every object of the samples below a folder but the secret, by its file and name."""
    return {
        f"{path.relative_to(SAMPLES)}:{resource['metadata']['name']}": resource
        for path in sorted(SAMPLES.glob(f"{folder}/*.yaml"))
        for resource in yaml.safe_load_all(path.read_text())
    }


def secret() -> dict[str, str]:
    """Storage key → JSON text, of the sample secret."""
    entries: dict[str, str] = yaml.safe_load(SECRET.read_text())["stringData"]
    return entries
