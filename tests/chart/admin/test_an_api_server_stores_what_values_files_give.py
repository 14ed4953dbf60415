"""
The objects of each values file, and the pod that the controller would make, against a real API server with strict validation.

And each value of the chart set to something odd: Helm refuses it in words, or the server stores the objects and the pod is sound.
Nothing in between: no error of a template, no object that an API server refuses, no pod in which something does not start.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.chart import admission, controller, matrix, render, soundness
from tests.chart.admin.cluster import Cluster, CommandError
from tests.chart.render import NAMESPACE

RESTRICTED = "restricted"
UNRESTRICTED = {"host-path", "removed-defaults", "root-triton"}


@pytest.fixture(scope="module")
def server(cluster: Cluster) -> Cluster:
    """With the namespace of the renders, and one that enforces the restricted Pod Security Standard."""
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": RESTRICTED, "labels": labels}})
    return cluster


def store(server: Cluster, *objects: dict[str, Any]) -> str:
    words = ("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-")
    return server.kubectl(*words, stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))


def a_pod(case: matrix.Case) -> dict[str, Any]:
    template = case.pod().template
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {**template["metadata"], "name": "assembled"}, "spec": template["spec"]}


@pytest.mark.parametrize("case", matrix.values(), ids=lambda case: case.name)
def test_it_stores_the_objects_and_the_pod(server: Cluster, case: matrix.Case) -> None:
    """And our containers keep to the restricted standard, but where values ask for something else."""
    objects = [*case.objects(), *([a_pod(case)] if case.has_runtime else [])]

    assert len(store(server, *objects).splitlines()) == len(objects)
    if case.has_runtime:
        assert is_restricted(server, case.runtime()) == (case.name not in UNRESTRICTED)


def is_restricted(server: Cluster, runtime: dict[str, Any]) -> bool:
    """Whether our containers and volumes keep to the restricted standard: those of ModelMesh do not."""
    bare = {name: runtime["spec"][name] for name in ("containers", "volumes")}
    try:
        store(server, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "ours", "namespace": RESTRICTED}, "spec": bare})
    except CommandError as error:
        assert "violates PodSecurity" in str(error)
        return False
    return True


def test_its_validation_is_strict(server: Cluster) -> None:
    runtime = matrix.case("default").runtime()
    runtime["spec"]["hostIPC"] = True

    with pytest.raises(CommandError, match="hostIPC"):
        store(server, runtime)


ODD: tuple[object, ...] = ("on", 0, 1.5, "a: b #c", "{{ .Values.x }}", "two\nlines", "", [1], {"a": 1}, "$(HOME) `id`", True, "9" * 30, -1)
TEMPLATES = ("nil pointer", "error calling", "executing", "wrong type", "YAML", "JSON")
"""Words of Helm's that speak of the chart's insides."""


def cases() -> Iterator[tuple[str, object]]:
    """Null takes a default away: every value gets it, and in turn one of the others."""
    turns = itertools.cycle(ODD)
    for path in matrix.leaves(yaml.safe_load((render.CHART / "values.yaml").read_text())):
        yield path, None
        yield path, next(turns)


@pytest.mark.long
@pytest.mark.parametrize(("path", "value"), list(cases()), ids=repr)
def test_an_odd_value(server: Cluster, path: str, value: object) -> None:
    try:
        objects = render.render(sets={path: value})
    except render.RenderError as refusal:
        assert not any(word in str(refusal) for word in TEMPLATES)
        return

    store(server, *objects)
    runtimes = [found for found in objects if found["kind"].endswith("ServingRuntime")]
    assert len(runtimes) == (0 if (path, value) == ("runtime.create", False) else 1)
    for runtime in runtimes:
        pod = soundness.PodView(controller.assemble(runtime, claims=(matrix.CLAIM,)), {})
        assert (admission.validate(runtime), soundness.problems(pod)) == ([], [])
