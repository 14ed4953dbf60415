"""The machine that figures come from, in words."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import ssl
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.benchmark.rclone import rclone_program
from tests.benchmark.rig import OF_THEIR_VENV, Client, Place, child_environment

PACKAGES = ("botocore", "pycurl", "grpcio")


def described(place: Place, clients: Sequence[Client]) -> dict[str, str]:
    """Cores, memory, kernel, versions, and how busy it was."""
    return {
        "processor": f"{os.cpu_count()} × {_first('/proc/cpuinfo', 'model name') or platform.machine()}",
        "memory": f"{int((_first('/proc/meminfo', 'MemTotal') or '0 kB').split()[0]) / 1024**2:.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "Python": f"{platform.python_version()}, {ssl.OPENSSL_VERSION}",
        "load before": " ".join(f"{load:.1f}" for load in os.getloadavg()),
        "files go to": f"{place.folder} ({_file_system(place.folder)})",
        "adapter's libraries": ", ".join(f"{name} {importlib.metadata.version(name)}" for name in PACKAGES if _has(name)),
        "peers": ", ".join((*_peers(place), _rclone())),
        "not measured": ", ".join(client.name for client in clients if not client.is_available(place)) or "nothing",
    }


def _first(path: str, name: str) -> str | None:
    for line in Path(path).read_text().splitlines():
        if line.startswith(name):
            return line.partition(":")[2].strip()
    return None


def _has(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _file_system(folder: Path) -> str:
    best, kind = "", "unknown"
    for line in Path("/proc/mounts").read_text().splitlines():
        _, at, found, *_ = line.split()
        if folder.resolve().is_relative_to(at) and len(at) >= len(best):
            best, kind = at, found
    return kind


def _peers(place: Place) -> list[str]:
    if not place.peers_python.exists():
        return []
    program = f"import importlib.metadata as m\nfor n in {OF_THEIR_VENV!r}:\n print(n, m.version(n))"
    done = subprocess.run([place.peers_python, "-c", program], capture_output=True, text=True, env=child_environment(), check=False)
    return done.stdout.splitlines()


def _rclone() -> str:
    if not rclone_program().exists():
        return "no rclone"
    done = subprocess.run([rclone_program(), "version"], capture_output=True, text=True, env=child_environment(), check=False)
    return done.stdout.splitlines()[0] if done.stdout else "rclone"
