"""
Programs for the tests of chart, image and dashboard, in `.parts/`: `python -m tests.chart.install`.

Helm, helm-docs and the loader of compose files are built with Go from their pinned modules. Prometheus with its
promtool is the one on the PATH, if it is recent enough, or else Debian's package, unpacked without root.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from tests.real import parts

HELM = "helm.sh/helm/v3/cmd/helm@v3.22.0"
HELM_DOCS = "github.com/norwoodj/helm-docs/cmd/helm-docs@v1.14.2"
COMPOSE_LOADER = "github.com/compose-spec/compose-go/v2/cmd@v2.9.0"
PROMETHEUS = "prometheus and promtool 2.40 or newer"
KUBERNETES_MINOR = 34
"""Of Kubernetes 1, for `helm template`; Helm's own builds set a recent one, too, and without it Helm believes in 1.20."""
OLDEST_PROMETHEUS = (2, 40)
APT = "them (Debian, Ubuntu: apt install prometheus)"


def helm() -> Path:
    """
    The program; built if it is not there yet.

    Raises:
        CannotRunError: no Go, or the module cannot be had.
    """
    places = ("chartutil.k8sVersion", "lint/rules.k8sVersion")
    set_to = (("Major", 1), ("Minor", KUBERNETES_MINOR))
    flags = [f"-X helm.sh/helm/v3/pkg/{place}{part}={number}" for place in places for part, number in set_to]
    return parts.go_program("helm", HELM, "-ldflags", " ".join(flags))


def helm_docs() -> Path:
    """
    The program; built if it is not there yet.

    Raises:
        CannotRunError: no Go, or the module cannot be had.
    """
    return parts.go_program("helm-docs", HELM_DOCS)


def compose_loader() -> Path:
    """
    The program that reads a compose file as docker compose does; built if it is not there yet.

    Raises:
        CannotRunError: no Go, or the module cannot be had.
    """
    return parts.go_program("compose-spec", COMPOSE_LOADER)


def prometheus() -> Path:
    """
    The folder that has `prometheus` and `promtool`.

    Raises:
        CannotRunError: none on the PATH that is recent enough, and Debian's package cannot be had.
    """
    server, tool = _recent("prometheus"), _recent("promtool")
    if server and tool and server.parent == tool.parent:
        return server.parent
    steps = (
        "apt-get download prometheus || { apt-get update && apt-get download prometheus; }",  # lists may be missing, or old
        "dpkg-deb -x prometheus_*.deb . && rm prometheus_*.deb",
    )
    commands = (["apt-get", "--version"], *(["sh", "-c", step] for step in steps))
    return parts.put("prometheus", PROMETHEUS, APT, *commands) / "usr" / "bin"


def _recent(program: str) -> Path | None:
    path = shutil.which(program)
    if path is None:
        return None
    done = subprocess.run([path, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    version = re.search(rf"^{program}, version (\d+)\.(\d+)", done.stdout + done.stderr, re.MULTILINE)
    return Path(path) if version and tuple(map(int, version.groups())) >= OLDEST_PROMETHEUS else None


if __name__ == "__main__":
    from tests.chart.admin.apiserver_install import programs

    parts.install(helm, helm_docs, compose_loader, prometheus, programs)
