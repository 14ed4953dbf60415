"""
A Kubernetes API server with its etcd, and kubectl, in `.parts/apiserver`: `python -m tests.chart.admin.apiserver_install`.

Built with Go from the modules that `apiserver/go.mod` pins and `apiserver/go.sum` gives the hashes of. About four minutes on two cores.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from tests.real import parts
from tests.real.children import PARTS

NAME = "apiserver"
MODULE = Path(__file__).with_name("apiserver")
VERSION = "v1.34.4"
"""As in `apiserver/go.mod`; the programs say it, and helm compares it with the chart's `kubeVersion`."""
PACKAGES = ("k8s.io/kubernetes/cmd/kube-apiserver", "k8s.io/kubernetes/cmd/kubectl", "go.etcd.io/etcd/server/v3")
GO = "Go 1.24 or newer (https://go.dev/doc/install)"


@dataclass(frozen=True)
class Programs:
    """What a cluster without nodes is made of, and who speaks with it."""

    apiserver: Path
    etcd: Path
    kubectl: Path


def programs() -> Programs:
    """
    The programs; built if they are not there yet.

    Raises:
        CannotRunError: no Go, or a module cannot be had.
    """
    pins = hashlib.sha256((MODULE / "go.mod").read_bytes() + (MODULE / "go.sum").read_bytes()).hexdigest()[:8]
    major, minor, _ = VERSION.removeprefix("v").split(".")
    facts = {"gitVersion": VERSION, "gitMajor": major, "gitMinor": minor}
    flags = " ".join(["-s -w", *(f"-X k8s.io/component-base/version.{name}={value}" for name, value in facts.items())])
    out = f"{PARTS / NAME}{os.sep}"
    command = ["go", "build", "-C", str(MODULE), "-trimpath", f"-ldflags={flags}", "-o", out, *PACKAGES]
    env = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false"}
    folder = parts.put(NAME, f"kube-apiserver, kubectl {VERSION} and their etcd ({pins})", GO, command, env=env)
    return Programs(folder / "kube-apiserver", folder / "server", folder / "kubectl")


if __name__ == "__main__":
    parts.install(programs)
