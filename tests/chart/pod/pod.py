"""
A pod of the simulated controller, started on this machine: its containers' own commands, environment, volumes, ports and users.

The containers share a network (so ports are as they are written), `/dev/shm` and their volumes. Each has a root, a process table
and mounts of its own. Not as in a cluster: a root is made of this machine's `/usr` and `/etc` and of stand-ins for the images; no
limit of memory or processor, no seccomp profile, no container of ModelMesh: a test speaks for `mm` and for its puller.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any

import pytest

from tests.chart.controller import ETCD_SECRET
from tests.chart.pod import images
from tests.chart.pod.env import CannotStartError, Objects, environment, words
from tests.chart.pod.network import Forward
from tests.chart.pod.runtime import ADDRESS
from tests.chart.pod.volumes import Volumes
from tests.real import install, parts
from tests.real.children import Child, bare_environment
from tests.real.install import CannotRunError

PYTHON = [sys.executable, "-I", "-S", str(Path(__file__).with_name("runtime.py"))]
TOOLS = ("unshare", "nsenter", "setpriv", "mount")
START_SECONDS = 60
_USUAL_CAPABILITIES = (
    "chown,dac_override,fowner,fsetid,kill,setgid,setuid,setpcap,net_bind_service,net_raw,sys_chroot,mknod,audit_write,setfcap"
)
NONE: Mapping[str, Any] = MappingProxyType({})
_SHM_BYTES = str(64 << 20)


@dataclass(frozen=True)
class Done:
    """What a command in a container has come to."""

    code: int
    text: str


class Pod:
    """`template`: of the deployment. `secrets`: of its namespace, beside the controller's own. `claims`: name → folder."""

    def __init__(self, template: Mapping[str, Any], folder: Path, *, secrets: Objects = NONE, claims: Mapping[str, Path] = NONE) -> None:
        self._spec = template["spec"]
        self._folder = folder
        self._secrets = {ETCD_SECRET: {}, **secrets}
        self._volumes = Volumes(folder / "volumes", self._secrets, claims)
        self._open = ExitStack()
        self._sandbox: Child | None = None
        self._children: dict[str, Child] = {}
        self._become: dict[str, list[str]] = {}
        self._env: dict[str, dict[str, str]] = {}

    def container(self, name: str) -> dict[str, Any]:
        """As it stands in the pod."""
        return next(each for each in self._spec["containers"] if each["name"] == name)

    def behind(self, name: str, path: str) -> Path:
        """This machine's folder behind a path where the container has a volume."""
        return self._volumes.source(next(each for each in self.container(name)["volumeMounts"] if each["mountPath"] == path))

    @property
    def network(self) -> list[str]:
        """The beginning of a command that runs in the pod's network, and else on this machine."""
        return self._entered("net")

    def log(self, name: str) -> str:
        """What a container has written."""
        return self._children[name].log_text()

    def put_secret(self, name: str, entries: Mapping[str, str]) -> None:
        """Make a secret, or change it: volumes follow as they do in a cluster, environments do not."""
        self._secrets[name] = entries
        self._volumes.refresh(name)

    def start(self, name: str) -> None:
        """Start a container, and do not wait. Raises CannotStartError where the kubelet would not start it."""
        container = self.container(name)
        image = images.triton() if name == "triton" else images.adapter()
        security = container.get("securityContext") or {}
        user, group = security.get("runAsUser", image.user), security.get("runAsGroup", 0 if "runAsUser" in security else image.user)
        if security.get("runAsNonRoot") and user == 0:
            raise CannotStartError(f"{name} must not run as root, and its image does")
        (self._folder / "hosts").write_text(f"127.0.0.1 localhost\n::1 localhost\n{ADDRESS} pod\n")
        root, script = self._folder / "roots" / name, self._folder / "programs" / image.program
        root.mkdir(parents=True, exist_ok=True)
        script.parent.mkdir(exist_ok=True)
        script.write_text(image.script)
        script.chmod(0o755)
        usual = {"PATH": f"{images.BIN}:/usr/bin:/bin", "HOME": "/root" if user == 0 else "/", "HOSTNAME": "pod"}
        self._env[name] = env = usual | environment(container, self._spec, self._secrets)
        self._become[name] = _become(user, group, security)
        shown = [(path, path, True) for path in image.paths]
        shown.append((str(self._folder / "hosts"), "/etc/hosts", True))
        shown += [(str(path), at, True) for at, path in image.files.items()]
        shown += [(str(script), f"{images.BIN}/{image.program}", True), (str(self._folder / "volumes" / ".shm"), "/dev/shm", False)]
        shown += [(str(self._volumes.source(each)), each["mountPath"], bool(each.get("readOnly"))) for each in container["volumeMounts"]]
        spec = {
            "root": str(root),
            "mounts": sorted({mount[1]: mount for mount in shown}.values(), key=lambda mount: mount[1]),  # outer ones first
            "read_only": bool(security.get("readOnlyRootFilesystem")),
            "become": self._become[name],
            "command": words(container, env),
            "env": env,
        }
        inside = ["unshare", "--mount", "--pid", "--fork", "--kill-child", *PYTHON, "container", json.dumps(spec)]
        self._children[name] = self._child(f"pod-{name}", [*self._entered("net", "ipc", "mnt"), *inside])

    def exec(self, name: str, command: Sequence[str], timeout_seconds: float = 60) -> Done:
        """As `kubectl exec`, and as the kubelet's exec probes: by the container's user, in its mounts and with its environment."""
        enter = ["nsenter", f"--target={self._first_process(name)}", "--mount", "--pid", "--net", "--ipc", "--root", "--wd", "--"]
        try:
            done = subprocess.run(
                [*enter, *self._become[name], *command],
                env=self._env[name], check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                timeout=timeout_seconds,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return Done(-1, f"nothing within {timeout_seconds:g} s")
        return Done(done.returncode, done.stdout)

    def probe(self, name: str, kind: str = "livenessProbe") -> Done:
        """The container's own exec probe, within its own time."""
        probe = self.container(name)[kind]
        return self.exec(name, probe["exec"]["command"], probe.get("timeoutSeconds", 1))

    def env(self, name: str) -> Mapping[str, str]:
        """What a container that was started has in its environment."""
        return self._env[name]

    def until_well(self, name: str) -> None:
        """Until its liveness probe is green, if it has one. Raises PartError with its log in short."""
        if "livenessProbe" in self.container(name):
            self._children[name].wait_until(lambda: self.probe(name).code == 0, "well", START_SECONDS)

    def wait(self, name: str, timeout_seconds: float = START_SECONDS) -> int:
        """The exit code of a container that ends by itself."""
        return self._children[name].wait(timeout_seconds)

    def terminate(self, name: str) -> int:
        """SIGTERM to the container's first process; its exit code. Raises PartError when it outlives the pod's grace period."""
        os.kill(self._first_process(name), signal.SIGTERM)
        return self.wait(name, self._spec.get("terminationGracePeriodSeconds", 30))

    def forward(self, port: int, address: str = "127.0.0.1") -> int:
        """As `kubectl port-forward`: a port of this machine that leads to one of the pod's; with the pod's address, as others reach it."""
        assert self._sandbox is not None, "the pod has not begun"
        return self._open.enter_context(Forward(Path(f"/proc/{self._sandbox.pid}/ns/net"), address, port)).port

    def __enter__(self) -> Pod:
        parts.or_skip(_namespaces)
        parts.or_skip(install.install)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._folder.chmod(0o755)
        shm = self._folder / "volumes" / ".shm"
        shm.mkdir(parents=True)
        self._volumes.memory[str(shm)] = _SHM_BYTES
        self._volumes.make(self._spec["volumes"])
        own = ["unshare", "--net", "--ipc", "--mount", *PYTHON, "sandbox", json.dumps(self._volumes.memory)]
        self._sandbox = sandbox = self._child("pod", own)
        sandbox.wait_until(lambda: "up" in sandbox.log_text(), "up", START_SECONDS)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._open.close()

    def _entered(self, *kinds: str) -> list[str]:
        assert self._sandbox is not None, "the pod has not begun"
        names = {"mnt": "mount"}
        return ["nsenter", *(f"--{names.get(kind, kind)}=/proc/{self._sandbox.pid}/ns/{kind}" for kind in kinds), "--"]

    def _child(self, name: str, command: list[str]) -> Child:
        child = Child(name, command, env=bare_environment())
        self._open.callback(child.kill)
        return child

    def _first_process(self, name: str) -> int:
        """Number 1 of the container, by its number on this machine; it has become what the container runs."""
        child = self._children[name]
        below = Path(f"/proc/{child.pid}/task/{child.pid}/children")

        def first() -> str | None:
            found = below.read_text().split()
            return found[0] if found and Path(f"/proc/{found[0]}/root").readlink() != Path("/") else None

        child.wait_until(lambda: first() is not None, "begun", START_SECONDS)
        return int(first() or 0)


def _become(user: int, group: int, security: Mapping[str, Any]) -> list[str]:
    """The command that becomes the user, with the capabilities that are left. Those of root end there too; others have none."""
    dropped, added = ((security.get("capabilities") or {}).get(key) or [] for key in ("drop", "add"))
    kept = set() if "ALL" in dropped else set(_USUAL_CAPABILITIES.split(",")) - {name.lower() for name in dropped}
    bounding = ",".join(["-all", *sorted(f"+{name}" for name in kept | {name.lower() for name in added})])
    command = [
        "/usr/bin/setpriv",
        f"--reuid={user}",
        f"--regid={group}",
        *("--clear-groups", "--pdeathsig=keep", "--inh-caps=-all"),
        f"--bounding-set={bounding}",
    ]
    return [*command, *(["--no-new-privs"] if security.get("allowPrivilegeEscalation") is False else []), "--"]


def _namespaces() -> None:
    """Skips a test where this machine lets nobody make a pod. Raises CannotRunError where it lacks a program."""
    if missing := [name for name in TOOLS if shutil.which(name) is None]:
        raise CannotRunError(f"a pod needs {', '.join(missing)}")
    if os.geteuid():
        pytest.skip("only root can be several users")
    probe = ["unshare", "--net", "--ipc", "--mount", "--pid", "--fork", "--mount-proc", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    done = subprocess.run(probe, check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no namespaces can be made here: {done.stderr.strip()[-200:]}")
