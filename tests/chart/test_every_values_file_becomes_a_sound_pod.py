"""Each file of `values/`: objects that an API server stores as they are, a runtime that the controller takes, a pod that works."""

from __future__ import annotations

import pytest

from tests.chart import controller, matrix, soundness

every = pytest.mark.parametrize("case", matrix.values(), ids=lambda case: case.name)
every_pod = pytest.mark.parametrize(
    "case", [case for case in matrix.values() if case.name != "namespace-extras"], ids=lambda case: case.name
)


@every
def test_every_object_has_a_name_of_its_own_in_the_namespace(case: matrix.Case) -> None:
    objects = case.objects()

    assert len({(found["kind"], found["metadata"]["name"]) for found in objects}) == len(objects)
    assert all(found["metadata"].get("namespace") == "models" for found in objects if not found["kind"].startswith("Cluster"))


@every_pod
def test_the_controller_takes_the_runtime_and_drops_nothing(case: matrix.Case) -> None:
    assert controller.validate(case.runtime()) == []
    assert controller.dropped(case.runtime()) == []


@every_pod
def test_the_pod_is_sound(case: matrix.Case) -> None:
    assert soundness.problems(case.pod()) == []
