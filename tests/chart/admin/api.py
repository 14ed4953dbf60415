"""The API of a cluster, asked without a command in between."""

from __future__ import annotations

import http.client
import json
import ssl
from contextlib import closing
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

Object = dict[str, Any]
MERGE = "application/merge-patch+json"
_TRUSTING = ssl.create_default_context()
_TRUSTING.check_hostname, _TRUSTING.verify_mode = False, ssl.CERT_NONE  # it makes its own certificate, and listens on loopback


class RefusedError(Exception):
    """The API server refused a request; says why."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


@dataclass(frozen=True)
class Kind:
    """Where objects of a kind are."""

    group: str
    singular: str
    is_of_a_namespace: bool = True

    def path(self, namespace: str = "", name: str = "") -> str:
        """Of all in a namespace (or in all of them), or of one."""
        words = ["apis" if "/" in self.group else "api", self.group]
        words += ["namespaces", namespace] if self.is_of_a_namespace and namespace else []
        plural = f"{self.singular.lower().removesuffix('y')}ies" if self.singular.endswith("y") else f"{self.singular.lower()}s"
        return "/" + "/".join([*words, plural, *([name] if name else [])])


POD, SERVICE, SECRET = Kind("v1", "Pod"), Kind("v1", "Service"), Kind("v1", "Secret")
CONFIG_MAP, NAMESPACE, NODE = Kind("v1", "ConfigMap"), Kind("v1", "Namespace", False), Kind("v1", "Node", False)
DEPLOYMENT = Kind("apps/v1", "Deployment")
NETWORK_POLICY = Kind("networking.k8s.io/v1", "NetworkPolicy")
RUNTIME = Kind("serving.kserve.io/v1alpha1", "ServingRuntime")
CLUSTER_RUNTIME = Kind("serving.kserve.io/v1alpha1", "ClusterServingRuntime", False)
INFERENCE_SERVICE = Kind("serving.kserve.io/v1beta1", "InferenceService")


class Api:
    """A client with all rights. Its port is known when the server has started."""

    def __init__(self, token: str) -> None:
        self.port = 0
        self.token = token

    def ask(self, method: str, path: str, body: Object | None = None, kind: str = "application/json") -> Object:
        """
        One request to the API, without a command in between.

        Raises:
            RefusedError: the API server refused.
        """
        with closing(http.client.HTTPSConnection("127.0.0.1", self.port, timeout=30, context=_TRUSTING)) as connection:
            headers = {"Authorization": f"Bearer {self.token}", "Content-Type": kind, "Accept": "application/json"}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            found: Object = json.loads(answer.read())
        if answer.status >= 300:
            raise RefusedError(answer.status, str(found.get("message")))
        return found

    def get(self, kind: Kind, namespace: str, name: str) -> Object:
        """One object. Raises RefusedError when it is not there."""
        return self.ask("GET", kind.path(namespace, name))

    def all_of(self, kind: Kind, namespace: str, selector: str = "") -> list[Object]:
        """All objects of a kind, with such labels."""
        items: list[Object] = self.ask("GET", f"{kind.path(namespace)}?labelSelector={quote(selector)}")["items"]
        return items

    def has(self, kind: Kind, namespace: str, name: str) -> bool:
        """Whether there is such an object."""
        try:
            self.get(kind, namespace, name)
        except RefusedError as refused:
            if refused.status == HTTPStatus.NOT_FOUND:
                return False
            raise
        return True
