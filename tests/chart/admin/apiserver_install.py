"""
A Kubernetes API server with its etcd, and kubectl, in `.parts/apiserver`: `python -m tests.chart.admin.apiserver_install`.

Built with Go from the modules that `apiserver/go.mod` pins and `apiserver/go.sum` gives the hashes of. About four minutes on two cores.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.real.children import PARTS
from tests.real.install import CannotRunError

MODULE = Path(__file__).with_name("apiserver")
FOLDER = PARTS / "apiserver"
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
    stamp, wanted = FOLDER / "stamp", _wanted()
    if not (stamp.exists() and stamp.read_text() == wanted):
        if shutil.which("go") is None:
            raise CannotRunError(f"a Kubernetes API server needs the command go, which is not on the PATH: install {GO}")
        FOLDER.mkdir(parents=True, exist_ok=True)
        with (FOLDER / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (stamp.exists() and stamp.read_text() == wanted):
                _build()
                stamp.write_text(wanted)
    return Programs(FOLDER / "kube-apiserver", FOLDER / "server", FOLDER / "kubectl")


def _wanted() -> str:
    sources = (MODULE / "go.mod", MODULE / "go.sum", Path(__file__))
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()


def _build() -> None:
    print("parts: kube-apiserver, etcd, kubectl (built with Go, about four minutes)", flush=True)
    major, minor, _ = VERSION.removeprefix("v").split(".")
    facts = {"gitVersion": VERSION, "gitMajor": major, "gitMinor": minor}
    flags = " ".join(["-s -w", *(f"-X k8s.io/component-base/version.{name}={value}" for name, value in facts.items())])
    command = ["go", "build", "-trimpath", f"-ldflags={flags}", "-o", f"{FOLDER}{os.sep}", *PACKAGES]
    env = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false"}
    done = subprocess.run(command, cwd=MODULE, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line and not line.startswith(("go: downloading ", "#"))]
        raise CannotRunError(f"a Kubernetes API server could not be built: {' / '.join(lines[:4]) or 'go said nothing'}")


def main() -> None:
    """Build, or say in one sentence why not."""
    try:
        programs()
    except CannotRunError as error:
        if os.environ.get("CI"):
            sys.exit(f"parts: {error}")
        print(f"parts: without a Kubernetes API server: {error}", flush=True)


if __name__ == "__main__":
    main()
