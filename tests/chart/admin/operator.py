"""
Turns of ModelMesh Serving's controller on the API server: which runtime serves a namespace, and the Deployment that follows from it.

What a pod is made of comes from `tests.chart.controller`; here is what happens to the objects of a cluster.
"""

from __future__ import annotations

import contextlib

from tests.chart import admission, controller
from tests.chart.admin.api import CLUSTER_RUNTIME, DEPLOYMENT, INFERENCE_SERVICE, NAMESPACE, RUNTIME, Api, Kind, Object, RefusedError

PREFIX = "modelmesh-serving-"
PODS = 2
"""`podsPerRuntime`."""


class ReconcileError(Exception):
    """The controller logs this, and the pods stay as they are."""


def turn(api: Api, namespace: str) -> dict[str, Object]:
    """
    Do what the controller does when something changed, and say which Deployment each runtime has.

    Raises:
        ReconcileError: the validator refused a runtime, or the API server refused the pods that follow from it.
    """
    runtimes = _runtimes(api, namespace)
    _collect_garbage(api, namespace)
    for name, (kind, runtime) in runtimes.items():
        refusals = admission.validate(runtime)
        if refusals:
            raise ReconcileError("; ".join(refusals))
        _apply(api, namespace, name, kind, runtime)
    return {name: api.get(DEPLOYMENT, namespace, f"{PREFIX}{name}") for name in runtimes}


def _runtimes(api: Api, namespace: str) -> dict[str, tuple[Kind, Object]]:
    """A runtime of the namespace goes before the one of the cluster that has its name."""
    labels = api.get(NAMESPACE, "", namespace)["metadata"].get("labels", {})
    if labels.get("modelmesh-enabled") != "true":
        return {}
    found = {runtime["metadata"]["name"]: (CLUSTER_RUNTIME, runtime) for runtime in api.all_of(CLUSTER_RUNTIME, "")}
    return found | {runtime["metadata"]["name"]: (RUNTIME, runtime) for runtime in api.all_of(RUNTIME, namespace)}


def _apply(api: Api, namespace: str, name: str, kind: Kind, runtime: Object) -> None:
    template = controller.assemble(runtime, namespace=namespace)
    labels = {label: template["metadata"]["labels"][label] for label in ("modelmesh-service", "name")}
    has_models = bool(api.all_of(INFERENCE_SERVICE, namespace))
    owner = {"apiVersion": kind.group, "kind": kind.singular, "name": name, "uid": runtime["metadata"]["uid"], "controller": True}
    wanted = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": f"{PREFIX}{name}", "ownerReferences": [owner]},
        "spec": {
            "replicas": runtime["spec"].get("replicas", PODS) if has_models else 0,
            "selector": {"matchLabels": labels},
            "strategy": {"rollingUpdate": {"maxSurge": "75%", "maxUnavailable": "15%"}},
            "template": template,
        },
    }
    try:
        if api.has(DEPLOYMENT, namespace, f"{PREFIX}{name}"):
            api.ask("PUT", DEPLOYMENT.path(namespace, f"{PREFIX}{name}"), wanted)
        else:
            api.ask("POST", DEPLOYMENT.path(namespace), wanted)
    except RefusedError as refused:
        raise ReconcileError(str(refused)) from None


def _collect_garbage(api: Api, namespace: str) -> None:
    """Kubernetes deletes what belongs to an object that is gone."""
    living = {each["metadata"]["uid"] for each in (*api.all_of(RUNTIME, namespace), *api.all_of(CLUSTER_RUNTIME, ""))}
    for deployment in api.all_of(DEPLOYMENT, namespace):
        owners = {owner["uid"] for owner in deployment["metadata"].get("ownerReferences", [])}
        if owners and not owners & living:
            with contextlib.suppress(RefusedError):
                api.ask("DELETE", DEPLOYMENT.path(namespace, deployment["metadata"]["name"]))
