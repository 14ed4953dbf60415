"""The compose files, as docker compose would read them."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from tests.chart.install import compose_loader
from tests.real import parts
from tests.real.children import TOP

FOLDER = TOP / "deploy" / "compose"


def read(*words: str) -> subprocess.CompletedProcess[str]:
    """What `docker compose config` reads, by the loader that docker compose is built on; this program of it knows no environment."""
    loader = parts.or_skip(compose_loader)
    return subprocess.run([loader, "--format", "json", *words], cwd=FOLDER, capture_output=True, text=True, check=False)


def services_of(*words: str) -> dict[str, Any]:
    """Of files that can be read, by name."""
    done = read(*words)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout)["services"])
