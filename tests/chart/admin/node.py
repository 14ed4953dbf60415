"""
A node of the cluster: runs pods that end by themselves (`restartPolicy: Never`), gives their logs, and lets deleted ones go.

Their command is that of `helm test`. Names are looked up as a cluster's name server does for headless Services: the addresses of the
pods that the selector finds. The controller has had its turn before such a pod starts. What pods with other policies do is up
to the test, which gives them their address.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit

from tests.chart.admin import operator
from tests.chart.admin.api import MERGE, NODE, POD, SERVICE, Api, Object, RefusedError
from tests.fakes.hell import Hell, Peer, answering
from tests.real.certificates import server_tls
from tests.real.children import TOP, bare_environment

NAME = "node-of-the-tests"
POLL_SECONDS = 0.1
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
COMMAND_SECONDS = 90


class Node:
    """One node, as a context manager."""

    def __init__(self, api: Api, certificate: Path, folder: Path) -> None:
        self._api = api
        self._folder = folder
        (folder / "ca.crt").symlink_to(certificate)
        (folder / "token").write_text(api.token)
        self._logs: dict[tuple[str, str], str] = {}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="node", daemon=True)

    def __enter__(self) -> Node:
        self._server = Hell(self._tell, tls=server_tls(self._folder)[0]).__enter__()
        self._api.ask("POST", NODE.path(), {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NAME}})
        addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
        port = {"kubeletEndpoint": {"Port": self._server.port}}
        status = {"status": {"addresses": addresses, "daemonEndpoints": port}}
        self._api.ask("PATCH", f"{NODE.path(name=NAME)}/status", status, MERGE)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._is_over.set()
        self._thread.join()
        self._server.__exit__(kind, error, trace)

    def _serve(self) -> None:
        while not self._is_over.wait(POLL_SECONDS):
            with contextlib.suppress(OSError, http.client.HTTPException):  # a busy machine: the next look may be answered
                for pod in self._api.all_of(POD, ""):
                    with contextlib.suppress(RefusedError):  # changed meanwhile: the next look sees it
                        self._see_to(pod)

    def _see_to(self, pod: Object) -> None:
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        path = POD.path(namespace, name)
        if pod["metadata"].get("deletionTimestamp"):
            self._api.ask("DELETE", path, {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0})
        elif not pod["spec"].get("nodeName"):
            target = {"apiVersion": "v1", "kind": "Node", "name": NAME}
            self._api.ask("POST", f"{path}/binding", {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target})
        elif pod["status"]["phase"] == "Pending" and pod["spec"]["restartPolicy"] == "Never":
            container = pod["spec"]["containers"][0]
            code = self._run(namespace, name, container)
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            ended = {"exitCode": code, "startedAt": now, "finishedAt": now, "reason": "Error" if code else "Completed"}
            state = {"name": container["name"], "image": container["image"], "imageID": "", "ready": False, "restartCount": 0}
            status = {"phase": "Failed" if code else "Succeeded", "containerStatuses": [{**state, "state": {"terminated": ended}}]}
            self._api.ask("PATCH", f"{path}/status", {"status": status}, MERGE)

    def _run(self, namespace: str, name: str, container: Object) -> int:
        with contextlib.suppress(operator.ReconcileError):
            operator.turn(self._api, namespace)
        assert container["command"] == ["python", "-c"], f"the command of pod {name} is not that of helm test"
        here = {ACCOUNT: str(self._folder), "kubernetes.default.svc": f"127.0.0.1:{self._api.port}"}
        words = [here.get(word, word) for word in container["args"]]
        command = [sys.executable, "-m", "tests.chart.admin.in_a_pod", json.dumps(self._hosts(namespace)), *words]
        env = {**bare_environment(), "PYTHONPATH": str(TOP)}
        done = subprocess.run(command, env=env, cwd=TOP, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False)
        self._logs[namespace, name] = done.stdout + done.stderr
        return done.returncode

    def _hosts(self, namespace: str) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for service in self._api.all_of(SERVICE, namespace):
            if service["spec"].get("clusterIP") != "None":
                continue
            selector = ",".join(f"{key}={value}" for key, value in service["spec"]["selector"].items())
            pods = [pod["status"] for pod in self._api.all_of(POD, namespace, selector)]
            reached = [status for status in pods if service["spec"].get("publishNotReadyAddresses") or _is_ready(status)]
            name = service["metadata"]["name"]
            addresses = [status["podIP"] for status in reached if "podIP" in status]
            for known in (name, f"{name}.{namespace}", f"{name}.{namespace}.svc", f"{name}.{namespace}.svc.cluster.local"):
                found[known] = addresses
        return found

    def _tell(self, peer: Peer) -> None:
        """`/containerLogs/NAMESPACE/POD/CONTAINER`."""
        _, _, namespace, name, *_ = urlsplit(peer.target).path.split("/")
        text = self._logs[namespace, name].encode()
        answering(200, {"Content-Length": len(text)}, text)(peer)


def _is_ready(status: Object) -> bool:
    return any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions", []))
