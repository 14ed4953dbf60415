"""Each file of `values/`: objects that an API server stores as they are, a runtime that the controller takes, a pod that works."""

from __future__ import annotations

import pytest

from tests.chart import controller, matrix, pod_security, soundness, valid

every = pytest.mark.parametrize("case", matrix.values(), ids=lambda case: case.name)
every_pod = pytest.mark.parametrize(
    "case", [case for case in matrix.values() if case.name != "namespace-extras"], ids=lambda case: case.name
)


@every
def test_every_object_is_valid(case: matrix.Case) -> None:
    objects = case.objects()

    assert {f"{found['kind']} {found['metadata']['name']}": valid.problems(found) for found in objects if valid.problems(found)} == {}
    assert len({(found["kind"], found["metadata"]["name"]) for found in objects}) == len(objects)
    assert all(found["metadata"].get("namespace") == "models" for found in objects if not found["kind"].startswith("Cluster"))


@every_pod
def test_the_controller_takes_the_runtime_and_drops_nothing(case: matrix.Case) -> None:
    assert controller.validate(case.runtime()) == []
    assert controller.dropped(case.runtime()) == []


@every_pod
def test_the_pod_is_sound(case: matrix.Case) -> None:
    assert soundness.problems(case.pod()) == []


@every_pod
def test_the_pod_is_valid(case: matrix.Case) -> None:
    template = case.pod().template
    metadata = {key: value for key, value in template["metadata"].items() if value}

    assert valid.problems({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}) == []


@every_pod
def test_the_pod_keeps_to_the_restricted_standard(case: matrix.Case) -> None:
    """The exceptions are what their users ask for."""
    exceptions = {
        "host-path": ["the volume triton-adapter-models is not restricted"],
        "removed-defaults": [
            "triton: runAsNonRoot is not restricted",
            "triton: allowPrivilegeEscalation is not restricted",
            "triton: capabilities.drop is not restricted",
            "triton: seccompProfile is not restricted",
        ],
        "root-triton": ["triton: runAsNonRoot is not restricted", "triton: runAsUser is not restricted"],
    }

    assert pod_security.restricted(case.runtime()) == exceptions.get(case.name, [])
