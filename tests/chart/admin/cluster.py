"""
A real Kubernetes API server without nodes, as a context manager: etcd, kube-apiserver, a kubeconfig, and shells in which admins work.

Nothing runs in it by itself: no scheduler, no controller, no kubelet. `operator.py` has the turns of ModelMesh's controller, `node.py`
those of a node.
"""

from __future__ import annotations

import json
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.chart import crd, install
from tests.chart.admin import apiserver_install
from tests.chart.admin.api import NAMESPACE, Api, Object, RefusedError
from tests.real.certificates import make_certificates
from tests.real.children import TOP, Child, PartError, bare_environment
from tests.real.polls import until
from tests.real.ports import is_listening, started_on

START_SECONDS = 90
COMMAND_SECONDS = 110


class CommandError(Exception):
    """A command ended with another code than 0. Says what it said."""


class Cluster:
    """An API server, with the CRDs of ModelMesh Serving in it."""

    def __init__(self) -> None:
        self._programs, helm = apiserver_install.programs(), install.helm()
        self.folder = Path(tempfile.mkdtemp(prefix="cluster-"))
        self.kubeconfig = self.folder / "kubeconfig"
        self.certificate = self.folder / "certificates" / "apiserver.crt"
        self.api = Api(secrets.token_hex(16))
        self._children: list[Child] = []
        tools = self.folder / "bin"
        tools.mkdir()
        (tools / "kubectl").symlink_to(self._programs.kubectl)
        (tools / "helm").symlink_to(helm)

    def __enter__(self) -> Cluster:
        try:
            started_on([], 3, self._start, "address already in use")
            for definition in crd.crds():
                self.api.ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
            until(self._has_kinds, "the kinds of ModelMesh Serving are known")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for child in reversed(self._children):
            child.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def shell(self, script: str, *, folder: Path = TOP, env: Mapping[str, str] | None = None) -> str:
        """
        What a script says on both streams, run by bash that ends at the first error, with helm and kubectl for this cluster.

        Raises:
            CommandError: the script ended with another code than 0.
        """
        return self._run(["bash", "-euo", "pipefail", "-c", script], cwd=folder, stderr=subprocess.STDOUT, env=env)

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """What kubectl writes. Raises CommandError with its complaint."""
        return self._run([self.folder / "bin" / "kubectl", *arguments], cwd=TOP, stderr=subprocess.PIPE, stdin=stdin)

    def apply(self, *objects: Object) -> None:
        """As `kubectl apply`, with its strict look at fields."""
        self.kubectl("apply", "--filename=-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    def _run(self, command: list[str | Path], *, cwd: Path, stderr: int, stdin: str = "", env: Mapping[str, str] | None = None) -> str:
        base = {k: v for k, v in bare_environment().items() if not k.startswith(("HELM_", "KUBE"))}
        own = {"HOME": str(self.folder), "KUBECONFIG": str(self.kubeconfig), "PATH": f"{self.folder / 'bin'}:{base['PATH']}"}
        try:
            return subprocess.run(
                command, cwd=cwd, env={**base, **own, **(env or {})}, input=stdin, stdout=subprocess.PIPE, stderr=stderr, text=True,
                timeout=COMMAND_SECONDS, check=True,
            ).stdout  # fmt: skip
        except subprocess.CalledProcessError as error:
            raise CommandError(f"code {error.returncode}: {(error.stderr or error.stdout).strip()}") from None

    def _start(self, ports: list[int]) -> Cluster:
        clients, peers, self.api.port = ports
        store = f"http://127.0.0.1:{clients}"
        command: list[str | Path] = [self._programs.etcd, f"--data-dir={self.folder / 'etcd'}", "--unsafe-no-fsync", "--log-level=warn"]
        command += [f"--listen-client-urls={store}", f"--advertise-client-urls={store}"]
        command += [f"--{word}=http://127.0.0.1:{peers}" for word in ("listen-peer-urls", "initial-advertise-peer-urls")]
        command += [f"--initial-cluster=default=http://127.0.0.1:{peers}"]
        self._children = [etcd := Child("etcd", command, env=bare_environment())]
        key, tokens = self.folder / "server.key", self.folder / "tokens.csv"
        make_certificates(self.folder)
        tokens.write_text(f"{self.api.token},admin,admin,system:masters\n")
        command = [self._programs.apiserver, f"--etcd-servers={store}", f"--secure-port={self.api.port}", "--bind-address=127.0.0.1"]
        command += [f"--cert-dir={self.folder / 'certificates'}", f"--token-auth-file={tokens}", "--authorization-mode=AlwaysAllow"]
        command += ["--service-account-issuer=https://kubernetes.default.svc", f"--service-account-signing-key-file={key}"]
        command += [f"--service-account-key-file={self.folder / 'server.pem'}", "--service-cluster-ip-range=10.0.0.0/24"]
        command += ["--disable-admission-plugins=ServiceAccount"]  # nobody makes the accounts
        self._children.append(child := Child("kube-apiserver", command, env=bare_environment()))
        self._write_kubeconfig()
        try:
            etcd.wait_until(lambda: is_listening(clients), "listening", START_SECONDS)
            child.wait_until(self._is_ready, "ready", START_SECONDS)
        except PartError:
            for each in self._children:
                each.kill()
            shutil.rmtree(self.folder / "etcd", ignore_errors=True)
            raise
        return self

    def _is_ready(self) -> bool:
        try:
            return self.api.has(NAMESPACE, "", "default") and self.kubectl("get", "--raw=/readyz") == "ok"
        except (OSError, CommandError, RefusedError):
            return False

    def _has_kinds(self) -> bool:
        kinds = "servingruntimes,clusterservingruntimes,inferenceservices,predictors,podmonitors,prometheusrules"
        try:
            return self.kubectl("get", kinds, "--all-namespaces") is not None
        except CommandError:
            return False

    def _write_kubeconfig(self) -> None:
        server = {"server": f"https://127.0.0.1:{self.api.port}", "insecure-skip-tls-verify": True}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "tests", "cluster": server}],
            "users": [{"name": "admin", "user": {"token": self.api.token}}],
            "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "admin"}}],
            "current-context": "tests",
        }
        self.kubeconfig.touch(0o600)  # helm warns of one that others can read
        self.kubeconfig.write_text(json.dumps(config))
